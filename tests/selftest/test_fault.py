from __future__ import annotations

import json

import pytest

from vst.errors import ConfigError
from vst.selftest.fault import KINDS, Fault, fault_words, make, parse, to_json


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stale", "JSON object"),
        ("[]", "needs a kind"),
        ('{"kind": "rusty"}', "needs a kind"),
        ('{"kind": "stale", "status": 500}', "does not use status"),
        ('{"kind": "hang"}', "needs a phase"),
        ('{"kind": "hang", "phase": "lunch"}', "needs a phase"),
        ('{"kind": "cut", "phase": "finish", "bucket": 2}', "bucket belongs to phase broadcast"),
        ('{"kind": "cut", "phase": "finish", "when": "never"}', "before or after"),
    ],
)
def test_a_fault_that_would_do_nothing_is_refused(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse(text)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_comes_back_from_its_own_json(kind: str) -> None:
    fields = {"phase": "finish"} if "phase" in KINDS[kind] else {}
    fault = make(kind, **fields)
    assert parse(json.dumps(to_json(fault))) == fault


def test_first_and_last_bound_the_occurrences() -> None:
    fault = make("stale", first=2, last=3)
    assert [fault.due(number) for number in (1, 2, 3, 4)] == [False, True, True, False]


def test_a_fault_hits_by_name_and_by_family() -> None:
    assert make("stale", match=r"layers\.1\.").hits("model.layers.1.mlp.up_proj.weight")
    assert not make("stale", match=r"layers\.1\.").hits("model.layers.0.mlp.up_proj.weight")
    assert make("stale", family="norm").hits("model.norm.weight")
    assert not make("stale", family="norm").hits("lm_head.weight")
    assert make("stale").hits("lm_head.weight")


def test_a_server_of_several_is_given_its_own_faults_only() -> None:
    texts = ['{"kind": "late"}', '{"kind": "late", "instance": 2}']
    assert fault_words(texts, 1) == ["--fault", texts[0]]
    assert fault_words(texts, 2) == ["--fault", texts[0], "--fault", texts[1]]


def test_a_phase_may_be_a_route() -> None:
    assert Fault("hang", phase="/server_info").path == "/server_info"
    assert Fault("hang", phase="finish").path == "/finish_weight_update"
