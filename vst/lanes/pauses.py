"""Lane L4, the pauses: every mode with streams in flight, and a request that knocks while the server does not serve."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from vst.lanes.chain import Interpreter
from vst.lanes.lifecycle_checks import PAUSES
from vst.lanes.session import Session
from vst.lanes.streams import Marks, catch, streams
from vst.server.plan import Step

ROUNDS = 10
"""How often each asker asks at most: a server that refuses requests, or one that admits them for ever, ends as well."""


def run_pause(session: Session, chain: Interpreter, name: str, claim: str) -> None:
    """Pause with streams in flight, knock, resume: ``load-pause-<name>.jsonl`` and ``load-knock-<name>.jsonl``."""
    conf, step = session.conf.load, PAUSES[name]
    session.progress.say(f"{step} with streams in flight")
    with streams(session, f"pause-{name}", conf.concurrency, ROUNDS * conf.concurrency) as load:
        load.mark("holds", claim=claim)
        catch(load, conf.concurrency, conf.output_tokens, conf.request_s)
        marks = Marks(session, load)
        chain.watch = marks
        chain.make(step)
        with knocking(session, chain, name, claim, step.args[0], marks):
            time.sleep(conf.settle_s + session.conf.lifecycle.quiet_s)
            chain.look()
            chain.make(Step("resume"))
        load.stop(conf.drain_s)
    chain.watch = None


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
