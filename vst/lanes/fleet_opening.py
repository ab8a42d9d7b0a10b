"""How the servers under test come to a run: started or attached to, locked, and asked what they are."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from vst.errors import VerificationError
from vst.lanes.fleet import Fleet, Replica, Server
from vst.lanes.sending import rejoin
from vst.lanes.servers import UNDER_TEST, attach, examine, owned, start_server, start_servers, stop_server
from vst.lanes.session import Session
from vst.server.lifecycle import Lifecycle
from vst.server.lock import ServerLock
from vst.server.seats import seat_titles

T = TypeVar("T")


def open_servers(session: Session) -> None:
    """The servers under test: started on A, or those to attach to; from now on no other run of this machine uses them.

    ServerLocked names the process that has one of them.
    """
    session.servers = (
        start_servers(session, session.manifests["model"].path, UNDER_TEST) if owned(session) else attach(session)
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
    return Fleet(tuple(_replica(session, server, holds) for server in session.servers))


def _replica(session: Session, server: Server, holds: str) -> Replica:
    facts = examine(session, server)
    lifecycle = Lifecycle(server.control, partial(_moved, session, server.title))
    lifecycle.found(facts.paused is True, facts.sleeping is True, holds)
    return Replica(server, facts, lifecycle)


def restart(session: Session, index: int) -> None:
    """End one of the run's own servers and start another in its place, on A; the transfer group is made anew."""
    old = session.servers[index]
    if old.process is None:
        raise VerificationError(f"{old.title or 'the server'} was not started by this run: it cannot restart it")
    stop_server(session, old)
    rejoin(session)
    label = f"restarted-{session.transactions}"
    server = start_server(session, session.manifests["model"].path, label, index, old.title)
    session.servers = _replaced(session.servers, index, server)
    session.seats = take_seats(session)
    session.locks.append(ServerLock(server.control.base_url))
    session.fleet = Fleet(_replaced(session.need("fleet").replicas, index, _replica(session, server, "model")))


def _replaced(items: tuple[T, ...], index: int, one: T) -> tuple[T, ...]:
    return (*items[:index], one, *items[index + 1 :])


def _moved(session: Session, title: str, kind: str, **fields: Any) -> None:
    session.run.event(kind, **fields, **({"server": title} if title else {}))
