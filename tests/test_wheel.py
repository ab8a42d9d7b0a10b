"""A wheel carries the configuration and the launcher, and runs without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out / "site")
    return out / "site"


def run(site: Path, cwd: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(site), "VST_CACHE": str(cwd / "cache")}
    return subprocess.run([sys.executable, "-m", "vst", *argv], env=env, cwd=cwd, capture_output=True, text=True)


def test_wheel_carries_every_yaml_file_of_conf(unpacked: Path) -> None:
    inside = {path.relative_to(unpacked / "vst" / "conf") for path in (unpacked / "vst" / "conf").rglob("*.yaml")}
    assert inside == {path.relative_to(ROOT / "conf") for path in (ROOT / "conf").rglob("*.yaml")}


def test_wheel_declares_the_vllm_plugin(unpacked: Path) -> None:
    (entry,) = unpacked.glob("*.dist-info/entry_points.txt")
    assert "vst_gloo = vst.transfer.plugin:register" in entry.read_text()


def test_wheel_carries_the_launcher_as_a_hydra_plugin(unpacked: Path) -> None:
    assert list((unpacked / "hydra_plugins").glob("*/__init__.py"))
    assert not (unpacked / "hydra_plugins" / "__init__.py").exists()


def test_wheel_audits_the_embedded_pair_with_its_own_configuration(unpacked: Path, tmp_path: Path) -> None:
    shown = run(unpacked, tmp_path, "--help")
    assert shown.returncode == 0
    assert "lane            L0" in shown.stdout
    done = run(unpacked, tmp_path, "lane=L0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.rglob("report.html")), "the templates of the pages are in the wheel"
    where = run(unpacked, tmp_path, "--info", "searchpath")
    assert str(unpacked / "vst" / "conf") in where.stdout
