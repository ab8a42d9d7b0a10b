"""More probes for experts: a control that was not noticed may only mean that no prompt was routed to the expert.

vLLM's own reports of routed experts need its second model runner, which a CPU does not have, so the search is by what
is asked: further probe sets are put to the server while it holds the control, and to B, which was seen to equal its
cold reference. An expert whose control is noticed by one of the sets is observable.
"""

from __future__ import annotations

from dataclasses import dataclass

from vst.lanes.asking import take
from vst.lanes.drafts import push_with_draft
from vst.lanes.session import Session
from vst.lanes.transaction import Push
from vst.oracle.compare import Difference, difference
from vst.oracle.probes import ProbeSet, make_probes
from vst.oracle.record import Record
from vst.transfer.plan import Sent

PREFIX = "expert_"
KEEPS_B = "checkpoint"
"""In the name of B's own answers to further probes."""

BEFORE = "control-search"
"""The record of B before it is asked further probes, which must equal its cold reference."""


@dataclass(frozen=True)
class Noticed:
    """The number of the probe set that noticed a control, from 1, and by how much."""

    number: int
    apart: Difference


def further(session: Session) -> list[ProbeSet]:
    """``oracle.search`` further probe sets, as long as the first and with other tokens."""
    conf, first = session.conf.oracle, session.need("probes")
    vocab = max(token for prompt in first.prompts for token in prompt) + 1
    longest = max(map(len, first.prompts))
    shortest, outputs = min(conf.min_tokens, longest), first.output_tokens
    return [
        make_probes(vocab, conf.probes, shortest, longest, outputs, first.top_k, first.seed + number)
        for number in range(1, conf.search + 1)
    ]


def file_of(what: str, number: int) -> str:
    """The name of a record of a further set, as ``take`` wants it."""
    return f"{what}-more-{number}"


def ask(session: Session, what: str) -> list[Record]:
    """The answers to all further sets in the state that the server is in."""
    first, records = session.need("probes"), []
    try:
        for number, probes in enumerate(further(session), 1):
            session.probes = probes
            records.append(take(session, session.need("seat"), what, file_of(what, number)))
    finally:
        session.probes = first
    return records


def search(
    session: Session, cold_b: Record, unseen: dict[str, list[Record]], sent: list[Sent]
) -> dict[str, Noticed]:
    """Which of the ``unseen`` experts a further set notices; ``unseen`` are the answers while each kept A's values.

    Empty where B does not equal its cold reference any more: then nothing can be compared with it.
    """
    sent += push_with_draft(session, Push("checkpoint", purpose="control.search"))
    floor = session.need("floor")
    if not difference(take(session, session.need("seat"), "B", BEFORE), cold_b, floor).equal:
        return {}
    whole = ask(session, KEEPS_B)
    return {name: found for name, records in unseen.items() if (found := _noticed(records, whole, floor))}


def _noticed(records: list[Record], whole: list[Record], floor: float) -> Noticed | None:
    for number, (record, expected) in enumerate(zip(records, whole, strict=True), 1):
        apart = difference(record, expected, floor)
        if apart.noticed:
            return Noticed(number, apart)
    return None
