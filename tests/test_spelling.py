from __future__ import annotations

from pathlib import Path

import pytest

from vst.confdir import conf_dir
from vst.spelling import known_keys, misspelt


def said(*words: str) -> str:
    return "\n".join(misspelt(words, conf_dir()))


WRONG = {
    "lane.cyles=2": "lane.cycles",
    "lane=L33": "L3",
    "servr=cpu": "server",
    "cycles=3": "lane.cycles",
    "oracle.prbes=3": "oracle.probes",
    "transfer.timeouts.broadcst_s=3": "transfer.timeouts.broadcast_s",
    "tensor_parallel_size=2": "server.tensor_parallel_size",
    "model=modelc": "modela",
    "lane=L0,LL3": "L3",
    "consle=json": "console",
}


@pytest.mark.parametrize("word", WRONG)
def test_a_mistyped_override_is_answered_with_the_nearest_names(word: str) -> None:
    message = said(word)
    assert WRONG[word] in message.replace(";", ",").split(", ", 1)[1]
    assert len(message.splitlines()) == 1


def test_every_mistake_is_named_at_once() -> None:
    assert len(said("lane.cyles=2", "model=modelc", "lane=L3").splitlines()) == 2


RIGHT = [
    "lane=L3", "lane=L0,L3", "lane.cycles=2", "+server.env.ANY=1", "server.env.VLLM_CPU_KVCACHE_SPACE=2", "~lane.left",
    "hydra.run.dir=/x", "hydra/launcher=slurm", "lane.controls=norm,head", "--cfg", "-m", "--info=all",
    "lane=choice(L0,L3)", "checkpoint.path=/a/b=c", "model.path='a b'", "server@other=cpu", "lane=glob(L*)",
]  # fmt: skip


@pytest.mark.parametrize("word", RIGHT)
def test_what_is_right_or_not_ours_is_left_to_hydra(word: str) -> None:
    assert said(word) == ""


@pytest.mark.parametrize("flag", ["--config-dir={}", "-cd {}"])
def test_options_and_groups_of_another_directory_are_known(tmp_path: Path, flag: str) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint/step100.yaml").touch()
    (tmp_path / "mine").mkdir()
    flags = flag.format(tmp_path).split(" ")
    assert said(*flags, "checkpoint=step100,default", "mine=x", "mine.key=1") == ""
    assert "step100" in said(*flags, "checkpoint=step10")


def test_with_another_primary_configuration_or_search_path_nothing_is_certain() -> None:
    assert said("--config-path=/x", "servr=cpu") == said("-cn", "other", "servr=cpu") == ""
    assert said("--shell-completion", "install=bash") == said("-sc", "install=bash") == ""
    assert said("hydra.searchpath=[file:///x]", "servr=cpu") == ""


def test_the_keys_are_those_of_the_schema() -> None:
    assert {"lane.cycles", "server.capabilities.reason", "transfer.timeouts.join_s", "console"} <= set(known_keys())


def test_an_option_in_a_folder_of_a_group_is_known_with_its_folder() -> None:
    assert misspelt(["model=zoo/mixtral"], conf_dir()) == []
    assert "the nearest are zoo/mixtral, " in said("model=zoo/mixtrall")
