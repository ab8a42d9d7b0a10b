"""Lane L4: every pause mode with work in flight, sleep levels and wake orders, and a whole chain around an update."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vst.errors import VerificationError, VstError
from vst.lanes import pause_checks, sleep_checks
from vst.lanes.asking import CLAIMS
from vst.lanes.chain import Interpreter, StepFailed, look
from vst.lanes.memory import MemoryWatch, memory_check, watch
from vst.lanes.pauses import PAUSES, REQUESTS, run_pauses
from vst.lanes.servers import same_check
from vst.lanes.session import Session
from vst.lanes.sleeping import (
    ORDERS,
    STILL_TOO_EARLY,
    TOO_EARLY,
    Refusal,
    measure_noise,
    serve,
    sleep_level_1,
    sleep_level_2,
    weights_bytes,
)
from vst.lanes.streams import Marks, streams, warm
from vst.lanes.traffic import learn_answers, log_file, read
from vst.lanes.transaction import TransactionFailed, completed_check, outcome_of
from vst.load.expected import Expected
from vst.load.judge import judge, load_check
from vst.oracle.record import Record
from vst.oracle.reference import Reference
from vst.server.plan import Step, parse_all
from vst.verdict import Check, LaneVerdict, Outcome

IDS = (
    "pause.keep",
    "pause.abort",
    "pause.wait",
    "pause.admission",
    "sleep.state",
    "sleep.memory",
    "wake.orders",
    "wake.level2_needs_push",
    "update.asleep_refused",
    "lifecycle.order",
    "lifecycle.idempotent",
)
SLEEPS = ("sleep.state", "sleep.memory", "wake.orders", "wake.level2_needs_push", "update.asleep_refused")
REPEATED = ("pause(keep)", "reset", "resume")
REPEATED_ASLEEP = ("sleep(1)", "wake")


class Unequal(VerificationError):
    """The server answers otherwise than what it should hold; what follows would prove nothing."""


class Undecided(VerificationError):
    """Nothing can be judged by what was seen; nothing was found to be wrong either."""


@dataclass
class Found:
    """What the lane has seen: chains and loads by name, answers by name, and where it ended early."""

    chains: dict[str, Interpreter] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    expected: dict[str, Expected] = field(default_factory=dict)
    asleep_refused: list[Refusal] = field(default_factory=list)
    needs_push: list[Refusal] = field(default_factory=list)
    watch: MemoryWatch | None = None
    looking_at: str = ""
    broken: VstError | None = None


def run_lifecycle(session: Session, reference: Reference) -> LaneVerdict:
    """Judge the moves around an update, from a server that serves the content that L3 left on it, and end there."""
    lane = Lane(session, {"model": session.records[0], "checkpoint": reference.record})
    try:
        lane.run()
    except VstError as error:
        lane.found.broken = error
    return LaneVerdict("L4", (*lane.checks(), lane.completed(), same_check(session)))


class Lane:
    """The acts of L4 in their order; ``looking_at`` names the check that an act is about."""

    def __init__(self, session: Session, records: Mapping[str, Record]) -> None:
        self.session = session
        self.records = records
        self.found = Found()
        self.sleep = session.conf.server.capabilities.sleep
        self.home = session.need("lifecycle").holds
        self.away = next(role for role in CLAIMS if role != self.home)

    def run(self) -> None:
        """All acts; VstError at the first that fails, with the server tainted or its content in doubt."""
        self._act("pause.keep", self._pauses)
        if self.sleep != "none":
            self._act("sleep.memory", self._noise)
            self._act("wake.orders", self._level_1)
            self._act("wake.level2_needs_push", self._level_2)
        else:
            self._act("lifecycle.order", self._go_away)
        if self._chain_is_possible():
            self._act("lifecycle.order", self._order)
        self._act("lifecycle.idempotent", self._idempotent)
        self._act("lifecycle.order", self._go_home)

    def _act(self, id: str, act: Callable[[], None]) -> None:
        self.found.looking_at = id
        act()

    def chain(self, name: str) -> Interpreter:
        self.found.chains[name] = Interpreter(self.session, name, self.records)
        return self.found.chains[name]

    def answer(self, name: str) -> None:
        """Take a record, compare it with what the server should hold, keep the result; Unequal when it differs."""
        self.session.need("lifecycle").ask()
        result = look(self.session, self.records, f"lifecycle-{name}")
        self.found.answers[name] = result
        if not result["equal"]:
            raise Unequal(f"{result['looks_like']}; see {result['record']}")

    def _learn(self, role: str) -> None:
        claim = CLAIMS[role]
        self.session.progress.say(f"learning what {claim} answers under load")
        try:
            self.found.expected[claim] = learn_answers(self.session, claim, f"known-{claim}")
        except VerificationError as error:
            raise Undecided(str(error)) from error

    def _pauses(self) -> None:
        self._learn(self.home)
        run_pauses(self.session, self.chain("pauses"), CLAIMS[self.home])
        self.answer("pauses")

    def _noise(self) -> None:
        self.found.watch = watch(self.session)
        measure_noise(self.session, self.chain("noise"), self.found.watch)

    def _level_1(self) -> None:
        for order in ORDERS:
            chain = self.chain(f"sleep-1-{order}")
            refusal = sleep_level_1(self.session, self._watch(), order, chain, self.answer)
            self.found.asleep_refused.append(refusal)

    def _level_2(self) -> None:
        chain = self.chain("sleep-2")
        self.found.needs_push = sleep_level_2(self.session, self._watch(), self.away, chain, self.answer)
        self._learn(self.away)

    def _watch(self) -> MemoryWatch:
        if self.found.watch is None:
            raise VerificationError("the memory is not watched yet")
        return self.found.watch

    def _go_away(self) -> None:
        self._carry("away", self.away)
        self._learn(self.away)

    def _go_home(self) -> None:
        if self.session.need("lifecycle").holds != self.home:
            self._carry("home", self.home)

    def _carry(self, name: str, role: str) -> None:
        chain = self.chain(name)
        chain.run([Step("pause", ("keep",)), Step("reset"), Step("push", (role,)), Step("reset"), Step("resume")])
        self.answer(name)

    def _steps(self) -> list[Step]:
        """The configured chain; a push that names no role brings the content home."""
        steps = parse_all(self.session.conf.lifecycle.chain)
        return [Step("push", (self.home,)) if step == Step("push") else step for step in steps]

    def _chain_is_possible(self) -> bool:
        return self.sleep != "none" or all(step.verb not in ("sleep", "wake") for step in self._steps())

    def _order(self) -> None:
        session, chain, conf = self.session, self.chain("order"), self.session.conf.load
        steps = self._steps()
        chain.check(steps)
        session.progress.say(f"the chain {', '.join(map(str, steps))}, with streams in flight")
        with streams(session, "order", conf.concurrency, REQUESTS) as load:
            load.mark("holds", claim=CLAIMS[self.away])
            warm(load, conf.concurrency, conf.request_s)
            chain.watch = Marks(session, load)
            chain.run(steps)
            warm(load, conf.concurrency, conf.request_s)
            load.stop(conf.drain_s)
        chain.watch = None
        self.answer("order")

    def _idempotent(self) -> None:
        chain = self.chain("idempotent")
        self.session.progress.say("every move twice")
        for move in REPEATED:
            self._twice(chain, move)
        if self.sleep != "none":
            self._twice(chain, "sleep(1)")
            chain.make(Step("wake"))
            serve(chain)
            self._twice(chain, "wake")
        self.answer("idempotent")

    def _twice(self, chain: Interpreter, move: str) -> None:
        for step in parse_all([move, move]):
            chain.make(step)

    def completed(self) -> Check:
        """``transfer.completed`` over all pushes of the lane."""
        cause = self.found.broken.__cause__ if self.found.broken else None
        sent = [one for chain in self.found.chains.values() for one in chain.sent]
        return completed_check(sent, cause if isinstance(cause, TransactionFailed) else None)

    def checks(self) -> list[Check]:
        """The lane's checks; what was not reached names the one that did not hold."""
        judged = {**self._pause_checks(), **self._sleep_checks(), **self._chain_checks()}
        return [self._blamed(id, judged.get(id)) for id in IDS]

    def _blamed(self, id: str, check: Check | None) -> Check:
        found = self.found
        if found.broken is not None and found.looking_at == id and (check is None or check.outcome is not Outcome.FAIL):
            observed = check.observed if check else None
            return Check(id, how_it_ended(found.broken), observed, "every step held", reason=str(found.broken))
        if check is not None:
            return check
        reason = f"not reached: {found.looking_at} did not hold"
        return Check(id, Outcome.INCONCLUSIVE, None, "looked at", reason=reason)

    def _admission(self) -> dict[str, str]:
        return dict(vars(self.session.conf.lifecycle.admission))

    def _pause_checks(self) -> dict[str, Check]:
        """Judged only when all pauses were made: otherwise the step that failed is the finding."""
        settle, declared = self.session.conf.load.settle_s, self._admission()
        if "pauses" not in self.found.answers:
            return {}
        logs = {name: read(self.session, f"pause-{name}") for name in PAUSES}
        kept = {name: log for name, log in logs.items() if name.startswith("keep")}
        policy, expected = pause_checks.policy_of, self.found.expected
        return {
            "pause.keep": pause_checks.keep_check(kept, expected, policy(declared["keep"], False, settle)),
            "pause.abort": pause_checks.abort_check(logs["abort"], expected, policy(declared["abort"], True, settle)),
            "pause.wait": pause_checks.wait_check(logs["wait"], expected, policy(declared["wait"], False, settle)),
            "pause.admission": pause_checks.admission_check(self._knocks(), declared, self._wanted_knocks()),
        }

    def _wanted_knocks(self) -> int:
        return len(PAUSES) + (0 if self.sleep == "none" else len(ORDERS) + 1)

    def _knocks(self) -> dict[str, dict[str, Any]]:
        """What became of each request that knocked, where its answer can be judged."""
        names = [*PAUSES, *(f"asleep-1-{order}" for order in ORDERS), "asleep-2"]
        settle, expected = self.session.conf.load.settle_s, self.found.expected
        there = [name for name in names if (self.session.run / log_file(f"knock-{name}")).exists()]
        logs = {name: read(self.session, f"knock-{name}") for name in there}
        known = {name: log for name, log in logs.items() if log.sent and claims(log) <= set(expected)}
        return {name: pause_checks.knock(log, expected, settle) for name, log in known.items()}

    def _sleep_checks(self) -> dict[str, Check]:
        session, found, capabilities = self.session, self.found, self.session.conf.server.capabilities
        if self.sleep == "none":
            why = f"declared by server.capabilities.sleep=none: {capabilities.sleep_reason or 'no reason given'}"
            return {id: Check(id, Outcome.NOT_APPLICABLE, None, "a sleep", reason=why) for id in SLEEPS}
        if found.watch is None:
            return {}
        source = found.watch.source.name if found.watch.source else None
        chains = {name: self._stored(name) for name in found.chains if name.startswith("sleep-")}
        orders = {name: found.answers[name] for name in ORDERS if name in found.answers}
        early, asleep = [one.to_json() for one in found.needs_push], [one.to_json() for one in found.asleep_refused]
        return {
            "sleep.state": sleep_checks.state_check(chains, self._knocks()),
            "sleep.memory": memory_check(
                found.watch.naps, source, found.watch.why_not, weights_bytes(session), self.sleep,
                capabilities.sleep_reason,
            ),
            "wake.orders": sleep_checks.orders_check(orders, tuple(ORDERS), session.floor),
            "wake.level2_needs_push": sleep_checks.refusals_check(
                "wake.level2_needs_push", early, len(TOO_EARLY) + len(STILL_TOO_EARLY), "only a push leads on"
            ),
            "update.asleep_refused": sleep_checks.refusals_check(
                "update.asleep_refused", asleep, len(ORDERS), "no push into a sleeping server, and no start sent"
            ),
        }  # fmt: skip

    def _stored(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.session.run / self.found.chains[name].file).read_text()))

    def _chain_checks(self) -> dict[str, Check]:
        checks, floor = {}, self.session.floor
        if "order" in self.found.answers:
            checks["lifecycle.order"] = sleep_checks.order_check(
                self._stored("order"), self.found.answers["order"], self._order_load(), floor
            )
        elif not self._chain_is_possible():
            why = "declared by server.capabilities.sleep=none: the chain sleeps; lifecycle=keep does not"
            checks["lifecycle.order"] = Check("lifecycle.order", Outcome.NOT_APPLICABLE, None, "a chain", reason=why)
        if "idempotent" in self.found.answers:
            wanted = REPEATED + (() if self.sleep == "none" else REPEATED_ASLEEP)
            checks["lifecycle.idempotent"] = sleep_checks.idempotent_check(
                self._stored("idempotent"), wanted, self.found.answers["idempotent"], floor
            )
        return checks

    def _order_load(self) -> Check:
        aborts = any(step.verb in ("abort", "sleep") or step.args[:1] == ("abort",) for step in self._steps())
        policy = pause_checks.policy_of(self._admission()["asleep"], aborts, self.session.conf.load.settle_s)
        report = judge(read(self.session, "order"), self.found.expected, policy)
        return load_check("lifecycle.order", report, [CLAIMS[self.home]], log_file("order"))


def claims(log: Any) -> set[str]:
    """The states that the marks of a log speak of."""
    return {str(mark["claim"]) for mark in log.marks if "claim" in mark}


def how_it_ended(error: VstError) -> Outcome:
    """The outcome of the check that an act was about when it ended with this error."""
    if isinstance(error, Undecided):
        return Outcome.INCONCLUSIVE
    return error.outcome if isinstance(error, (StepFailed, TransactionFailed)) else outcome_of(error)
