"""Who answers in a run: every server, and of a server with data parallelism every rank. Names only; nothing is asked.

A *seat* is one place that answers by itself. The only server of a run has no name; one of several is called by its
address when it was attached to, and by its number when the run started it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def server_titles(server: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of a run's servers, from the ``server`` group of its configuration; the only one has the empty name."""
    addresses = [str(url) for url in server.get("base_urls") or ()]
    count = len(addresses) or int(server.get("replicas") or 1)
    if count == 1:
        return ("",)
    return tuple(addresses) or tuple(f"server {number}" for number in range(1, count + 1))


def seat_titles(server: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of all seats in order: the ranks of the first server, those of the second, and so on."""
    ranks = int(server.get("data_parallel_size") or 1)
    if ranks == 1:
        return server_titles(server)
    return tuple(f"{title} rank {rank}".strip() for title in server_titles(server) for rank in range(ranks))


def seat_name(name: str, seat: int) -> str:
    """What a seat's record is called (from 0): the first has the plain name, the others their number after an ``@``."""
    return name if seat == 0 else f"{name}@{seat + 1}"
