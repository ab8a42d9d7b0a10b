"""Where one server is, as this run knows it, and the only way in which lane code moves it.

Every move is looked up in the table of ``states`` before anything is sent, and what it led to is observed afterwards. A
failure taints: from then on nothing is finished, resumed or woken; the server is paused if that is still possible. Only
``begin_recovery``, a full push and its verification lead out of that, and not where an update was left open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from vst.errors import VerificationError, VstError
from vst.provenance.atomic import StorageFailure
from vst.server.client import ControlPlane, HttpFailure
from vst.server.observe import Observation, mismatches, observe, read_flag
from vst.server.states import LOOKS, IllegalMove, Situation, ends, name_of, wake_name

RESETS = ("/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache")
RESET_TRIES = 5
TAINT_TIMEOUT_S = 10.0
RECOVERABLE = {
    Situation.SERVING: Situation.PAUSED_LOST,
    Situation.PAUSED: Situation.PAUSED_LOST,
    Situation.PAUSED_LOST: Situation.PAUSED_LOST,
    Situation.ASLEEP_2_LOST: Situation.ASLEEP_2_LOST,
    Situation.ASLEEP_2_CACHE: Situation.ASLEEP_2_LOST,
}
"""Where a recovery begins, by the situation in which the failure came; from any other only a restart leads on."""


class NotSeen(VerificationError):
    """A move was answered, and the server does not show that it was made."""


class Lifecycle:
    """Moves one server between its situations and remembers where it is and what it holds.

    ``mode`` is the pause mode that stopped its work, ``verified`` whether its content was compared and is what
    ``holds`` says, ``restart`` why only a restart helps a tainted server, None where a full push may.
    """

    def __init__(self, control: ControlPlane, tell: Callable[..., None]) -> None:
        self._control = control
        self._tell = tell
        self.situation = Situation.UNKNOWN
        self.recovering = False
        self.mode: str | None = None
        self.holds = "unknown"
        self.verified = False
        self.left = "as it was found"
        self.restart: str | None = None
        self._stable = self._after_push = Situation.UNKNOWN

    @property
    def state(self) -> str:
        """The state as it is reported: a server that is being recovered stays tainted until its content is proven."""
        return "tainted" if self.recovering else name_of(self.situation)

    @property
    def asleep(self) -> tuple[str, ...]:
        """The tags whose memory sleeps."""
        return LOOKS[self.situation].asleep

    def found(self, paused: bool, sleeping: bool, holds: str) -> None:
        """Take over what the server said of itself when it was first asked."""
        self.holds, self.verified = holds, True
        self._settle(Situation.ASLEEP if sleeping else Situation.PAUSED if paused else Situation.SERVING)

    def pause(self, mode: str, clear_cache: bool | None = None, timeout_s: float | None = None) -> None:
        """Stop the scheduler; the mode decides on the work in flight, ``clear_cache`` None is the server's."""
        target = self._begin("pause")
        params = {"mode": mode} if clear_cache is None else {"mode": mode, "clear_cache": str(clear_cache).lower()}
        self._control.post("/pause", params=params, timeout_s=timeout_s)
        self._expect_paused(True)
        self.mode = mode
        self._settle(target[0])

    def abort(self) -> None:
        """End all work in flight without pausing; that the streams have ended is seen by those who read them."""
        self._begin("abort")
        self._control.post("/abort_requests", {})
        self._expect_paused(self.situation is Situation.PAUSED)

    def reset_caches(self, running: bool = False) -> None:
        """Empty the three caches; the prefix cache must say ``success: true``, the others only have to answer.

        ``running`` also takes the blocks of requests that are frozen; they are computed again later. A server that
        serves always has to: who asks meanwhile holds blocks, and the cache would never be empty.
        """
        self._begin("reset")
        running = running or self.situation is Situation.SERVING
        for path in RESETS:
            self._reset(path, {"reset_running_requests": "true"} if running and path == RESETS[0] else {})

    def _reset(self, path: str, params: dict[str, str]) -> None:
        for attempt in range(1, RESET_TRIES + 1):
            try:
                answer = self._control.post(path, params=params)
            except HttpFailure:
                # Blocks that are still held are given back within moments, or never.
                if attempt == RESET_TRIES:
                    raise
                time.sleep(0.2 * attempt)
                continue
            if path == RESETS[0] and not (isinstance(answer, dict) and answer.get("success") is True):
                raise VerificationError(f"{path} answered {answer!r}, expected success: true")
            return

    def sleep(self, level: int, mode: str = "abort") -> Observation:
        """Give memory back: level 1 keeps a copy of the weights, level 2 keeps nothing. Flags and gauge must say so."""
        target = self._begin(f"sleep({level})")
        self._in_doubt()
        self._control.post("/sleep", params={"level": level, "mode": mode})
        self.mode = mode
        if level == 2:
            self.holds, self.verified = "nothing: the weights were discarded", False
        return self._arrive(target)

    def wake(self, tags: Iterable[str] = ()) -> Observation:
        """Bring memory back by tag, all of it without one; the server may resume by itself, which is observed."""
        wanted = tuple(tags)
        target = self._begin(wake_name(wanted))
        self._in_doubt()
        self._control.post("/wake_up", params={"tags": wanted} if wanted else None)
        return self._arrive(target)

    def begin_push(self, what: str, move: str = "push") -> None:
        """A transaction begins; ``move`` is ``publish`` where the caller answers for the requests meanwhile."""
        self._after_push = self._begin(move)[0]
        self.holds, self.verified = f"part of {what}", False
        self._set(Situation.UPDATING)

    def end_push(self, what: str) -> None:
        """The finish was acknowledged."""
        if self.situation is not Situation.UPDATING:
            raise IllegalMove(f"a push cannot end: the server is {self.situation.value}, expected updating")
        self.holds = what
        self._settle(self._after_push)

    def resume(self) -> None:
        target = self._begin("resume")
        self._control.post("/resume")
        self._expect_paused(False)
        self.mode = None
        self._settle(target[0])

    def may(self, move: str) -> tuple[Situation, ...]:
        """Where the move may end; IllegalMove, with nothing sent, when it is not legal now."""
        return self._begin(move)

    def ask(self) -> None:
        """A request may be sent; IllegalMove where it would be held, or kill the engine."""
        self._begin("ask")

    def observe(self) -> Observation:
        """Look at flags and gauge; VerificationError when they do not fit. Not while an update is open."""
        if self.situation is Situation.UPDATING:
            raise IllegalMove("the server cannot be asked while an update is open: its workers wait for the broadcast")
        seen = observe(self._control)
        if problems := mismatches(self.situation, seen):
            raise NotSeen("; ".join(problems) + ": the server is not in the state that it answered")
        return seen

    def verify(self) -> None:
        """The content was compared and is what was claimed; this ends a recovery whose push came to serving."""
        self.verified = True
        if self.recovering and self.situation is Situation.SERVING:
            self.recovering, self.left = False, "recovered"
            self._tell("server_state", before="tainted", after=self.state, holds=self.holds, reason="verified")

    def taint(self, reason: str, restart: str | None = None) -> None:
        """Give the server up: pause it if it still answers, and send nothing else unless a recovery is begun.

        ``restart`` says why a full push cannot help, as after an update that was left open.
        """
        if self.state == "dead" or (self.state == "tainted" and not self.recovering):
            return
        if self._stable not in RECOVERABLE:
            restart = restart or f"it failed while it was {self._stable.value}: what memory it has is not known"
        self.recovering, self.restart = False, restart
        with suppress(StorageFailure):
            # A disk that is full ends the run, and says so there; here it must not keep the server from being paused.
            self._set(Situation.TAINTED, reason)
        try:
            self._control.post("/pause", params={"mode": "keep"}, timeout_s=TAINT_TIMEOUT_S)
            self._expect_paused(True)
        except VstError as error:
            self.left = f"not known to be paused: {error}"
            if isinstance(error, HttpFailure) and error.status >= 500:
                self.restart = self.restart or "it answers and cannot even be paused: its engine is gone or broken"
            self._tell("pause_failed", error=str(error))
        else:
            self.left = "paused"

    @property
    def remedy(self) -> str:
        """What clears a tainted server."""
        return f"a restart only: {self.restart}" if self.restart else "a full push that verifies, or a restart"

    def begin_recovery(self) -> None:
        """Lead a tainted server to where a full push may begin; it stays reported as tainted until ``verify``.

        Order: ``begin_recovery``, reset, ``begin_push`` … ``end_push``, reset, resume, compare, ``verify``. IllegalMove
        where only a restart helps, and nothing is sent then.
        """
        self._begin("recover")
        if self.restart is not None:
            raise IllegalMove(f"recover is refused: {self.remedy}")
        self._control.post("/pause", params={"mode": "keep"}, timeout_s=TAINT_TIMEOUT_S)
        target = RECOVERABLE[self._stable]
        if problems := mismatches(target, observe(self._control)):
            raise VerificationError("the server cannot be recovered by a push: " + "; ".join(problems))
        self.mode, self.recovering = "keep", True
        self._settle(target)

    def died(self, reason: str) -> None:
        self.recovering = False
        self._set(Situation.DEAD, reason)

    def _begin(self, move: str) -> tuple[Situation, ...]:
        """Where the move may end; IllegalMove, before anything is sent, when the table does not allow it."""
        return ends(move, self.situation)

    def _in_doubt(self) -> None:
        """From now until it is observed, what memory the server has is not known."""
        self._stable = Situation.UNKNOWN

    def _arrive(self, targets: tuple[Situation, ...]) -> Observation:
        """Settle in the one of ``targets`` that the server shows; VerificationError when it shows none of them."""
        seen = observe(self._control)
        problems = {target: mismatches(target, seen) for target in targets}
        fitting = next((target for target in targets if not problems[target]), None)
        if fitting is None:
            raise NotSeen(f"{'; '.join(problems[targets[0]])}: the server did not do what it answered")
        if LOOKS[fitting].paused is False:
            self.mode = None
        self._settle(fitting)
        return seen

    def _settle(self, situation: Situation) -> None:
        self._stable = situation
        self._set(situation)

    def _set(self, situation: Situation, reason: str = "") -> None:
        before, self.situation = self.situation, situation
        if situation is not before:
            self._tell("server_state", before=before.value, after=situation.value, holds=self.holds, reason=reason)

    def _expect_paused(self, expected: bool) -> None:
        found = read_flag(self._control, "/is_paused", "is_paused")
        if found is not expected:
            raise NotSeen(f"/is_paused says {found}, expected {expected}: the server did not do what it answered")
