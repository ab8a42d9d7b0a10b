"""Rows of the table about calls: answers that lie, never come or are cut, and a server that dies, at every phase."""

from __future__ import annotations

import random
from collections.abc import Iterator

from vst.selftest.row import Row, fault

SHORT_S = 4
BUCKETS = ("transfer.bucket_bytes=65536",)
SHORT = (
    *(f"transfer.timeouts.{phase}_s={SHORT_S}" for phase in ("join", "start", "broadcast", "finish")),
    f"server.request_timeout_s={SHORT_S}",
    *BUCKETS,
)
"""Deadlines for calls that never come back, and buckets small enough for a push of the embedded pair to have many."""

MOST_BUCKETS = 12
AROUND_A_PUSH = ("pause", "reset", "join", "start", "broadcast", "update", "finish", "resume")
COMPLETED = ("transfer.completed",)
L1_ASKS = 9
"""Completions of L1 with four probes: one for ``server.alive`` and two records."""


def rows(rng: random.Random) -> Iterator[Row]:
    """The rows of one seed."""
    yield from _lying(rng)
    for kind in ("hang", "cut", "die"):
        yield from _breaking(kind, rng)
    yield from _not_answering(rng)


def _lying(rng: random.Random) -> Iterator[Row]:
    for phase in ("finish", rng.choice(("join", "start", "update", "pause", "resume"))):
        body = rng.choice(({"error": "scripted failure"}, {"status": "failed"}, {"success": False}))
        lie = fault("answer", phase=phase, status=200, body=body, when=rng.choice(("before", "after")))
        yield Row(f"200_with_an_error_at_{phase}", "L2", lie, COMPLETED, "answered 200, but", overrides=BUCKETS,
                  quick=phase == "finish")  # fmt: skip
    bucket = rng.randrange(1, MOST_BUCKETS)
    lost = fault("answer", phase="broadcast", bucket=bucket, status=500, body={"error": f"bucket {bucket} is lost"})
    yield Row("500_at_bucket_k", "L2", lost, COMPLETED, "answered 500", overrides=BUCKETS, quick=True)
    second = fault("answer", phase=rng.choice(("start", "update", "finish")), status=503, first=2)
    yield Row("503_in_the_second_update", "L2", second, COMPLETED, "answered 503", overrides=BUCKETS)


def _breaking(kind: str, rng: random.Random) -> Iterator[Row]:
    for phase in AROUND_A_PUSH:
        fields = {"bucket": rng.randrange(1, MOST_BUCKETS)} if phase == "broadcast" else {}
        # Of some calls it makes a difference whether they were obeyed before they broke.
        when = "before" if phase == "broadcast" else rng.choice(("before", "after"))
        broken = fault(kind, phase=phase, when=when, **fields)
        quick = phase in ("broadcast", "finish") and kind != "cut"
        yield Row(f"{kind}_at_{phase}", "L2", broken, COMPLETED, overrides=SHORT, quick=quick)


def _not_answering(rng: random.Random) -> Iterator[Row]:
    silent = fault("hang", phase="generate")
    yield Row("health_green_while_generation_hangs", "L1", silent, ("server.alive",), overrides=SHORT, quick=True)
    later = rng.randrange(L1_ASKS + 1, L1_ASKS + 5)
    for kind in ("hang", "cut", "die"):
        broken = fault(kind, phase="generate", first=later, when=rng.choice(("before", "after")))
        yield Row(f"{kind}_at_generate", "L2", broken, ("server.answers",), overrides=SHORT)
    refused = fault("answer", phase="generate", first=later, status=500)
    yield Row("500_at_generate", "L2", refused, ("server.answers",), overrides=SHORT)
