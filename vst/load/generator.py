"""The load itself: requests that are sent from a thread of its own while the lane goes on, each told when it ends.

The thread runs one event loop. Every request has a deadline, the load has bounds, and whatever ends it, each request
that was sent is in the journal with what became of it. What breaks in the thread is raised by the next call of the
lane: a load that died unseen would look like a quiet one.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import httpx

from vst.errors import TransportError, VerificationError, VstError
from vst.load.reading import Reading
from vst.load.seen import Seen
from vst.load.workload import Pace, Target, Workload, request

FORMAT = "vst-load/1"
END_S = 10.0
"""How long the thread may take to write down what it cut."""


class Journal(Protocol):
    """Where a load writes what it sees; a call for each line, from the load's thread or the lane's."""

    def append(self, kind: str, **fields: Any) -> None: ...


@dataclass(frozen=True)
class Asked:
    """A request that is open, and what was read of its answer so far."""

    number: int
    prompt: int
    stream: bool
    sent: float
    reading: Reading

    def seen(self, fault: str | None) -> Seen:
        """What became of it; a fault of the connection goes before one of the answer."""
        read = self.reading
        return Seen(
            number=self.number,
            prompt=self.prompt,
            stream=self.stream,
            sent=self.sent,
            ended=time.monotonic(),
            status=read.status,
            tokens=tuple(read.tokens),
            logprobs=tuple(read.logprobs),
            runners=tuple(read.runners),
            arrivals=tuple(read.arrivals),
            finish=read.finish,
            completion_tokens=read.completion_tokens,
            cached_tokens=read.cached_tokens,
            closed=read.closed,
            error=fault or read.fault,
        )


@dataclass(frozen=True)
class Limits:
    """Seconds: for one whole answer, and for the load as a whole, after which it sends nothing more."""

    request_s: float
    load_s: float


class LoadFailed(TransportError):
    """The load itself broke; what it saw until then is in its journal."""


class Load:
    """Requests in the background from ``start`` to ``stop``, or for the length of a ``with`` block.

    Leaving the block without ``stop`` cuts what is open: that is for lanes that failed, and no load to be judged.
    """

    def __init__(self, target: Target, workload: Workload, pace: Pace, limits: Limits, journal: Journal) -> None:
        self._target, self._workload, self._pace, self._limits = target, workload, pace, limits
        self._journal = journal
        self._thread = threading.Thread(target=self._run, name="vst-load", daemon=True)
        self._ready = threading.Event()
        self._idle = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: dict[int, Asked] = {}
        self._drain_s = 0.0
        self._sent = self._ended = self._held_back = self._aborted = 0
        self._stopped = False

    @property
    def sent(self) -> int:
        """How many requests were sent so far."""
        return self._sent

    @property
    def open(self) -> int:
        """How many requests have no answer yet."""
        return self._sent - self._ended

    @property
    def aborted(self) -> int:
        """How many streams the server ended as aborted after they had brought a token."""
        return self._aborted

    @property
    def exhausted(self) -> bool:
        """Whether nothing more will be sent and nothing is open."""
        return self._idle.is_set()

    def begun(self, tokens: int) -> int:
        """How many open streams have brought a token, and no more than ``tokens`` of them."""
        return sum(1 <= len(one.reading.tokens) <= tokens for one in list(self._asked.values()))

    def start(self) -> None:
        """Begin to send; returns when the thread runs."""
        facts = {"workload": self._workload.to_json(), "pace": self._pace.to_json(), "limits": vars(self._limits)}
        self._journal.append("load", format=FORMAT, at=time.monotonic(), model=self._target.model, **facts)
        self._thread.start()
        self._ready.wait()
        self.check()

    def check(self) -> None:
        """LoadFailed, or the error itself where it is one of ours, when the load broke."""
        if isinstance(self._failure, VstError):
            raise self._failure
        if self._failure is not None:
            raise LoadFailed(f"the load broke: {type(self._failure).__name__}: {self._failure}") from self._failure

    def mark(self, what: str, **fields: Any) -> float:
        """Write down that something happened to the server now, and return when; see ``vst.load.holdings``."""
        self.check()
        at = time.monotonic()
        self._journal.append("mark", what=what, at=at, **fields)
        return at

    def run_out(self, within_s: float) -> None:
        """Wait until everything that the load has to send was sent and answered; LoadFailed when that takes longer."""
        if not self._idle.wait(within_s):
            raise LoadFailed(f"the load did not run out within {within_s:g} s: {self._sent} sent, {self.open} open")
        self.check()

    def stop(self, drain_s: float) -> None:
        """Send nothing more, wait up to ``drain_s`` for what is open, cut the rest, and write the end down."""
        if self._stopped or self._loop is None:
            raise VerificationError("the load does not run: it was stopped before, or never started")
        self._end(drain_s)
        self.check()
        self._journal.append("end", at=time.monotonic(), sent=self._sent, ended=self._ended, held_back=self._held_back)

    def _end(self, drain_s: float) -> None:
        self._stopped = True
        self._drain_s = drain_s
        if self._loop is not None and self._stopping is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(drain_s + END_S)
        if self._thread.is_alive():
            raise LoadFailed(f"the load's thread did not end within {drain_s + END_S:g} s")

    def __enter__(self) -> Load:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._stopped:
            self._end(0.0)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception as error:
            self._failure = self._failure or error
        finally:
            self._ready.set()
            self._idle.set()

    async def _main(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._until = time.monotonic() + self._limits.load_s
        async with self._http() as http:
            if self._pace.rate is None:
                for _ in range(self._pace.concurrency):
                    self._spawn(self._asker(http))
            else:
                self._spawn(self._arrivals(http, self._pace.rate))
            self._ready.set()
            await self._stopping.wait()
            await _settle(self._tasks, self._drain_s)

    def _http(self) -> httpx.AsyncClient:
        # As in the control plane: one connection for each call, and the server is addressed as given.
        key = {"Authorization": f"Bearer {self._target.api_key}"} if self._target.api_key else {}
        return httpx.AsyncClient(
            base_url=self._target.base_url.rstrip("/"),
            headers={"Connection": "close", **key, **self._target.headers},
            trust_env=False,
            timeout=None,
            limits=httpx.Limits(max_connections=None),
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._idle.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broke(error)

    def _broke(self, error: BaseException) -> None:
        self._failure = self._failure or error
        if self._stopping is not None:
            self._stopping.set()

    def _more(self) -> bool:
        stopping = self._stopping is not None and self._stopping.is_set()
        return not stopping and self._sent < self._pace.max_requests and time.monotonic() < self._until

    async def _asker(self, http: httpx.AsyncClient) -> None:
        while self._more():
            await self._ask(http, self._next())

    async def _arrivals(self, http: httpx.AsyncClient, rate: float) -> None:
        rng, due = random.Random(f"{self._workload.seed}/arrivals"), time.monotonic()
        while self._more():
            if self.open < self._pace.max_in_flight:
                self._spawn(self._ask(http, self._next()))
            else:
                self._held_back += 1
            due += rng.expovariate(rate)
            await self._wait_until(due)

    async def _wait_until(self, due: float) -> None:
        if self._stopping is not None:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), max(0.0, due - time.monotonic()))

    def _next(self) -> int:
        self._sent += 1
        return self._sent - 1

    async def _ask(self, http: httpx.AsyncClient, number: int) -> None:
        prompt, stream = self._workload.draw(number)
        asked = self._asked[number] = Asked(number, prompt, stream, time.monotonic(), Reading())
        try:
            await asyncio.wait_for(self._exchange(http, asked), self._limits.request_s)
        except asyncio.TimeoutError:
            self._record(asked, f"no whole answer within {self._limits.request_s:g} s")
        except httpx.HTTPError as error:
            self._record(asked, f"{type(error).__name__}: {error}")
        except asyncio.CancelledError:
            self._record(asked, f"cut after {time.monotonic() - asked.sent:.1f} s, when the load was stopped")
            raise
        else:
            self._record(asked, None)

    async def _exchange(self, http: httpx.AsyncClient, asked: Asked) -> None:
        reading = asked.reading
        body = request(self._target, self._workload, asked.prompt, asked.stream)
        async with http.stream("POST", "/v1/completions", json=body) as response:
            reading.status = response.status_code
            if asked.stream and reading.accepted:
                async for line in response.aiter_lines():
                    reading.line(line, time.monotonic())
            else:
                reading.body((await response.aread()).decode("utf-8", "replace"))

    def _record(self, asked: Asked, fault: str | None) -> None:
        self._ended += 1
        del self._asked[asked.number]
        self._aborted += bool(asked.reading.arrivals) and asked.reading.finish == "abort"
        if self._failure is None:
            self._journal.append("answer", **asked.seen(fault).to_json())


async def _settle(tasks: set[asyncio.Task[None]], drain_s: float) -> None:
    """Wait for the tasks, cancel those that are left, and wait until these have said so."""
    if tasks:
        await asyncio.wait(set(tasks), timeout=drain_s)
    left = set(tasks)
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)
