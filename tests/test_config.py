from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from vst import config
from vst.confdir import conf_dir
from vst.config import VstConf, derives
from vst.errors import ConfigError
from vst.server.plan import outcomes, parse_all
from vst.server.states import Situation

USER = ("model=local", "model.path=/a", "checkpoint.path=/b")


@pytest.fixture(autouse=True, scope="module")
def hydra() -> Iterator[None]:
    config.register()
    OmegaConf.register_new_resolver("pid", lambda: 1, replace=True)
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        yield
    GlobalHydra.instance().clear()


@cache
def groups(*overrides: str) -> DictConfig:
    return compose("config", overrides=list(overrides))


def composed(*overrides: str) -> DictConfig:
    """As Hydra composes it: groups by Hydra itself, once each; values merged into the typed configuration."""
    chosen = [one for one in overrides if "." not in one.partition("=")[0]]
    values = [one for one in overrides if one not in chosen]
    return cast(DictConfig, OmegaConf.merge(groups(*chosen), OmegaConf.from_dotlist(values)))


def load(*overrides: str) -> VstConf:
    return config.load(composed(*overrides))


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*overrides)
    return str(caught.value)


def test_the_embedded_default_is_complete() -> None:
    conf = load()
    assert (conf.model.generate, conf.lane.name, conf.lane.upto, conf.server.kind) == ("tiny", "ladder", "L3", "cpu")
    assert conf.model.path == conf.checkpoint.path == ""


@pytest.mark.parametrize("lane", sorted(path.stem for path in (conf_dir() / "lane").glob("*.yaml")))
def test_every_lane_file_composes_with_both_checkpoints_and_names_a_known_lane(lane: str) -> None:
    extra = ("lane.left=x", "lane.right=y") if lane == "compare" else ()
    assert load(f"lane={lane}", *USER, *extra).lane.name == lane


@pytest.mark.parametrize("model", ["modela", "modelb", "local"])
def test_a_codename_alone_lists_every_value_to_set(model: str) -> None:
    message = refusal(f"model={model}")
    assert f"model={model} needs 2 value(s)" in message
    assert "model.path=…   the directory of checkpoint A" in message
    assert "checkpoint.path=…   the directory of checkpoint B" in message


def test_with_a_server_of_its_own_a_run_needs_only_the_path_of_b() -> None:
    conf = load("model=local", "lane=L3", "checkpoint.path=/b")
    assert conf.model.path == "" and derives(conf)
    for words in (("server=attach", "server.base_url=http://h:1"), ("lane=L2",), ("lane=record",)):
        assert "model.path=…" in refusal("model=local", "checkpoint.path=/b", *words)
    assert "checkpoint.path=…" in refusal("model=local", "lane=L3")


def test_everything_that_is_missing_is_listed_at_once() -> None:
    message = refusal("model=local", "server=attach", "lane=L3")
    assert all(f"  {key}=…" in message for key in ("model.path", "checkpoint.path", "server.base_url"))


@pytest.mark.parametrize("lane", ["L1", "L2", "record"])
def test_lanes_that_look_at_a_alone_need_no_checkpoint_b(lane: str) -> None:
    assert load(f"lane={lane}", "model=local", "model.path=/a").checkpoint.path == ""


def test_comparing_needs_two_records_and_no_checkpoint() -> None:
    assert "lane.left" in refusal("lane=compare") and "lane.right" in refusal("lane=compare", "lane.left=x")
    assert load("lane=compare", "model=local", "lane.left=x", "lane.right=y").lane.right == "y"


@pytest.mark.parametrize("chain", sorted(path.stem for path in (conf_dir() / "lifecycle").glob("*.yaml")))
def test_every_chain_that_comes_with_it_is_legal_and_leads_a_serving_server_back_to_serving(chain: str) -> None:
    steps = parse_all(load(f"lifecycle={chain}").lifecycle.chain)
    assert outcomes(steps) == {Situation.SERVING} and "push" in [step.verb for step in steps]


WRONG = {
    "lifecycle.chain=[]": "lifecycle.chain is empty",
    "lifecycle.chain=[finish]": "lifecycle.chain: 'finish' is no step",
    "lifecycle.admission.keep=maybe": "expected one of held, refused, either",
    "lifecycle.quiet_s=0": "lifecycle.quiet_s=0.0: must be positive",
    "lane.plan=plan.json": "lane.plan is replayed by lane=lifecycle",
    "server.capabilities.sleep=yes": "expected one of memory, flags, none",
    "server.memory=guess": "server.memory=guess: expected metric:NAME, pid:N or device",
    "lane.name=L9": "lane.name=L9: expected one of L0",
    "lane.upto=L9": "lane.upto=L9: expected one of L0, L1, L2, L3, L4",
    "lane.final=neither": "expected one of checkpoint, model",
    "lane.pause_mode=gently": "expected one of abort, wait, keep",
    "server.kind=tpu": "expected one of cpu, gpu, attach",
    "transfer.backend=ipc": "expected one of vst_gloo, nccl",
    "checkpoint.finite=perhaps": "expected one of auto, always, never",
    "model.generate=huge": "model.generate=huge",
    "lane.identities=1": "lane.identities=1: must be at least 2",
    "lane.cycles=0": "lane.cycles=0: must be at least 1",
    "oracle.repeats=1": "oracle.repeats=1: must be at least 2",
    "oracle.probes=0": "oracle.probes=0",
    "oracle.min_tokens=1": "oracle.min_tokens=1: must be at least 2",
    "oracle.max_tokens=3": "oracle.max_tokens=3: must be at least 4",
    "oracle.output_tokens=0": "oracle.output_tokens=0",
    "oracle.top_k=0": "oracle.top_k=0",
    "load.prompts=0": "load.prompts=0",
    "load.min_tokens=1": "load.min_tokens=1: must be at least 2",
    "load.max_tokens=3": "load.max_tokens=3: must be at least 4",
    "load.output_tokens=1": "load.output_tokens=1: must be at least 2",
    "load.concurrency=0": "load.concurrency=0",
    "load.max_in_flight=0": "load.max_in_flight=0",
    "load.max_requests=0": "load.max_requests=0",
    "load.rounds=1": "load.rounds=1: must be at least 2",
    "load.rate_per_s=0": "load.rate_per_s=0",
    "load.request_s=.inf": "load.request_s=inf: must be positive",
    "load.load_s=-1": "load.load_s=-1",
    "load.drain_s=0": "load.drain_s=0",
    "load.settle_s=.nan": "load.settle_s=nan",
    "load.stream_share=1.5": "load.stream_share=1.5: a share is from 0 to 1",
    "server.tensor_parallel_size=0": "server.tensor_parallel_size=0",
    "server.port=70000": "server.port=70000",
    "transfer.port=-1": "transfer.port=-1",
    "transfer.timeouts.join_s=0": "transfer.timeouts.join_s=0",
    "transfer.timeouts.broadcast_s=-5": "must be positive",
    "transfer.timeouts.finish_s=.inf": "transfer.timeouts.finish_s=inf: must be positive",
    "transfer.timeouts.start_s=.nan": "transfer.timeouts.start_s=nan: must be positive",
    "transfer.timeouts.min_bytes_per_s=0": "transfer.timeouts.min_bytes_per_s=0",
    "transfer.rate_limit_bytes_per_s=-1": "transfer.rate_limit_bytes_per_s=-1",
    "transfer.bucket_bytes=0": "transfer.bucket_bytes=0",
    "transfer.bucket_bytes=null": "transfer.bucket_bytes is not set",
    "server.request_timeout_s=-1": "server.request_timeout_s=-1",
    "server.start_timeout_s=.inf": "server.start_timeout_s=inf",
    "server.max_model_len=0": "server.max_model_len=0",
    "publisher.device=gpu0": "publisher.device=gpu0: expected cpu or cuda:N",
    "server.args=[--model=/other]": "server.args=--model=/other",
    "server.args=[--enforce-eager,--port,1]": "server.args=--port",
    "server.args=[--served_model_name,x]": "server.args=--served_model_name",
    "server.args=['--weight-transfer-config={}']": "server.args=--weight-transfer-config={}",
    "eval.kind=mmlu": "eval.kind=mmlu: expected one of questions, lm_eval",
    "eval.style=essay": "eval.style=essay: expected one of completion, chat",
    "eval.extraction=last": "eval.extraction=last: expected one of strict, flexible",
    "eval.concurrency=0": "eval.concurrency=0: must be at least 1",
    "eval.max_tokens=0": "eval.max_tokens=0: must be at least 1",
    "eval.limit=0": "eval.limit",
    "eval.retries=-1": "eval.retries=-1",
    "eval.temperature=-1": "eval.temperature=-1",
    "eval.top_p=0": "eval.top_p=0",
    "eval.margin=0": "eval.margin=0.0: must be between 0 and 1",
    "eval.alpha=1": "eval.alpha=1.0: must be between 0 and 1",
    "eval.request_timeout_s=0": "eval.request_timeout_s=0.0: must be positive",
    "eval.resume=x": "eval.resume goes on with the evaluation of lane=eval",
    "model.draft_tokens=0": "model.draft_tokens=0: must be at least 1",
}


@pytest.mark.parametrize("override", WRONG)
def test_a_wrong_value_is_refused_with_its_key(override: str) -> None:
    assert WRONG[override] in refusal(override)


def test_all_wrong_values_are_listed_together() -> None:
    message = refusal("lane.cycles=0", "lane.final=neither", "server.args=[--port=1]")
    assert len(message.splitlines()) == 3


def test_nccl_does_not_send_from_a_cpu() -> None:
    assert "publisher.device=cuda:N" in refusal("transfer=nccl")
    assert load("transfer=nccl", "publisher=gpu").transfer.bucket_bytes is None


@pytest.mark.parametrize(
    "url", ["localhost:8000", "http://host:port", "host", "http://u:s3cr3t@host:8000", "http://h/?q=1"]
)
def test_an_address_that_is_none_is_refused_and_a_password_in_it_is_not_repeated(url: str) -> None:
    message = refusal("server=attach", f"server.base_url={url}")
    assert "server.base_url" in message and "s3cr3t" not in message


@pytest.mark.parametrize("value", ["${nothing}", "${oc.env:VST_TEST_NO_SUCH_VARIABLE}", "${no_such_resolver:1}"])
def test_a_reference_to_nothing_is_a_wrong_configuration(value: str) -> None:
    assert "cannot be resolved" in refusal("model=local", "checkpoint.path=/b", f"model.path={value}")


def test_keys_that_nobody_knows_fail_when_the_configuration_is_composed() -> None:
    for override in ("lane.cyles=2", "server.foo=1", "nothing.at.all=1"):
        with pytest.raises(HydraException, match="Could not override"):
            compose("config", overrides=[override])


def test_values_of_another_type_fail_when_the_configuration_is_composed() -> None:
    with pytest.raises(HydraException, match="lane.cycles=many"):
        compose("config", overrides=["lane.cycles=many"])


def test_the_timeouts_of_both_backends_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    from vst.transfer.publisher import Deadlines

    for overrides in ((), ("transfer=nccl", "publisher=gpu")):
        timeouts: dict[str, Any] = vars(load(*overrides).transfer.timeouts)
        assert all(
            Deadlines(**timeouts).limit(phase, 1) > 0 for phase in ("boot", "join", "start", "broadcast", "finish")
        )


def test_a_lane_and_another_upto_contradict_each_other() -> None:
    assert "lane.upto=L3 contradicts lane=L2" in refusal("lane=L2", "lane.upto=L3")


RUNNING = ("server=attach", "server.capabilities.weight_digests=false")
URLS = "server.base_urls=[http://a:1,http://b:2]"
FLEETS: dict[str, tuple[tuple[str, ...], str]] = {
    "both": ((*RUNNING, "server.base_url=http://a:1", URLS), "set one of them"),
    "owned": ((URLS,), "is for server=attach"),
    "twice": ((*RUNNING, "server.base_urls=[http://a:1,http://a:1]"), "names a server twice"),
    "no address": ((*RUNNING, "server.base_urls=[http://a:1,b:2]"), r"server.base_urls\[1\]"),
    "replicas of a running one": ((*RUNNING, URLS, "server.replicas=2"), "name running ones with server.base_urls"),
    "none": (("server.replicas=0",), "server.replicas=0: must be at least 1"),
    "killed": ((*RUNNING, URLS, "server.capabilities.kill=true"), "server.capabilities.kill=true"),
    "devices": (("server.replicas=2", "server.devices=['0','1','2']"), "cannot be divided"),
    "fault": (("endurance.faults=[earthquake]",), "expected some of publisher_killed"),
    "no cycle": (("endurance.cycles=0",), "endurance.cycles=0"),
}


@pytest.mark.parametrize("what", FLEETS)
def test_servers_that_cannot_be_one_group_are_refused(what: str) -> None:
    overrides, words = FLEETS[what]
    assert re.search(words, refusal(*overrides))


def test_several_running_servers_need_no_single_address() -> None:
    assert load(*RUNNING, URLS).server.base_urls == ["http://a:1", "http://b:2"]
    assert load(*RUNNING, URLS).server.base_url is None


def test_every_rung_of_the_ladder_has_a_runner_in_the_order_of_the_lanes() -> None:
    from vst.config import LANES
    from vst.lanes.ladder import RUNGS

    assert ["L0", *RUNGS] == list(LANES)


def test_the_questions_of_a_file_and_their_examples_have_to_be_given_where_they_are_asked() -> None:
    message = refusal("eval=gsm8k", "lane=L5")
    assert "eval.dataset=…" in message
    message = refusal("eval=gsm8k", "lane=eval", "eval.dataset=/test.jsonl")
    assert "eval.shots_dataset=…" in message
    assert load("eval=gsm8k", "lane=L5", "eval.dataset=/test.jsonl", "eval.shots=0").eval.limit is None
    assert load("eval=custom", "lane=L5", "eval.dataset=/mine.jsonl").eval.shots == 0
    assert load("eval=gsm8k", "lane=L3").eval.dataset is None


def test_a_task_of_lm_eval_is_named_and_runs_in_lane_eval_alone() -> None:
    assert "eval.task=…" in refusal("eval=lm_eval", "lane=eval")
    assert load("eval=lm_eval", "lane=eval", "eval.task=gsm8k").eval.kind == "lm_eval"
    assert "eval=lm_eval runs in lane=eval" in refusal("eval=lm_eval", "lane=L5", "eval.task=gsm8k")


def test_a_draft_needs_both_its_checkpoints_and_excludes_the_models_own_layers() -> None:
    message = refusal("model=draftmodel")
    assert all(f"  {key}=…" in message for key in ("model.draft_path", "checkpoint.draft_path"))
    drafts = ("model=draftmodel", *USER[1:], "model.draft_path=/c", "checkpoint.draft_path=/d")
    assert load(*drafts).model.draft_tokens == 2
    assert "exclude each other" in refusal(*drafts, "transfer.mtp=true")
    assert "vst sets this itself" in refusal(*drafts, "server.args=['--speculative-config={}']")


def test_lane_eval_looks_at_a_alone() -> None:
    assert load("lane=eval", "model=local", "model.path=/a").checkpoint.path == ""


def test_faults_belong_to_a_scripted_server_and_must_be_known() -> None:
    assert "set server=scripted" in refusal(*USER, 'server.faults=[\'{"kind": "late"}\']')
    assert "needs a kind" in refusal(*USER, "server=scripted", 'server.faults=[\'{"kind": "rusty"}\']')
    assert load(*USER, "server=scripted", 'server.faults=[\'{"kind": "late"}\']').server.scripted


@pytest.mark.parametrize("override", ["lane.seeds=0", "lane.parallel=0", "lane.row_timeout_s=0"])
def test_a_self_test_that_would_run_nothing_is_refused(override: str) -> None:
    assert override.partition("=")[0] in refusal("lane=selftest", override)


def test_the_self_test_needs_no_checkpoints() -> None:
    assert load("lane=selftest", "model=local").lane.rows == "all"


@pytest.mark.parametrize("key", ["model.path", "checkpoint.path", "oracle.reference", "provenance.sign"])
def test_an_empty_name_is_a_mistake_and_not_the_same_as_none(key: str) -> None:
    """``model.path="$A"`` with A unset made a checkpoint A of its own, and passed."""
    assert refusal(*USER, f"{key}=''") == f"{key} is empty: give it a value, or leave it out"
