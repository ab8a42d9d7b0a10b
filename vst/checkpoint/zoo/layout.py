"""What a model of the zoo consists of: its config, and its tensors as the hub names them, from transformers.

transformers builds the model and saves it; the saved file has the names, shapes and dtypes of a published checkpoint,
which are not always those of the module tree. Only these are taken over, with the constants of norms and biases; the
values are our own.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vst.checkpoint.zoo.catalogue import COMMON, Architecture
from vst.errors import ConfigError


@dataclass(frozen=True)
class Layout:
    """``config`` is config.json; ``tensors`` maps names to dtype, shape and the constant that it starts from."""

    config: dict[str, Any]
    tensors: dict[str, tuple[str, tuple[int, ...], float]]


def read_layout(architecture: Architecture) -> Layout:
    """The layout of one architecture; ConfigError when the extra ``zoo`` is missing or does not know it."""
    try:
        with _quiet():
            import transformers
    except ImportError as error:
        raise ConfigError(f"model=zoo/… needs transformers: pip install '…[zoo]' ({error})") from error
    kind = getattr(transformers, architecture.config, None)
    if kind is None:
        raise ConfigError(f"transformers {transformers.__version__} has no {architecture.config}: use another version")
    with _quiet(), tempfile.TemporaryDirectory(prefix="vst-zoo-") as scratch:
        _save(kind(**{**COMMON, **architecture.options}), Path(scratch))
        return _read(Path(scratch))


def _save(config: Any, directory: Path) -> None:
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(directory, max_shard_size="1TB")


def _read(directory: Path) -> Layout:
    from safetensors import safe_open

    config = json.loads((directory / "config.json").read_text())
    tensors = {}
    with safe_open(directory / "model.safetensors", framework="pt") as file:
        names = list(file.keys())
        for name in names:
            value = file.get_tensor(name)
            dtype = file.get_slice(name).get_dtype()
            tensors[name] = (dtype, tuple(value.shape), 1.0 if bool((value == 1).all()) else 0.0)
    return Layout(config, tensors)


@contextlib.contextmanager
def _quiet() -> Any:
    """transformers talks while it is imported and saves; the run has a console of its own."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
