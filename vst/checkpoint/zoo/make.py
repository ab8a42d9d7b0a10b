"""Making a pair of the zoo once, below the cache directory: two checkpoints of one layout with other values."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from vst.checkpoint.tiny import locked, tree_digest
from vst.checkpoint.tiny_tokenizer import BOS_ID, EOS_ID, tokenizer_files
from vst.checkpoint.writer import Tensor, write_atomically, write_index, write_safetensors
from vst.checkpoint.zoo.catalogue import CATALOGUE, Architecture
from vst.checkpoint.zoo.layout import Layout, read_layout
from vst.checkpoint.zoo.quantised import CONFIGS, is_quantised, stored
from vst.checkpoint.zoo.weights import draw
from vst.errors import ConfigError

FORMAT = "vst-zoo/1"
ROLES = ("a", "b")
SHARDS = 3
MARK = "digests.json"


def make_zoo_pair(directory: Path, name: str) -> tuple[Path, Path]:
    """The directories ``a`` and ``b`` of architecture ``name`` in ``directory``, made unless they are whole.

    What they must be is kept beside them, so that a damaged pair is made anew. Safe for concurrent callers. Raises
    ConfigError for an unknown name or a transformers that cannot make it.
    """
    if name not in CATALOGUE:
        raise ConfigError(f"model=zoo/{name}: there is no such architecture; there are {', '.join(CATALOGUE)}")
    target = directory / name
    target.mkdir(parents=True, exist_ok=True)
    if not _whole(target):
        with locked(target / ".lock"):
            if not _whole(target):
                _install(target, CATALOGUE[name])
    return target / "a", target / "b"


def _whole(target: Path) -> bool:
    try:
        said = json.loads((target / MARK).read_text())
        return bool(said == _said(target))
    except (OSError, ValueError):
        return False


def _said(target: Path) -> dict[str, str]:
    return {"format": FORMAT, **{role: tree_digest(target / role) for role in ROLES}}


def _install(target: Path, architecture: Architecture) -> None:
    layout = read_layout(architecture)
    scratch = Path(tempfile.mkdtemp(dir=target, prefix=".new-"))
    try:
        for role in ROLES:
            write_checkpoint(scratch / role, layout, architecture, f"vst-zoo-{architecture.name}-{role}")
            if os.path.lexists(target / role):
                os.rename(target / role, scratch / f"old-{role}")
            os.rename(scratch / role, target / role)
        write_atomically(target / MARK, [json.dumps(_said(target)).encode()])
    finally:
        shutil.rmtree(scratch)


def write_checkpoint(directory: Path, layout: Layout, architecture: Architecture, seed: str) -> None:
    """Write one checkpoint: shards, index, config and the byte-level tokenizer. Creates ``directory``."""
    directory.mkdir()
    tensors = _tensors(layout, architecture.quantised, seed)
    weight_map: dict[str, str] = {}
    for number, names in enumerate(_cut(list(tensors)), 1):
        shard = f"model-{number:05d}-of-{SHARDS:05d}.safetensors"
        write_safetensors(directory / shard, {name: tensors[name] for name in names}, {"format": "pt"})
        weight_map |= dict.fromkeys(names, shard)
    write_index(directory, weight_map, sum(len(data) for _, _, data in tensors.values()))
    config = {**layout.config}
    if architecture.quantised is not None:
        config["quantization_config"] = CONFIGS[architecture.quantised]
    if architecture.quantised in ("awq", "gptq"):
        config["dtype"] = "float16"
    tokens = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID}
    for name, content in {"config.json": config, "generation_config.json": tokens, **tokenizer_files()}.items():
        (directory / name).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="ascii")


def _tensors(layout: Layout, form: str | None, seed: str) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name, (dtype, shape, neutral) in sorted(layout.tensors.items()):
        if form is not None and is_quantised(name, shape):
            tensors |= dict(stored(form, seed, name, shape))
        else:
            as_dtype = "F16" if form in ("awq", "gptq") else dtype
            tensors[name] = (as_dtype, shape, draw(seed, name, as_dtype, shape, neutral))
    return tensors


def _cut(names: list[str]) -> list[list[str]]:
    """The names in ``SHARDS`` parts of about the same number, none of them empty."""
    return [names[len(names) * part // SHARDS : len(names) * (part + 1) // SHARDS] for part in range(SHARDS)]
