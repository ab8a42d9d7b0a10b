"""From where a process imported its code: paths and digests of packages, as seen by the process itself."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

READ = (".py", ".json", ".yaml", ".toml", ".jinja")
COVERS = f"names of all files; bytes of {', '.join(READ)}; sizes of the others"


def package_facts(name: str) -> dict[str, Any] | None:
    """Path and digests of a package that this process has imported; None when it has not."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if not file:
        return None
    origin = Path(file)
    return {
        "path": str(origin),
        "sha256": hashlib.sha256(origin.read_bytes()).hexdigest(),
        "package": package_digest(origin.parent),
        "covers": COVERS,
    }


def package_digest(root: Path) -> str:
    """``sha256:<hex>`` over the files of a package in order of their names; compiled Python files are left out."""
    digest = hashlib.sha256()
    for path in sorted(_files(root)):
        name = os.fsencode(path.relative_to(root))
        if path.suffix in READ:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            content = f"{path.stat().st_size} bytes"
        digest.update(b"%s\0%s\n" % (name, content.encode()))
    return "sha256:" + digest.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (Path(folder, name) for name in names if Path(folder, name).is_file())


def library_facts() -> dict[str, Any]:
    """What the publisher reports of itself: Python, CUDA, NCCL, and where vst and vLLM came from."""
    torch = sys.modules.get("torch")
    cuda = getattr(getattr(torch, "version", None), "cuda", None)
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__) if torch else None,
        "cuda": cuda,
        "nccl": _nccl(torch) if cuda else None,
        "imports": {name: package_facts(name) for name in ("vst", "vllm")},
    }


def _nccl(torch: Any) -> str | None:
    try:
        return ".".join(str(part) for part in torch.cuda.nccl.version())
    except (AttributeError, RuntimeError, TypeError):
        return None
