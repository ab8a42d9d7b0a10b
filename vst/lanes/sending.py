"""The publisher of a run: started early, joined once, told what to send."""

from __future__ import annotations

import ipaddress
import os
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vst.errors import TransportError, VerificationError
from vst.lanes.servers import hosts, split
from vst.lanes.session import Server, Session
from vst.server.allocation import VISIBLE
from vst.server.launch import without_scheduler
from vst.transfer.plan import JoinPlan, Member
from vst.transfer.publisher import Deadlines, Publisher
from vst.transfer.route import address_towards


def start_publisher(session: Session) -> Publisher:
    """Start the publisher's process, which takes its imports while something else goes on."""
    timeouts = session.conf.transfer.timeouts
    deadlines = Deadlines(
        timeouts.boot_s, timeouts.join_s, timeouts.start_s, timeouts.broadcast_s, timeouts.finish_s, _slowest(session)
    )
    prefix = tuple(session.conf.publisher.launch_prefix)
    publisher = Publisher(deadlines, session.run / "publisher.log", partial(_published, session), prefix)
    own = split(session).publisher
    device = {"VLLM_TARGET_DEVICE": "cpu"} if session.conf.publisher.device == "cpu" else {}
    visible = {VISIBLE: ",".join(own)} if own is not None else {}
    publisher.start({**without_scheduler(os.environ), "VLLM_NO_USAGE_STATS": "1", **device, **visible})
    session.run.event("publisher_start", pid=publisher.pid, devices=own)
    session.publisher = publisher
    return publisher


def _slowest(session: Session) -> float:
    """The bytes a second below which a broadcast is given up; a push that is slowed down on purpose is not."""
    transfer = session.conf.transfer
    rate, least = transfer.rate_limit_bytes_per_s, transfer.timeouts.min_bytes_per_s
    return min(least, rate / 2) if rate else least


def _published(session: Session, report: dict[str, Any]) -> None:
    # An event has a kind of its own; that of a failure is told beside it.
    fields = {{"kind": "failure"}.get(key, key): value for key, value in report.items() if key != "event"}
    session.run.event(f"publisher_{report['event']}", **fields)
    session.run.evidence.timeline.publisher(report)
    if report["event"] == "ready":
        session.run.evidence.libraries = {"vllm": report["vllm"], **report.get("libraries", {})}
    if report["event"] == "progress":
        session.progress.bytes("sent", report["bytes"], report["total"])
    for heard in list(session.watchers):
        heard(report)


def join_plan(session: Session, layout: Path) -> JoinPlan:
    """Where the publisher meets the workers of all servers, and how long it may wait for them."""
    conf, replicas = session.conf, session.need("fleet").replicas
    timeouts = conf.transfer.timeouts
    longest = longest_broadcast(session)
    return JoinPlan(
        layout=str(layout),
        members=tuple(
            Member(called(session, one.server), one.facts.world_size or 0, one.server.title) for one in replicas
        ),
        api_key_env=conf.server.api_key_env,
        backend=conf.transfer.backend,
        master_address=conf.transfer.master_address
        or _rendezvous(session, [one.server.control.base_url for one in replicas]),
        port=conf.transfer.port,
        bucket_bytes=conf.transfer.bucket_bytes,
        device=split(session).device,
        timeout_s=max(longest, timeouts.join_s),
        http_timeout_s=max(longest, timeouts.join_s, timeouts.finish_s),
        ring=conf.transfer.ring,
        staging=conf.transfer.staging,
    )


def leave(session: Session) -> None:
    """Give the transfer group up: the next push is made by a new publisher, which joins the servers anew."""
    if session.publisher is not None:
        session.publisher.stop()
    session.publisher, session.joined = None, False


def rejoin(session: Session) -> None:
    """Have the next push make the transfer group anew, by the same publisher where its port is not a fixed one."""
    if session.conf.transfer.port:
        # The store of the old group listens there as long as the process lives.
        leave(session)
    session.joined = False


def called(session: Session, server: Server) -> str:
    """The address by which the publisher calls a server: its own, unless there is a detour."""
    return session.detours.get(server.control.base_url, server.control.base_url)


def longest_broadcast(session: Session) -> float:
    """Seconds after which a broadcast of the larger checkpoint is given up."""
    return session.conf.transfer.timeouts.broadcast_s + _largest_total(session) / _slowest(session)


def _rendezvous(session: Session, base_urls: list[str]) -> str:
    """Where the servers' workers find the publisher: on another node only by this host's name in the job."""
    nodes = hosts(session) if session.conf.server.launch_prefix else ()
    return nodes[0] if len(nodes) > 1 else one_address([_route_to(url) for url in base_urls])


def one_address(routes: list[str]) -> str:
    """The address that serves all routes: only this machine's own servers can use the loopback one.

    VerificationError when the servers reach this machine by different addresses.
    """
    outside = sorted({route for route in routes if not ipaddress.ip_address(route.partition("%")[0]).is_loopback})
    if len(outside) > 1:
        raise VerificationError(
            f"the servers reach this machine by different addresses, {', '.join(outside)}: set transfer.master_address "
            "to one that all of them can use"
        )
    return outside[0] if outside else routes[0]


def _largest_total(session: Session) -> int:
    return max((manifest.total_bytes for manifest in session.manifests.values()), default=0)


def join(session: Session) -> None:
    """Make the publisher and all servers one transfer group, once."""
    if not session.joined:
        publisher = session.publisher or start_publisher(session)
        layout = session.manifest_files.get("model") or session.manifest_files["checkpoint"]
        publisher.join(join_plan(session, layout))
        session.joined = True


def _route_to(base_url: str) -> str:
    """The address of this machine on the way to the server, under which its workers can reach the publisher."""
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        return address_towards(parts.hostname or "127.0.0.1", port)
    except OSError as error:
        raise TransportError(f"no route to {parts.hostname}:{port}: {error}; set transfer.master_address") from error
