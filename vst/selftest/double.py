"""What marks the scripted server as a double; a module of its own, so that lanes can ask without importing torch."""

from __future__ import annotations

MARK = "vst.scripted"
"""The local part of the version that a double reports, and the name of its system in ``/server_info``."""

SAYS = "scripted double, not a vLLM: nothing here is evidence about a vLLM"


def version_of(vllm: str) -> str:
    """The version that a double of vLLM ``vllm`` reports."""
    return f"{vllm.partition('+')[0]}+{MARK}"


def is_double(version: str) -> bool:
    return version.endswith(f"+{MARK}")
