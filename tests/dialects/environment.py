"""An environment of its own for one CPU build of vLLM: what ``launchers/install.sh`` does for the version we pin."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALL_S = 1800.0
FOREIGN = ("torchvision", "torchaudio", "torchcodec")
"""Builds for CUDA's torch that the wheel pulls in; the first of them breaks every import of transformers."""


class NotInstalled(Exception):
    """The environment could not be made; what pip said."""


def environment(wheel: Path) -> Path:
    """The Python of the environment beside ``wheel``, with that vLLM and this checkout of vst in it; made once."""
    folder = wheel.parent / "env"
    python, stamp = folder / "bin/python", folder / "made"
    if stamp.exists() and stamp.read_text() == str(ROOT):
        return python
    if not python.exists():
        venv.create(folder, with_pip=True)
    torch = pinned_torch(wheel)
    say = f"making an environment for {wheel.name.split('-')[1]} (some minutes)"
    print(say, file=sys.stderr, flush=True)
    if _pip(python, "install", torch).returncode:
        # The configured index has no CPU build of torch: uv knows PyTorch's own index for it.
        _must(python, "install", "uv")
        plain = torch.partition("+")[0]
        uv = [str(python), "-m", "uv", "pip", "install", "--quiet", "--python", str(python), "--torch-backend", "cpu"]
        _expect(subprocess.run([*uv, plain], capture_output=True, text=True, timeout=INSTALL_S, check=False))
    _must(python, "install", str(wheel))
    _must(python, "install", "--editable", str(ROOT))
    _must(python, "uninstall", "--yes", *FOREIGN)
    stamp.write_text(str(ROOT))
    return python


def pinned_torch(wheel: Path) -> str:
    """The torch that the wheel's own metadata asks for on this kind of machine, as pip takes it."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    found = re.search(r"^Requires-Dist: (torch==[\w.]+\+cpu)", text, re.MULTILINE)
    if found is None:
        raise NotInstalled(f"{wheel.name} does not say which CPU build of torch it wants")
    return found.group(1)


def _pip(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [str(python), "-m", "pip", words[0], "--quiet", "--disable-pip-version-check", *words[1:]]
    return subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_S, check=False)


def _must(python: Path, *words: str) -> None:
    _expect(_pip(python, *words))


def _expect(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        raise NotInstalled(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"code {done.returncode}")
