"""Asking all questions of a plan, so many at once as it says, and keeping each answer the moment it is there.

A request that failed stays in the evaluation as failed. Another attempt is made only where the server did not take the
request or the connection broke before an answer; every attempt is kept in the record.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx

from vst.errors import VerificationError
from vst.evals.answer import ROUTES, Answered, Refused, make_record, read_answer
from vst.evals.plan import PINNED, Plan
from vst.evals.record import EvalRecord
from vst.evals.store import Evaluation, Journal, parse_evaluation
from vst.provenance.encoding import utc_now
from vst.server.client import RANK_HEADER, Exchange

PAUSE_S = 0.5
START_S = 10.0


@dataclass(frozen=True)
class Endpoint:
    """Where the questions go: the server's address, the model's name there, the key, the longest wait in seconds.

    ``clean`` takes secrets out of what is kept; ``rank`` addresses one data-parallel rank.
    """

    base_url: str
    model: str
    api_key: str | None
    timeout_s: float
    retries: int
    clean: Callable[[str], str] = str
    rank: int | None = None


Tell = Callable[[Exchange], None]
Told = Callable[[int, int], None]


def evaluate(
    plan: Plan,
    endpoint: Endpoint,
    path: Path,
    header: Mapping[str, Any],
    resumed: Evaluation | None = None,
    tell: Tell = lambda exchange: None,
    told: Told = lambda done, total: None,
) -> Evaluation:
    """Ask what has no record yet; ``path`` grows by a line for each answer. Returns all records, in order.

    ``resumed`` is what an earlier evaluation of the same plan left; VerificationError when it asked something else.
    """
    done = kept(resumed, plan, header) if resumed is not None else ()
    journal = Journal(path, header, done)
    try:
        run_beside(_ask(plan, endpoint, journal, {record.index for record in done}, tell, told))
    finally:
        journal.close()
    found = parse_evaluation(path.read_bytes())
    return Evaluation(found.header, found.records, found.missing == 0)


def kept(resumed: Evaluation, plan: Plan, header: Mapping[str, Any]) -> tuple[EvalRecord, ...]:
    """The records that an earlier evaluation left, if it asked the same of the same server in the same state."""
    now, before = plan.to_json(), resumed.plan
    apart = [key for key in PINNED if now[key] != before.get(key)]
    if resumed.header["server"] != header["server"]:
        apart.append("server")
    if apart:
        raise VerificationError(f"the evaluation to resume differs in {', '.join(apart)}: start a new one instead")
    return resumed.records


def run_beside(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end on a thread of its own; what is raised here meanwhile cancels it.

    A signal raises in the main thread, wherever that is; inside of an event loop it would tear the loop's tasks apart
    and come out as something else.
    """
    started, ended = Event(), Future[None]()
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []

    async def body() -> None:
        running.append((asyncio.get_running_loop(), asyncio.ensure_future(work)))
        started.set()
        await running[0][1]

    def run() -> None:
        try:
            ended.set_result(asyncio.run(body()))
        except BaseException as error:  # noqa: B036 - it is raised again in the thread that waits
            ended.set_exception(error)

    thread = Thread(target=run, name="evaluation")
    thread.start()
    try:
        ended.result()
    except BaseException:
        if started.wait(START_S):
            with suppress(RuntimeError):
                # A loop that has ended has nothing left to cancel.
                running[0][0].call_soon_threadsafe(running[0][1].cancel)
        raise
    finally:
        thread.join()


async def _ask(plan: Plan, endpoint: Endpoint, journal: Journal, done: set[int], tell: Tell, told: Told) -> None:
    left = deque(index for index in range(len(plan.questions)) if index not in done)
    count = len(done)
    async with _client(plan, endpoint) as client:

        async def worker() -> None:
            nonlocal count
            while left:
                index = left.popleft()
                journal.append(await _one(client, plan, endpoint, index, tell))
                count += 1
                told(count, len(plan.questions))

        await asyncio.gather(*(worker() for _ in range(min(plan.concurrency, len(left)))))


def _client(plan: Plan, endpoint: Endpoint) -> httpx.AsyncClient:
    # One connection for each request: one that was kept can be closed just when it is used again, and then nobody
    # knows whether the request was taken.
    headers = {"Connection": "close"}
    if endpoint.api_key:
        headers["Authorization"] = f"Bearer {endpoint.api_key}"
    if endpoint.rank is not None:
        headers[RANK_HEADER] = str(endpoint.rank)
    return httpx.AsyncClient(
        base_url=endpoint.base_url,
        headers=headers,
        trust_env=False,
        timeout=endpoint.timeout_s,
        limits=httpx.Limits(max_connections=plan.concurrency, max_keepalive_connections=0),
    )


async def _one(client: httpx.AsyncClient, plan: Plan, endpoint: Endpoint, index: int, tell: Tell) -> EvalRecord:
    """One question to its end, which is an answer or the failure of the last attempt."""
    call: dict[str, Any] = {"began": utc_now(), "seconds": 0.0, "failed_attempts": []}
    begun = time.monotonic()
    found: Answered | str = ""
    for attempt in range(endpoint.retries + 1):
        try:
            answered = await _attempt(client, plan, endpoint, index, tell)
            found = replace(answered, text=_hidden(answered.text, endpoint))
            break
        except Refused as refused:
            found = _hidden(str(refused), endpoint)
            call["failed_attempts"].append(found)
            if not refused.again or attempt == endpoint.retries:
                break
            await asyncio.sleep(PAUSE_S * 2**attempt)
    call["seconds"] = round(time.monotonic() - begun, 6)
    return make_record(plan, index, found, call)


async def _attempt(client: httpx.AsyncClient, plan: Plan, endpoint: Endpoint, index: int, tell: Tell) -> Answered:
    route, begun = ROUTES[plan.style], time.monotonic()
    status: int | None = None
    problem: str | None = None
    try:
        request = client.post(route, json=plan.body(endpoint.model, index))
        response = await asyncio.wait_for(request, endpoint.timeout_s)
        status = response.status_code
        return read_answer(status, response.content, plan.style)
    except (asyncio.TimeoutError, httpx.TimeoutException) as error:
        problem = f"no answer after {endpoint.timeout_s:g} s"
        raise Refused(problem, False) from error
    except httpx.HTTPError as error:
        problem = f"no answer: {type(error).__name__}: {error}"
        raise Refused(problem, True) from error
    except Refused as refused:
        problem = _hidden(str(refused), endpoint)
        raise
    finally:
        tell(Exchange("POST", route, {"question": index}, status, round(time.monotonic() - begun, 6), "", problem))


def _hidden(text: str, endpoint: Endpoint) -> str:
    """A server may repeat the key in its answer; what is kept must not."""
    return endpoint.clean(text.replace(endpoint.api_key, "(key)") if endpoint.api_key else text)
