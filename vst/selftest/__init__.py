"""The scripted server and its table of faults: how this tool proves that it notices what it claims to notice.

The scripted server is a double. It speaks vLLM's routes over real HTTP, joins the publisher's group as a worker does,
holds and loads a checkpoint of the Llama kind in a small torch model of its own and answers from it. It imports no
vLLM and stands for none: its version ends in ``+vst.scripted``, no other lane accepts that, and every verdict reached
with it says so. It travels with the package because ``lane=selftest`` is a lane of the product: the tool against a
server with known faults, every one of which must be caught by the check that is meant for it.

    python -m vst.selftest --model DIR --port 8000 --fault '{"kind": "stale", "match": "lm_head"}'
"""
