"""Lane L4: every pause mode with work in flight, sleep levels and wake orders, and a whole chain around an update."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vst.errors import VerificationError, VstError
from vst.lanes.asking import CLAIMS
from vst.lanes.chain import Interpreter, StepFailed, look
from vst.lanes.lifecycle_checks import FILE, FORMAT, ORDERS, PAUSES, REPEATED, REPEATED_ASLEEP, LaneJudge, Settings
from vst.lanes.memory import MemoryWatch, watch
from vst.lanes.pauses import ROUNDS, run_pause
from vst.lanes.same_server import same_check
from vst.lanes.session import Session
from vst.lanes.sleeping import Refusal, measure_noise, serve, sleep_level_1, sleep_level_2, weights_bytes
from vst.lanes.streams import Marks, catch, streams
from vst.lanes.traffic import learn_answers
from vst.lanes.transaction import TransactionFailed, completed_check, outcome_of
from vst.oracle.record import Record
from vst.oracle.reference import Reference
from vst.provenance.encoding import to_bytes
from vst.server.lifecycle import NotSeen
from vst.server.plan import Step, parse_all
from vst.verdict import LaneVerdict, Outcome


class Unequal(VerificationError):
    """The server answers otherwise than what it should hold; what follows would prove nothing."""


class Undecided(VerificationError):
    """Nothing can be judged by what was seen; nothing was found to be wrong either."""


@dataclass
class Found:
    """What the lane has seen: chains and answers by name, what was refused, and where it ended early."""

    chains: dict[str, Interpreter] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
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
        if _denied(error):
            lane.found.looking_at = "sleep.state"
    session.run.write(FILE, lane.to_json())
    judge = LaneJudge(lane.to_json(), settings(session), lambda name: _read(session, name))
    cause = lane.found.broken.__cause__ if lane.found.broken else None
    sent = [one for chain in lane.found.chains.values() for one in chain.sent]
    completed = completed_check(sent, cause if isinstance(cause, TransactionFailed) else None)
    return LaneVerdict("L4", (*judge.checks(), completed, same_check(session)))


def _denied(error: VstError) -> bool:
    """Whether a sleep or a wake was answered, and the flags or the gauge deny it."""
    moved = isinstance(error, StepFailed) and error.step.verb in ("sleep", "wake")
    return moved and isinstance(error.__cause__, NotSeen)


def settings(session: Session) -> Settings:
    """What the configuration of this run declares."""
    conf, capabilities = session.conf, session.conf.server.capabilities
    return Settings(
        settle_s=conf.load.settle_s,
        admission=dict(vars(conf.lifecycle.admission)),
        sleep=capabilities.sleep,
        sleep_reason=capabilities.sleep_reason,
        chain=parse_all(conf.lifecycle.chain),
        floor=session.floor,
    )


def _read(session: Session, name: str) -> bytes | None:
    path = session.run / name
    return path.read_bytes() if path.is_file() else None


class Lane:
    """The acts of L4 in their order; ``looking_at`` names the check that an act is about."""

    def __init__(self, session: Session, records: Mapping[str, Record]) -> None:
        self.session = session
        self.records = records
        self.found = Found()
        self.settings = settings(session)
        self.home = session.need("lifecycle").holds
        self.away = next(role for role in CLAIMS if role != self.home)

    def run(self) -> None:
        """All acts; VstError at the first that fails, with the server tainted or its content in doubt."""
        self._act("pause.keep", self._pauses)
        if self.settings.sleep != "none":
            self._act("sleep.memory", self._noise)
            self._act("wake.orders", self._level_1)
            self._act("wake.level2_needs_push", self._level_2)
        else:
            self._act("lifecycle.order", self._go_away)
        if self.settings.chain_is_possible:
            self._act("lifecycle.order", self._order)
        self._act("lifecycle.idempotent", self._idempotent)
        self._act("lifecycle.idempotent", self._go_home)

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
            learn_answers(self.session, claim, f"known-{claim}")
        except VerificationError as error:
            raise Undecided(str(error)) from error

    def _pauses(self) -> None:
        self._learn(self.home)
        chain = self.chain("pauses")
        for name, step in PAUSES.items():
            self.found.looking_at = f"pause.{step.args[0]}"
            run_pause(self.session, chain, name, CLAIMS[self.home])
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
        return [Step("push", (self.home,)) if step == Step("push") else step for step in self.settings.chain]

    def _order(self) -> None:
        session, chain, conf, steps = self.session, self.chain("order"), self.session.conf.load, self._steps()
        chain.check(steps)
        session.progress.say(f"the chain {', '.join(map(str, steps))}, with streams in flight")
        with streams(session, "order", conf.concurrency, ROUNDS * conf.concurrency) as load:
            load.mark("holds", claim=CLAIMS[self.away])
            catch(load, conf.concurrency, conf.output_tokens, conf.request_s)
            chain.watch = Marks(session, load)
            chain.run(steps)
            load.stop(conf.drain_s)
        chain.watch = None
        self.answer("order")

    def _idempotent(self) -> None:
        chain = self.chain("idempotent")
        self.session.progress.say("every move twice")
        for move in REPEATED:
            self._twice(chain, move)
        if self.settings.sleep != "none":
            self._twice(chain, REPEATED_ASLEEP[0])
            chain.make(Step("wake"))
            serve(chain)
            self._twice(chain, REPEATED_ASLEEP[1])
        self.answer("idempotent")

    def _twice(self, chain: Interpreter, move: str) -> None:
        for step in parse_all([move, move]):
            chain.make(step)

    def to_json(self) -> dict[str, Any]:
        """The content of ``lifecycle-found.json``."""
        found = self.found
        return dict(_plain({
            "format": FORMAT,
            "chains": list(found.chains),
            "answers": found.answers,
            "asleep_refused": [one.to_json() for one in found.asleep_refused],
            "needs_push": [one.to_json() for one in found.needs_push],
            "memory": found.watch.to_json(weights_bytes(self.session)) if found.watch else None,
            "ends_at": CLAIMS[self.home],
            "broken": _broken(found),
        }))  # fmt: skip


def _plain(content: Any) -> Any:
    """As it is read back from the file: what is judged is what was written."""
    return json.loads(to_bytes(content))


def _broken(found: Found) -> dict[str, str] | None:
    error = found.broken
    if error is None:
        return None
    return {"check": found.looking_at, "outcome": how_it_ended(error).value, "reason": str(error)}


def how_it_ended(error: VstError) -> Outcome:
    """The outcome of the check that an act was about when it ended with this error."""
    if isinstance(error, Undecided):
        return Outcome.INCONCLUSIVE
    return error.outcome if isinstance(error, (StepFailed, TransactionFailed)) else outcome_of(error)
