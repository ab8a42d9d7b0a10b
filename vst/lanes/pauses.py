"""Lane L4, the pauses: every mode with streams in flight, and a request that knocks while the server does not serve."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from vst.lanes.chain import Interpreter
from vst.lanes.lifecycle_checks import PAUSES
from vst.lanes.session import Session
from vst.lanes.streams import Marks, catch, streams
from vst.load.generator import Load
from vst.server.plan import Step

ROUNDS = 40
"""How often each asker asks at most: a server that refuses requests, or one that admits them for ever, ends as well."""

TRIES = 5
"""How often a pause is tried at most until one catches a stream: on a busy machine answers come in bursts, and what a
client has seen to begin the server may have ended."""


def run_pause(session: Session, chain: Interpreter, name: str, claim: str) -> None:
    """Pause with streams in flight, knock, resume: ``load-pause-<name>.jsonl`` and ``load-knock-<name>.jsonl``.

    Every try is a pause of the one log, and all of them are judged.
    """
    conf, step = session.conf.load, PAUSES[name]
    mode, quiet = step.args[0], conf.settle_s + session.conf.lifecycle.quiet_s
    with streams(session, f"pause-{name}", conf.concurrency, ROUNDS * conf.concurrency) as load:
        load.mark("holds", claim=claim)
        marks = Marks(session, load)
        chain.watch = marks
        for left in reversed(range(TRIES)):
            session.progress.say(f"{step} with streams in flight")
            catch(load, conf.concurrency, conf.output_tokens, conf.request_s)
            chain.make(step)
            time.sleep(conf.settle_s)
            if caught(load, mode, conf.output_tokens) or not left or load.exhausted:
                break
            chain.make(Step("resume"))
        with knocking(session, chain, name, claim, mode, marks):
            time.sleep(quiet)
            chain.look()
            chain.make(Step("resume"))
        load.stop(conf.drain_s)
    chain.watch = None


def caught(load: Load, mode: str, output_tokens: int) -> bool:
    """Whether a pause that has settled found a stream in the middle, as far as its client can tell."""
    if mode == "keep":
        return load.begun(output_tokens - 1) > 0
    # One that waits has let every stream end by now; those that had begun before are in the log.
    return load.aborted > 0 if mode == "abort" else True


@contextmanager
def knocking(
    session: Session, chain: Interpreter, name: str, claim: str, mode: str, others: Marks | None = None
) -> Iterator[None]:
    """One request that is sent to a server that does not serve; inside, the chain must bring it back to serving.

    Writes ``load-knock-<name>.jsonl`` with the marks of the steps that follow.
    """
    conf = session.conf.load
    with streams(session, f"knock-{name}", 1, 1) as load:
        load.mark("holds", claim=claim)
        marks = Marks(session, load)
        marks.already(mode)

        def both(when: str, step: Step) -> None:
            marks(when, step)
            if others is not None:
                others(when, step)

        chain.watch = both
        yield
        load.run_out(conf.request_s)
        load.stop(conf.drain_s)
    chain.watch = others
