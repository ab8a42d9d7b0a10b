"""What lies in a checkpoint directory: headers, index, manifest, digests, and the audit of lane L0.

Nothing here imports torch or vLLM, and numpy is imported only by the functions that need it.
"""
