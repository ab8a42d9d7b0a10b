"""A sweep that is started again runs only what has not passed, or what would no longer be the same."""

from __future__ import annotations

import shutil
from pathlib import Path

from cluster.conftest import Vst


def words(vst: Vst, cache: Path) -> tuple[str, ...]:
    pair = sorted(path for path in (cache / "tiny").iterdir() if (path / "config.json").exists())
    for source, name in zip(pair, ("a", "b"), strict=True):
        if not (vst.cwd / name).exists():
            shutil.copytree(source, vst.cwd / name)
    paths = (f"model.path={vst.cwd}/a", f"checkpoint.path={vst.cwd}/b,{vst.cwd}/c")
    return ("-m", "lane=L0", "model=local", *paths, f"hydra.sweep.dir={vst.sweep}")


def states(vst: Vst) -> list[str]:
    return [run["state"] for run in vst.runs()]


def test_what_passed_is_skipped_and_what_did_not_runs_in_a_new_attempt(local: Vst, cache: Path) -> None:
    code, out = local(*words(local, cache))
    assert code == 2, out  # there is no c
    shutil.copytree(local.cwd / "b", local.cwd / "c")
    code, out = local(*words(local, cache), "launch.resume=true")
    assert code == 0, out + local.logs()
    assert states(local) == ["skipped", "ended"]
    assert local.runs()[1]["ending"]["evidence"] == f"{local.sweep}/1.attempt-2"
    assert not (local.sweep / "0.attempt-2").exists()
    code, out = local(*words(local, cache), "launch.resume=true")
    assert code == 0 and states(local) == ["skipped", "skipped"]


def test_a_checkpoint_that_changed_since_is_run_again(local: Vst, cache: Path) -> None:
    words(local, cache)
    shutil.copytree(local.cwd / "b", local.cwd / "c")
    code, out = local(*words(local, cache))
    assert code == 0, out
    shard = next((local.cwd / "c").glob("*.safetensors"))
    data = bytearray(shard.read_bytes())
    data[-2] ^= 1
    shard.write_bytes(data)
    code, out = local(*words(local, cache), "launch.resume=true")
    assert code == 0, out
    assert states(local) == ["skipped", "ended"]


def test_another_configuration_is_another_run(local: Vst, cache: Path) -> None:
    words(local, cache)
    shutil.copytree(local.cwd / "b", local.cwd / "c")
    assert local(*words(local, cache))[0] == 0
    code, out = local(*words(local, cache), "launch.resume=true", "oracle.probes=3")
    assert code == 0, out
    assert states(local) == ["ended", "ended"]
    assert (local.sweep / "0.attempt-2/verdict.json").exists()


def test_a_directory_with_a_sweep_is_not_used_again_by_accident(local: Vst, cache: Path) -> None:
    sweep = f"hydra.sweep.dir={local.sweep}"
    assert local("-m", "lane=L0", sweep)[0] == 0
    code, out = local("-m", "lane=L0", sweep)
    assert code == 2 and "already holds a sweep: continue it with launch.resume=true" in out
