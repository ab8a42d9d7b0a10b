"""Lane L4, the sleeps: both levels, the wake orders, what is refused meanwhile, and the bytes that go and come back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from vst.errors import VerificationError
from vst.lanes.asking import CLAIMS
from vst.lanes.chain import Interpreter
from vst.lanes.lifecycle_checks import ORDERS, STILL_TOO_EARLY, TOO_EARLY
from vst.lanes.memory import MemoryWatch, wanted
from vst.lanes.pauses import knocking
from vst.lanes.session import Session
from vst.provenance.rundir import EVENTS
from vst.server.plan import Step
from vst.server.states import IllegalMove, Situation

Answer = Callable[[str], None]
"""Takes a record under a name and compares it; raises where it differs, so that nothing follows."""


@dataclass(frozen=True)
class Refusal:
    """A step that was tried where it is not legal: why it was refused, and how many POST calls left meanwhile."""

    step: str
    situation: str
    refused: str
    sent: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure_noise(session: Session, chain: Interpreter, watch: MemoryWatch) -> None:
    """How far the server's memory moves over a pause and a resume without a sleep."""
    seen = watch.rest()
    chain.make(Step("pause", ("abort",)))
    seen += watch.rest()
    chain.make(Step("resume"))
    seen += watch.rest()
    watch.noise = max(seen) - min(seen) if seen else 0


def sleep_level_1(session: Session, watch: MemoryWatch, order: str, chain: Interpreter, answer: Answer) -> Refusal:
    """Sleep at level 1, try to push, wake in one order, and look at the answers."""
    session.progress.say(f"sleep(1), woken {order}")
    claim, rest = CLAIMS[chain.lifecycle.holds], watch.rest()
    chain.make(Step("sleep", ("1",)))
    with knocking(session, chain, f"asleep-1-{order}", claim, "asleep"):
        refusal = attempt(session, chain, Step("push"))
        watch.falls_asleep(1, rest, due(session, watch, 1))
        for step in ORDERS[order]:
            time.sleep(session.conf.lifecycle.quiet_s)
            wake(session, watch, chain, step, 1)
        serve(chain)
    answer(order)
    watch.serves_again()
    return refusal


def sleep_level_2(
    session: Session, watch: MemoryWatch, role: str, chain: Interpreter, answer: Answer
) -> list[Refusal]:
    """Sleep at level 2, try everything that must wait for a push, push ``role``, and look at the answers."""
    session.progress.say(f"sleep(2), then a push of {role}")
    claim, rest = CLAIMS[chain.lifecycle.holds], watch.rest()
    chain.make(Step("sleep", ("2",)))
    with knocking(session, chain, "asleep-2", claim, "asleep"):
        refusals = [attempt(session, chain, step) for step in TOO_EARLY]
        watch.falls_asleep(2, rest, due(session, watch, 2))
        time.sleep(session.conf.lifecycle.quiet_s)
        wake(session, watch, chain, Step("wake", ("weights",)), 2)
        refusals += [attempt(session, chain, step) for step in STILL_TOO_EARLY]
        time.sleep(session.conf.lifecycle.quiet_s)
        for step in (Step("pause", ("keep",)), Step("reset"), Step("push", (role,))):
            chain.make(step)
        wake(session, watch, chain, Step("wake", ("kv_cache",)), 2)
        serve(chain)
    answer("level-2")
    watch.serves_again()
    return refusals


def serve(chain: Interpreter) -> None:
    """Resume a server that is wholly awake and did not resume by itself."""
    if chain.lifecycle.situation is not Situation.SERVING:
        chain.make(Step("resume"))


def due(session: Session, watch: MemoryWatch, level: int) -> int:
    """The bytes that a sleep must free here."""
    device = watch.source is not None and watch.source.device
    return wanted(level, device, weights_bytes(session), watch.noise)


def weights_bytes(session: Session) -> int:
    """The bytes of the checkpoint that the server holds, by its manifest; A and B have the same."""
    return int(session.manifests["model"].total_bytes)


def wake(session: Session, watch: MemoryWatch, chain: Interpreter, step: Step, level: int) -> None:
    """Wake, and see how many bytes come with it where that is one tag alone."""
    if watch.source is None or len(step.args) != 1:
        chain.make(step)
        return
    before = watch.source.read()
    chain.make(step)
    least = due(session, watch, level) if step.args[0] == "weights" else 2 * watch.noise + 1
    watch.brings(step.args[0], before, least)


def attempt(session: Session, chain: Interpreter, step: Step) -> Refusal:
    """Try a step that is not legal now, and count what was sent. One that is made ends the lane: the server moved."""
    before, situation = posts(session), chain.lifecycle.situation.value
    try:
        chain.make(step)
    except IllegalMove as error:
        return Refusal(str(step), situation, str(error), posts(session) - before)
    raise VerificationError(f"{step} was made while the server was {situation}: it must be refused")


def posts(session: Session) -> int:
    """How many POST calls the run and its publisher have sent so far, by the events."""
    return sum(_is_post(line) for line in (session.run / EVENTS).read_text().splitlines())


def _is_post(line: str) -> bool:
    event = json.loads(line)
    return event["kind"] in ("http", "publisher_http") and event.get("method") == "POST"

