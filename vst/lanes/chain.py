"""The interpreter of chains and plans: one step after the other, each refused or made, looked at, written down.

A step that the table of states does not allow is refused before anything is sent and changes nothing. Any other failure
taints the server and ends the chain: no later step is made, whatever it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vst.errors import VerificationError, VstError
from vst.lanes.asking import CLAIMS, take_each
from vst.lanes.drafts import push_with_draft
from vst.lanes.seats import arrived
from vst.lanes.sending import join
from vst.lanes.session import Session
from vst.lanes.transaction import Push, TransactionFailed, outcome_of, push_here
from vst.oracle.record import Record
from vst.server.lifecycle import Lifecycle
from vst.server.observe import Observation
from vst.server.plan import Step, outcomes
from vst.server.states import IllegalMove, Situation
from vst.transfer.plan import Sent
from vst.verdict import Outcome

FORMAT = "vst-chain/1"


class StepFailed(VstError):
    """A step of a chain failed and the server is tainted; ``outcome`` is how the check on it ends."""

    def __init__(self, message: str, step: Step, outcome: Outcome) -> None:
        super().__init__(message)
        self.step = step
        self.outcome = outcome


@dataclass(frozen=True)
class Done:
    """One step that was made: where it led from and to, what the server showed after it, and what came of it."""

    step: str
    before: str
    after: str
    seconds: float
    observed: Observation
    result: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "observed": self.observed.to_json(), "result": dict(self.result)}


@dataclass
class Interpreter:
    """Makes steps on all servers of the session at once; ``name`` distinguishes its files in the run directory.

    Of several servers it writes down what the first one showed; each must show what it should.

    ``expected`` holds the record that each role's content must equal, for the steps that ask. ``watch`` hears of each
    step, ``before`` it is made and ``after`` it was observed.
    """

    session: Session
    name: str
    expected: Mapping[str, Record] = field(default_factory=dict)
    done: list[Done] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    watch: Callable[[str, Step], None] | None = None
    failure: str | None = None

    @property
    def lifecycle(self) -> Lifecycle:
        found: Lifecycle = self.session.need("lifecycle")
        return found

    def each(self, move: Callable[[Lifecycle], Any]) -> None:
        """One move on every server."""
        self.session.need("fleet").each(move)

    def check(self, steps: Sequence[Step]) -> set[Situation]:
        """Judge all steps against the table from where the server is now; IllegalMove names the first illegal one."""
        return outcomes(steps, self.lifecycle.situation)

    def run(self, steps: Sequence[Step]) -> None:
        """Judge the whole, join the publisher if one step pushes, then make one step after the other."""
        self.check(steps)
        if any(step.verb == "push" for step in steps):
            join(self.session)
        for step in steps:
            self.make(step)

    def make(self, step: Step) -> Done:
        """Make one step and look. IllegalMove: refused, nothing was sent. StepFailed: the server is tainted."""
        before, begun = self.lifecycle.situation.value, time.monotonic()
        try:
            self.each(lambda one: one.may(step.move))
        except IllegalMove as error:
            self.refused.append(f"{step}: {error}")
            self.write()
            raise
        try:
            self._tell("before", step)
            result = VERBS[step.verb](self, step)
            observed = self.look()
            self._tell("after", step)
        except VstError as error:
            raise self._failed(step, error) from error
        seconds = round(time.monotonic() - begun, 6)
        self.done.append(Done(str(step), before, self.lifecycle.situation.value, seconds, observed, result))
        self.session.run.event("step", chain=self.name, number=len(self.done), **self.done[-1].to_json())
        self.write()
        return self.done[-1]

    def look(self) -> Observation:
        """What the first server shows; VerificationError when it, or another, is not where it should be."""
        seen: list[Observation] = []
        self.each(lambda one: seen.append(one.observe()))
        return seen[0] if len(seen) == 1 else self.lifecycle.observe()

    def _tell(self, when: str, step: Step) -> None:
        if self.watch is not None:
            self.watch(when, step)

    def _failed(self, step: Step, error: VstError) -> StepFailed:
        outcome = error.outcome if isinstance(error, TransactionFailed) else outcome_of(error)
        self.session.need("fleet").taint(str(error))
        self.failure = f"step {len(self.done) + 1}, {step}: {error}"
        self.write()
        return StepFailed(f"{self.failure}; no later step was made", step, outcome)

    def write(self) -> str:
        """Write ``chain-<name>.json`` with everything so far; returns its name."""
        content = {
            "format": FORMAT,
            "steps": [done.to_json() for done in self.done],
            "refused": self.refused,
            "failure": self.failure,
            "server": {"state": self.lifecycle.state, "holds": self.lifecycle.holds},
        }
        self.session.run.write(self.file, content)
        return self.file

    @property
    def file(self) -> str:
        return f"chain-{self.name}.json"


def _pause(chain: Interpreter, step: Step) -> dict[str, Any]:
    chain.each(lambda one: one.pause(step.args[0], clear_cache=False if "keep_cache" in step.args else None))
    return {}


def _abort(chain: Interpreter, step: Step) -> dict[str, Any]:
    chain.each(lambda one: one.abort())
    return {}


def _reset(chain: Interpreter, step: Step) -> dict[str, Any]:
    chain.each(lambda one: one.reset_caches(running="running" in step.args))
    return {"success": True}


def _sleep(chain: Interpreter, step: Step) -> dict[str, Any]:
    chain.each(lambda one: one.sleep(int(step.args[0]), *step.args[1:]))
    return {"asleep": list(chain.lifecycle.asleep)}


def _wake(chain: Interpreter, step: Step) -> dict[str, Any]:
    chain.each(lambda one: one.wake(step.args))
    return {"asleep": list(chain.lifecycle.asleep)}


def _push(chain: Interpreter, step: Step) -> dict[str, Any]:
    push = Push(step.args[0] if step.args else "checkpoint", purpose=f"chain.{chain.name}")
    file = f"weight-update-{chain.session.transactions + 1}.json"
    sent, *drafts = push_with_draft(chain.session, push, push_here)
    chain.sent += [sent, *drafts]
    return {"sent": sent.to_json(), "file": file}


def _resume(chain: Interpreter, step: Step) -> dict[str, Any]:
    chain.each(lambda one: one.resume())
    return {}


def _ask(chain: Interpreter, step: Step) -> dict[str, Any]:
    chain.each(lambda one: one.ask())
    return compare(chain.session, chain.expected, f"{chain.name}-{len(chain.done) + 1}")


VERBS: Mapping[str, Callable[[Interpreter, Step], dict[str, Any]]] = {
    "pause": _pause,
    "abort": _abort,
    "reset": _reset,
    "sleep": _sleep,
    "wake": _wake,
    "push": _push,
    "resume": _resume,
    "ask": _ask,
}


def compare(session: Session, expected: Mapping[str, Record], file: str) -> dict[str, Any]:
    """As ``look``; VerificationError when the record differs."""
    result = look(session, expected, file)
    if not result["equal"]:
        raise VerificationError(f"{result['looks_like']}; first {result['first']}; see {result['record']}")
    return result


def look(session: Session, expected: Mapping[str, Record], file: str) -> dict[str, Any]:
    """Take a record of every seat and compare it with that of what the servers should hold; equal, they are verified.

    The result is that of the first seat that differs, of the first of all where none does.
    """
    holds = session.need("lifecycle").holds
    if holds not in expected:
        raise VerificationError(f"there is no record to compare with: the server holds {holds}")
    other = next((one for role, one in expected.items() if role != holds), expected[holds])
    results = arrived(session, take_each(session, CLAIMS[holds], file), file, expected[holds], other)
    if all(one["equal"] for one in results):
        session.need("fleet").each(lambda one: one.verify())
    worst = next((one for one in results if not one["equal"]), results[0])
    return {**{key: value for key, value in worst.items() if key != "seat"}, "holds": holds}
