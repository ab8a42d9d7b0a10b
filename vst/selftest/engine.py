"""The double's scheduler: one thread for each replica that steps the running requests, and the pauses that hold it.

It has vLLM's rules: ``keep`` freezes everything, ``wait`` lets running requests end, ``abort`` ends them; new requests
wait in every mode. A step on a model that an update or a sleep holds open kills the engine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from torch import Tensor

from vst.selftest.fault import Fault
from vst.selftest.generation import EngineDead, Generation, Scored, choose, score
from vst.selftest.prefix_cache import length
from vst.selftest.replica import Replica

MODES = ("abort", "wait", "keep")
RUNNING_AT_ONCE = 64


class Engine:
    """Steps one replica. ``core`` is held by a step, an update and every other call that reaches the engine."""

    def __init__(
        self, replica: Replica, faults: Sequence[Fault], on_death: Callable[[str], None], step_s: float = 0.0
    ) -> None:
        self.replica = replica
        self.core = threading.RLock()
        self.paused: str | None = None
        self.claimed: str | None = None  # a pause that is only claimed
        self.waiting: list[Generation] = []
        self.running: list[Generation] = []
        self.dead: str | None = None
        self._faults = faults
        self._die = on_death
        self._step_s = step_s
        self._changed = threading.Condition()
        self._asked = 0  # calls that wait for the engine: a lock alone would let the steps starve them
        threading.Thread(target=self._loop, daemon=True, name=f"engine-{replica.number}").start()

    def submit(self, generation: Generation) -> None:
        """Queue a request; EngineDead when there is no engine any more."""
        with self._changed:
            if self.dead is not None:
                raise EngineDead(self.dead)
            self.waiting.append(generation)
            self._changed.notify_all()

    def abort(self, generation: Generation) -> None:
        """Forget a request whose caller has gone."""
        with self._changed:
            for queue in (self.waiting, self.running):
                if generation in queue:
                    queue.remove(generation)
            generation.finish("abort")

    def call(self) -> _Call:
        """The context of a call that reaches the engine: it comes between two steps and holds them off."""
        return _Call(self)

    def pause(self, mode: str) -> None:
        """Hold the scheduler; returns when the mode's promise about running requests is kept."""
        with self.call(), self._changed:
            if self._ignores("pause_ignored", mode):
                self.claimed = mode
                return
            self.paused = mode
            if mode == "abort" and not self._ignores("abort_keeps", mode):
                # Requests that were never admitted are aborted as well.
                for generation in [*self.running, *self.waiting]:
                    generation.finish("abort")
                self.running, self.waiting = [], []
            if mode == "keep":
                for generation in self.running:
                    generation.frozen = True
            for fault in self.replica.due("wait_cuts", max(1, self.replica.updates)) if mode == "wait" else ():
                for generation in self.running:
                    generation.ends_at = len(generation.tokens) + fault.tokens
            self._changed.notify_all()
        while mode == "wait" and self.running and self.dead is None:
            time.sleep(0.002)

    def resume(self) -> None:
        with self._changed:
            self.paused = self.claimed = None
            self._changed.notify_all()

    def reset_cache(self, running_too: bool) -> bool:
        """Empty the prefix cache; False, and nothing done, while running requests hold blocks of it."""
        with self.call():
            if running_too:
                for generation in self.running:
                    generation.past = ()
            if any(generation.past for generation in self.running):
                return False
            self.replica.cache_clear()
            return True

    def _of(self, kind: str) -> list[Fault]:
        return [fault for fault in self._faults if fault.kind == kind]

    def _ignores(self, kind: str, mode: str) -> bool:
        return any(mode in (fault.modes or MODES) for fault in self._of(kind))

    def _loop(self) -> None:
        while self.dead is None:
            batch = self._next_batch()
            if not batch:
                continue
            while self._asked:
                time.sleep(0.0005)
            with self.core:
                self._step_all(batch)
            time.sleep(self._step_s)

    def _next_batch(self) -> list[Generation]:
        with self._changed:
            self._admit()
            batch = [] if self.paused == "keep" else list(self.running)
            if self.paused == "keep" and self._ignores("admits", "keep"):
                batch = [generation for generation in self.running if not generation.frozen]
            if self.paused == "abort" and not self._ignores("admits", "abort"):
                batch = []
            if not batch:
                self._changed.wait(0.1)
            return batch

    def _admit(self) -> None:
        if self.paused is not None and not self._ignores("admits", self.paused):
            return
        while self.waiting and len(self.running) < RUNNING_AT_ONCE:
            self.running.append(self.waiting.pop(0))

    def _step_all(self, batch: list[Generation]) -> None:
        reason = self.replica.unusable()
        if reason is not None:
            self.kill(reason)
            return
        for generation in batch:
            # A pause may have come since the batch was made.
            if generation not in self.running or (self.paused == "keep" and generation.frozen):
                continue
            try:
                self._step(generation)
            except Exception as error:  # whatever breaks in a step is the end of an engine
                self.kill(f"{type(error).__name__}: {error}")
                return

    def _step(self, generation: Generation) -> None:
        logits = self._prefill(generation) if not generation.past else self._decode(generation)
        token = choose(logits, generation)
        thawed, generation.frozen = generation.frozen, False
        if thawed and (changes := self._of("keep_changes")):
            token = int(logits.topk(changes[0].tokens + 1).indices[-1])
        scored = score(logits, token, generation.asked.logprobs)
        generation.tokens.append(token)
        self._emit(generation, scored, thawed)
        self._maybe_end(generation)

    def _emit(self, generation: Generation, scored: Scored, thawed: bool) -> None:
        times = 1
        if thawed and self._of("keep_drops"):
            times = 0
        if thawed and (doubles := self._of("keep_doubles")):
            times += doubles[0].tokens
        for _ in range(times):
            generation.out.put(scored)

    def _maybe_end(self, generation: Generation) -> None:
        asked, count = generation.asked, len(generation.tokens)
        stops = count > asked.min_tokens and generation.tokens[-1] in asked.stop
        if count >= asked.max_tokens or stops or (generation.ends_at is not None and count >= generation.ends_at):
            with self._changed:
                if generation in self.running:
                    self.running.remove(generation)
            self.replica.served += 1
            generation.finish("stop" if stops else "length")

    def _prefill(self, generation: Generation) -> Tensor:
        """Compute the whole sequence, from the prefix cache where it may be used; logits of the last token."""
        tokens, asked = generation.sequence, generation.asked
        wants_scores = asked.prompt_logprobs is not None and generation.prompt_scores is None
        past = () if wants_scores else self.replica.cache.longest(tokens)
        if not generation.tokens:
            generation.cached = length(past)
        logits, generation.past = self.replica.forward(tokens[length(past) :], past)
        if wants_scores:
            prompt = asked.prompt
            generation.prompt_scores = [score(logits[i], t, asked.prompt_logprobs) for i, t in enumerate(prompt[1:])]
        self.replica.cache.keep(tokens, generation.past)
        return logits[-1]

    def _decode(self, generation: Generation) -> Tensor:
        logits, generation.past = self.replica.forward(generation.tokens[-1:], generation.past)
        return logits[-1]

    def kill(self, reason: str) -> None:
        """The engine is gone: every caller hears of it, and the server with it."""
        with self._changed:
            self.dead = reason
            for generation in [*self.running, *self.waiting]:
                generation.finish("error", f"EngineDeadError: {reason}")
            self.running, self.waiting = [], []
        self._die(reason)


class _Call:
    """Holds the engine between two steps."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __enter__(self) -> None:
        self._engine._asked += 1
        try:
            self._engine.core.acquire()
        finally:
            self._engine._asked -= 1

    def __exit__(self, *error: object) -> None:
        self._engine.core.release()
