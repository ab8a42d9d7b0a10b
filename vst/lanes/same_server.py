"""Whether the servers are still those that were examined: the same processes, the same version, nobody else's label."""

from __future__ import annotations

from vst.errors import TransportError, VerificationError, VstError
from vst.lanes.fleet import Replica, named, over_all
from vst.lanes.session import Session
from vst.server.facts import Instance, read_label, read_start_time, read_version
from vst.verdict import Check, Outcome


class RestartedServer(VerificationError):
    """Another process answers than the one that was examined."""

    def __init__(self, before: Instance, after: Instance) -> None:
        super().__init__(
            f"the server was restarted behind our back: its process started at {after.start_time}, "
            f"the one that was examined at {before.start_time}; nothing proven before holds for it"
        )


class OtherVersion(VerificationError):
    """Another version answers than the one that was examined, whatever the process says of its start."""

    def __init__(self, before: str, after: str) -> None:
        super().__init__(
            f"the server was {before} when it was examined and is {after} now: it was replaced behind our back, and "
            "nothing proven before holds for it"
        )


class LabelMoved(VerificationError):
    """The weight version changed without an update of this run."""

    def __init__(self, before: str | None, after: str | None) -> None:
        super().__init__(
            f"the weight version changed behind our back: it was {before} after this run's last look and is {after} "
            "now; somebody else writes to this server"
        )


def expect_same_instances(session: Session) -> None:
    """VerificationError when one of the servers is answered for by another process than the one that was examined."""
    for replica in session.need("fleet").replicas:
        try:
            expect_same_instance(replica)
            expect_same_label(session, replica)
        except VstError as error:
            raise named(error, replica.server.title) from error


def note_labels(session: Session) -> None:
    """Remember the weight version of every server: until this run's next update it must not move."""
    session.labels = {one.server.title: read_label(one.server.control) for one in session.need("fleet").replicas}


def expect_same_label(session: Session, replica: Replica) -> None:
    """VerificationError when the weight version moved by itself; nothing is known of it after an update that failed."""
    title = replica.server.title
    before = replica.facts.weight_version if session.labels is None else session.labels.get(title)
    if before is not None and (found := read_label(replica.server.control)) != before:
        raise LabelMoved(before, found)


def expect_same_instance(replica: Replica) -> None:
    """VerificationError when another process answers than the one that was examined."""
    facts, server = replica.facts, replica.server
    if server.process is not None and not server.process.alive:
        raise TransportError(f"the server's process has ended; see {server.process.log.name}")
    found = read_start_time(server.control)
    if found != facts.instance.start_time:
        raise RestartedServer(facts.instance, Instance(found, None))
    version = read_version(server.control)
    if version != facts.version:
        raise OtherVersion(facts.version, version)


def same_check(session: Session) -> Check:
    """``server.same``: the processes that were examined are those that answer at the end, and nobody else updated
    them.
    """
    return over_all([(one.server.title, _same(session, one)) for one in session.need("fleet").replicas])


def _same(session: Session, replica: Replica) -> Check:
    expected = replica.facts.instance.to_json()
    try:
        expect_same_instance(replica)
        expect_same_label(session, replica)
    except VerificationError as error:
        return Check("server.same", Outcome.FAIL, expected=expected, reason=str(error))
    except TransportError as error:
        return Check("server.same", Outcome.ERROR, expected=expected, reason=str(error))
    return unchanged_check(replica.facts.instance, replica.server.process is not None)


def unchanged_check(instance: Instance, owned_process: bool) -> Check:
    """``server.same`` where nothing contradicts it: two answers without a start time agree and say nothing."""
    seen = instance.to_json()
    if instance.start_time is None and not owned_process:
        reason = "/metrics has no process_start_time_seconds, so a restart could not have been seen"
        return Check("server.same", Outcome.INCONCLUSIVE, seen, "the process that was examined", reason=reason)
    return Check("server.same", Outcome.PASS, seen, seen)
