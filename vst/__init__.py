"""vst: push a checkpoint into a live vLLM server, and prove that the server now serves it."""

__version__ = "0.1.0"
