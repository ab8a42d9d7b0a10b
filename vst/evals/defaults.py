"""What a server would have decided by itself: generation defaults and the chat template that lie beside its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vst.evals.question import digest_of

SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "typical_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "max_tokens", "max_new_tokens", "min_tokens", "min_new_tokens", "do_sample", "eos_token_id",
    "stop_strings", "suppress_tokens",
)  # fmt: skip


def server_defaults(directory: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling defaults of a server that was started on ``directory``, and its chat template by digest.

    ``config`` is the server's account of its configuration. Each request sends every sampling field, so these have no
    say; they are kept because a client that sends less gets them.
    """
    model = config.get("model_config")
    model = model if isinstance(model, Mapping) else {}
    source = model.get("generation_config")
    found = _sampling(directory / "generation_config.json") if source in (None, "auto") else {}
    override = model.get("override_generation_config")
    return {
        "source": source,
        "sampling": {**found, **(override if isinstance(override, Mapping) else {})},
        "chat_template": chat_template(directory),
    }


def _sampling(path: Path) -> dict[str, Any]:
    content = _object(path)
    return {key: content[key] for key in SAMPLING if key in content}


def chat_template(directory: Path) -> str | None:
    """The digest of the checkpoint's chat template; None where it has none."""
    path = directory / "chat_template.jinja"
    try:
        return digest_of(path.read_text(encoding="utf-8"))
    except OSError:
        template = _object(directory / "tokenizer_config.json").get("chat_template")
        return None if template is None else digest_of(template)


def _object(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, Mapping) else {}
