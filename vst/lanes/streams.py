"""Streams in flight while a server is moved: loads of streams only, their marks, and one request that knocks."""

from __future__ import annotations

import time
from dataclasses import replace

from vst.lanes.asking import CLAIMS
from vst.lanes.servers import api_key
from vst.lanes.session import Session
from vst.lanes.traffic import log_file, workload
from vst.load.generator import Limits, Load
from vst.load.workload import Pace, Target
from vst.server.plan import Step
from vst.server.states import Situation

POLL_S = 0.002
EARLY = 4
"""A stream has just begun while no more than this part of its tokens came."""


def streams(session: Session, name: str, askers: int, requests: int) -> Load:
    """A load of streams by ``askers`` that wait for their answers, ``requests`` at most; ``load-<name>.jsonl``."""
    conf, server = session.conf.load, session.need("server")
    target = Target(server.control.base_url, server.name, api_key(session))
    work = replace(workload(session), stream_share=1.0)
    limits = Limits(conf.request_s, conf.load_s)
    return Load(target, work, Pace(askers, None, askers, requests), limits, session.run.journal(log_file(name)))


def catch(load: Load, askers: int, output_tokens: int, within_s: float) -> None:
    """Wait until every asker had an answer and a stream has just begun: most of it is still to come.

    Returns without one when the load ran out or ``within_s`` seconds went by; the checks then say that none was caught.
    """
    until = time.monotonic() + within_s
    while load.sent < 2 * askers and time.monotonic() < until and not load.exhausted:
        load.check()
        time.sleep(POLL_S)
    while not load.begun(max(1, output_tokens // EARLY)) and time.monotonic() < until and not load.exhausted:
        load.check()
        time.sleep(POLL_S)


class Marks:
    """Tells one load what happens to the server, from the steps of a chain: ``Interpreter.watch``.

    Everything between the first step that stops work and the one that lets it go is one pause, whatever lies between.
    """

    def __init__(self, session: Session, load: Load) -> None:
        self._session, self._load = session, load
        self._paused = self._still = False

    def already(self, mode: str) -> None:
        """The server is paused by now."""
        self._paused = self._still = True
        self._load.mark("pausing", mode=mode)
        self._load.mark("paused")

    def __call__(self, when: str, step: Step) -> None:
        getattr(self, f"_{when}")(step)

    def _before(self, step: Step) -> None:
        if step.verb in ("abort", "pause", "sleep") and not self._paused:
            mode = step.args[0] if step.verb == "pause" else "abort"
            self._paused = True
            self._load.mark("pausing", mode=mode)
        if step.verb == "push":
            self._load.mark("push_begin", claim=CLAIMS[step.args[0] if step.args else "checkpoint"])
        if self._still and (step.verb == "resume" or self._may_serve(step)):
            self._still = False
            self._load.mark("resuming")

    def _after(self, step: Step) -> None:
        if step.verb in ("pause", "sleep") and self._paused and not self._still:
            self._still = True
            self._load.mark("paused")
        if step.verb == "push":
            claim = CLAIMS[step.args[0] if step.args else "checkpoint"]
            self._load.mark("push_end", claim=claim)
        if self._paused and not self._still and self._serving and step.verb in ("resume", "wake"):
            self._paused = False
            self._load.mark("resumed")

    @property
    def _serving(self) -> bool:
        return bool(self._session.need("lifecycle").situation is Situation.SERVING)

    def _may_serve(self, step: Step) -> bool:
        return Situation.SERVING in self._session.need("lifecycle").may(step.move)
