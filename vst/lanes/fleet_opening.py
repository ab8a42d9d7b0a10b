"""How the servers under test come to a run: started or attached to, locked, and asked what they are."""

from __future__ import annotations

from functools import partial
from typing import Any

from vst.lanes.fleet import Fleet, Replica, Server
from vst.lanes.servers import attach, examine, owned, start_servers
from vst.lanes.session import Session
from vst.server.lifecycle import Lifecycle
from vst.server.lock import ServerLock
from vst.server.seats import seat_titles


def open_servers(session: Session) -> None:
    """The servers under test: started on A, or those to attach to; from now on no other run of this machine uses them.

    ServerLocked names the process that has one of them.
    """
    session.servers = (
        start_servers(session, session.manifests["model"].path, "model") if owned(session) else attach(session)
    )
    session.seats = take_seats(session)
    for server in session.servers:
        session.locks.append(ServerLock(server.control.base_url))


def take_seats(session: Session) -> tuple[Server, ...]:
    """Every place of the servers that answers by itself: each server, or each of its data-parallel ranks."""
    conf = session.conf.server
    if conf.data_parallel_size == 1:
        return session.servers
    ranks = [(server, rank) for server in session.servers for rank in range(conf.data_parallel_size)]
    return tuple(
        Server(server.control.to_rank(rank), server.name, server.process, title)
        for (server, rank), title in zip(ranks, seat_titles(vars(conf)), strict=True)
    )


def make_fleet(session: Session, holds: str) -> Fleet:
    """Ask every server what it is and take over the state in which it is found, with ``holds`` as its content."""
    replicas = []
    for server in session.servers:
        facts = examine(session, server)
        lifecycle = Lifecycle(server.control, partial(_moved, session, server.title))
        lifecycle.found(facts.paused is True, facts.sleeping is True, holds)
        replicas.append(Replica(server, facts, lifecycle))
    return Fleet(tuple(replicas))


def _moved(session: Session, title: str, kind: str, **fields: Any) -> None:
    session.run.event(kind, **fields, **({"server": title} if title else {}))
