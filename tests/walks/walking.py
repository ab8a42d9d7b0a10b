"""Random walks: legal steps drawn one after the other, each made by the product's interpreter, then everything checked.

A walk begins with a server that serves A and ends with the first thing that does not hold. Its steps are those of a
plan file, so that a walk that failed can be replayed by ``lane.plan=FILE``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from vst.errors import VstError
from vst.lanes.cache import CacheProbe
from vst.lanes.chain import Interpreter
from vst.lanes.session import Session
from vst.oracle.record import Record
from vst.server.plan import Step, parse, parse_all, plan_json
from vst.server.states import IllegalMove, Situation, ends

S = Situation
STEPS = parse_all((
    "ask", "resume", "pause(abort)", "pause(wait)", "pause(keep)", "pause(keep, keep_cache)", "reset", "reset(running)",
    "push(checkpoint)", "push(model)", "wake", "wake(weights)", "wake(kv_cache)", "sleep(1)", "sleep(2)",
    "sleep(1, keep)", "sleep(2, wait)", "abort",
))  # fmt: skip
"""Every step that a walk may make, the plainest first: a failing walk shrinks towards those."""

HOME = {
    S.PAUSED: "resume",
    S.PAUSED_LOST: "push(model)",
    S.ASLEEP_1: "wake",
    S.ASLEEP_1_WEIGHTS: "wake(weights)",
    S.ASLEEP_1_CACHE: "wake(kv_cache)",
    S.ASLEEP_2: "wake(weights)",
    S.ASLEEP_2_LOST: "push(model)",
    S.ASLEEP_2_CACHE: "wake(kv_cache)",
    S.AWAKE_1_WEIGHTS: "wake(weights)",
    S.AWAKE_1_CACHE: "wake(kv_cache)",
    S.AWAKE_2_LOST: "pause(abort)",
}
"""The step that leads from each situation nearer to serving."""

EMPTIES = ("push", "reset", "sleep")
"""The moves after which no token may be cached."""


class Violation(AssertionError):
    """Something that must hold after every step does not."""


@dataclass
class Walker:
    """One server on one walk; ``expected`` are the cold records of both roles, ``exchanges`` counts what was sent.

    ``reached`` is where any version's server may be by now: a step must be legal in all of it, or the plan of the walk
    could be refused where it is replayed.
    """

    session: Session
    expected: Mapping[str, Record]
    name: str
    exchanges: Callable[[], int]
    made: list[Step] = field(default_factory=list)
    reached: set[Situation] = field(default_factory=lambda: {S.SERVING})
    cold: bool = False
    warmed: int = 0

    def __post_init__(self) -> None:
        self.chain = Interpreter(self.session, self.name, self.expected)
        self.cache = CacheProbe(self.session, self.session.seats[0])

    @property
    def situation(self) -> Situation:
        return self.chain.lifecycle.situation

    def legal(self) -> list[Step]:
        return [step for step in STEPS if all(_legal(step, situation) for situation in self.reached)]

    def verbs(self) -> list[str]:
        """What can be done here; what looks or leads elsewhere comes more often, or a walk would mostly stand still."""
        legal = self.legal()
        moving = [step.verb for step in legal if self.situation not in ends(step.move, self.situation)]
        often = {"ask", "push", *moving}
        found = list(dict.fromkeys(step.verb for step in legal))
        return [verb for verb in found for _ in range(4 if verb in often else 1)]

    def make(self, step: Step) -> None:
        """Make a step, then look at everything that must hold after it; Violation says what does not."""
        self.made.append(step)
        self.reached = {after for situation in self.reached for after in ends(step.move, situation)}
        try:
            if step.verb == "ask":
                self._look_at_the_cache()
            self.chain.make(step)
        except VstError as error:
            raise Violation(f"after {self.texts()}: {error}") from error
        self.cold = self.cold or step.verb in EMPTIES
        if step.verb == "ask":
            self.cache.seed()

    def _look_at_the_cache(self) -> None:
        """Whether the first answer since the caches were emptied used nothing from before."""
        found = self.cache.ask_again()["after"]
        if self.cold and found != 0:
            raise Violation(f"after {self.texts()}: the first answer used {found} cached tokens of before, expected 0")
        self.warmed += bool(found)
        self.cold = False

    def refuses_what_is_illegal(self) -> None:
        """One step that is not legal here, another each time, is refused before anything is sent."""
        illegal = [step for step in STEPS if not _legal(step, self.situation)]
        if not illegal:
            return
        step, before = illegal[len(self.made) % len(illegal)], self.exchanges()
        try:
            self.chain.make(step)
        except IllegalMove:
            pass
        else:
            raise Violation(f"after {self.texts()}: {step} is illegal in {self.situation.value} and was made")
        if self.exchanges() != before:
            raise Violation(f"after {self.texts()}: {step} was refused after something had been sent")

    def has_its_label(self) -> None:
        """The server's label is the one that went with the last push."""
        answer = self.session.need("server").control.get("/weight_info")
        found = answer.get("weight_version") if isinstance(answer, dict) else None
        if found != self.session.label:
            raise Violation(f"after {self.texts()}: the label is {found}, set was {self.session.label}")

    def go_home(self) -> None:
        """Lead the server back to serving A with empty caches, whatever the walk left it in."""
        home = Interpreter(self.session, f"{self.name}-home", self.expected)
        if self.chain.lifecycle.state == "tainted":
            self.chain.lifecycle.begin_recovery()
        while self.situation is not S.SERVING:
            home.make(parse(HOME[self.situation]))
        if self.chain.lifecycle.holds != "model" or not self.chain.lifecycle.verified:
            for text in ("pause(abort)", "push(model)", "resume"):
                home.make(parse(text))
        home.make(parse("reset"))
        home.make(parse("ask"))

    def texts(self) -> list[str]:
        return [str(step) for step in self.made]


def _legal(step: Step, situation: Situation) -> bool:
    try:
        return bool(ends(step.move, situation))
    except IllegalMove:
        return False


@dataclass
class Campaign:
    """Many walks: ``open`` gives a walker at home and ``close`` takes it back; the shortest failing walk stays in
    ``plan``."""

    open: Callable[[int], Walker]
    close: Callable[[Walker], None]
    plan: Path
    tally: Counter[str] = field(default_factory=Counter)
    walks: int = 0

    @property
    def steps(self) -> int:
        return sum(self.tally.values())

    def run(self, walks: int, steps: int) -> None:
        """Walk; raises Violation with the shortest walk that was found, which is in ``plan`` then."""
        campaign = self

        class Walk(RuleBasedStateMachine):
            def __init__(self) -> None:
                super().__init__()
                campaign.walks += 1
                self.walker = campaign.open(campaign.walks)

            @rule(data=st.data())
            def step(self, data: Any) -> None:
                verb = data.draw(st.sampled_from(self.walker.verbs()), label=f"in {self.walker.situation.value}")
                steps = [step for step in self.walker.legal() if step.verb == verb]
                campaign.make(self.walker, data.draw(st.sampled_from(steps)))

            @invariant()
            def what_is_illegal_is_refused(self) -> None:
                campaign.keep(self.walker, self.walker.refuses_what_is_illegal)

            @invariant()
            def the_label_is_the_last_that_was_set(self) -> None:
                campaign.keep(self.walker, self.walker.has_its_label)

            def teardown(self) -> None:
                campaign.close(self.walker)

        chosen = settings(
            max_examples=walks,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=True,
            print_blob=False,
            report_multiple_bugs=False,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(Walk, settings=chosen)  # type: ignore[no-untyped-call]

    def make(self, walker: Walker, step: Step) -> None:
        self.tally[f"{step} in {walker.situation.value}"] += 1
        self.keep(walker, lambda: walker.make(step))

    def keep(self, walker: Walker, act: Callable[[], None]) -> None:
        """Do something that may be a violation; the plan of the walk is written then. The last is the shortest."""
        try:
            act()
        except Violation as violation:
            self.plan.write_text(json.dumps(plan_json(walker.made, {"violation": str(violation)}), indent=2))
            raise
