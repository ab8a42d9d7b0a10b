"""Cycles under load: A → B → A, N times, each change made while requests go on, each content judged when they are done.

The load is beside every change, and drained before the record that judges the content is taken: records are compared
under the conditions of the reference, one request at a time. All arrivals are written to ``endurance.json``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from vst.errors import TransportError
from vst.lanes import traffic
from vst.lanes.asking import take_each
from vst.lanes.drafts import push_with_draft
from vst.lanes.endurance.arrival import Arrival
from vst.lanes.endurance.checks import LEARNING
from vst.lanes.endurance.memory import Memory
from vst.lanes.endurance.phases import by_name
from vst.lanes.seats import arrived
from vst.lanes.session import Session
from vst.lanes.transaction import CLAIMS, Push
from vst.load.expected import Expected
from vst.load.generator import Load
from vst.load.judge import LoadReport, judge
from vst.oracle.record import Record
from vst.server.seats import seat_name
from vst.transfer.plan import Sent

POLL_S = 0.02
OTHER = {"checkpoint": "model", "model": "checkpoint"}


@dataclass
class Cycles:
    """What the cycles have seen so far; ``states`` are the records and ``answers`` the load's answers of A and of B."""

    session: Session
    states: Mapping[str, Record]
    memory: Memory
    answers: dict[str, Expected] = field(default_factory=dict)
    arrivals: list[Arrival] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)

    def learn(self) -> bool:
        """Bring A, then B, then A again, and learn what a load is answered by each; False when a content is wrong."""
        return all(self._reach(role) for role in LEARNING)

    def _reach(self, role: str) -> bool:
        claim = CLAIMS[role]
        learn = claim not in self.answers
        self.session.progress.say(f"endurance: to {claim}" + (", learning what a load is answered" if learn else ""))
        self.arrivals.append(self._arrive(0, role, f"endurance-learn-{len(self.arrivals) + 1}", []))
        if self.arrivals[-1].good and learn:
            self.answers[claim] = traffic.learn_answers(self.session, claim, f"endurance-{claim.lower()}")
        return self.arrivals[-1].good

    def run(self) -> None:
        """All cycles, up to the first whose content is not what was pushed."""
        wanted = self.session.conf.endurance.cycles
        for cycle in range(1, wanted + 1):
            for role in ("checkpoint", "model"):
                self.session.progress.say(f"cycle {cycle} of {wanted}: to {CLAIMS[role]} under load")
                self._under_load(cycle, role)
                if not self.arrivals[-1].good:
                    return

    def _under_load(self, cycle: int, role: str) -> None:
        name = f"endurance-{cycle}-{role}"
        with ExitStack() as stack:
            loads = [
                stack.enter_context(traffic.make_load(self.session, seat_name(name, number), seat=seat))
                for number, seat in enumerate(self.session.seats)
            ]
            for load in loads:
                load.mark("holds", claim=CLAIMS[OTHER[role]])
            self.arrivals.append(self._arrive(cycle, role, name, loads))

    def _arrive(self, cycle: int, role: str, name: str, loads: list[Load]) -> Arrival:
        """Change the content beside the loads, drain them, and judge both."""
        phases = self._change(role, loads)
        for load in loads:
            load.stop(self.session.conf.load.drain_s)
        seats = self._compare(role, name)
        return Arrival(cycle, role, name, seats, self._judged(name, loads), phases, self.memory.used())

    def _change(self, role: str, loads: list[Load]) -> dict[str, float]:
        """Push when the old content was seen by every load, and wait until the new one was; the phases' seconds."""
        session = self.session
        self._wait_for_answers(loads)
        session.loads = loads
        number = session.transactions + 1
        self.sent += push_with_draft(session, Push(role, purpose="endurance"))
        phases = by_name(session.run.evidence.timeline.phases, number)
        self._wait_for_answers(loads)
        session.loads = []
        return phases

    def _compare(self, role: str, name: str) -> tuple[dict[str, Any], ...]:
        session, states = self.session, self.states
        records = take_each(session, CLAIMS[role], name)
        seats = arrived(session, records, name, states[CLAIMS[role]], states[CLAIMS[OTHER[role]]])
        if all(one["equal"] for one in seats):
            session.need("fleet").each(lambda lifecycle: lifecycle.verify())
        return tuple(seats)

    def _judged(self, name: str, loads: list[Load]) -> tuple[LoadReport, ...]:
        session = self.session
        names = [seat_name(name, number) for number in range(len(loads))]
        policy = traffic.policy(session)
        return tuple(judge(traffic.read(session, one), self.answers, policy) for one in names)

    def _wait_for_answers(self, loads: list[Load]) -> None:
        """Until each load was answered ``endurance.answers`` times more than now."""
        conf, begun = self.session.conf, time.monotonic()
        wanted = [load.sent - load.open + conf.endurance.answers for load in loads]
        while any(load.sent - load.open < count for load, count in zip(loads, wanted, strict=True)):
            for load in loads:
                load.check()
            if time.monotonic() - begun > conf.load.request_s:
                wait = f"{conf.load.request_s:g} s (load.request_s)"
                raise TransportError(f"the load was not given {conf.endurance.answers} answers within {wait}")
            time.sleep(POLL_S)
