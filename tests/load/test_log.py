from __future__ import annotations

import json

import pytest

from load.stories import WORK, A, seen
from load.talker import Memory
from vst.errors import VerificationError
from vst.load.generator import FORMAT
from vst.load.log import read_log
from vst.load.seen import Seen


def test_answer_comes_back_from_its_line_as_it_was() -> None:
    for one in (
        seen(A),
        seen((), status=None, error="ConnectError", closed=False, finish=None, completion_tokens=None),
    ):
        assert Seen.from_json(json.loads(json.dumps(one.to_json()))) == one


@pytest.mark.parametrize(
    "data", [b"", b"{}\n", b"[]\n", b'{"kind": "load", "format": "x"}\n', b'{"kind": "load"', b"\xff\n"]
)
def test_what_is_no_log_of_a_load_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(VerificationError, match="log of a load"):
        read_log(data)


def test_log_whose_answer_is_damaged_is_not_read_without_it() -> None:
    journal = Memory()
    journal.append("load", format=FORMAT, at=0.0, workload=WORK.to_json())
    journal.append("answer", **{**seen(A).to_json(), "tokens": None})
    with pytest.raises(VerificationError, match="damaged"):
        read_log(journal.data())
