"""The server on the bench: pushes and reloads with a look after each, and the way back to A between two of them."""

from __future__ import annotations

from pathlib import Path

from vst.checkpoint.mixture import write_mixture
from vst.errors import VerificationError
from vst.lanes.asking import take
from vst.lanes.diagnose.found import Diagnosis, Look
from vst.lanes.diagnose.narrow import OutOfPushes
from vst.lanes.fleet_opening import restart
from vst.lanes.servers import MIXTURE, start_server, stop_server
from vst.lanes.session import Session
from vst.lanes.transaction import Push, transact
from vst.oracle.compare import difference
from vst.oracle.record import Record
from vst.transfer.plan import Sent

FIRST, COLD_B = "record-model-1.json", "record-reference.json"


class Bench:
    """One server under test. ``right`` is whether it was seen to answer as a cold one with its content would.

    ``scratch`` is a directory for mixtures, which are as large as a checkpoint and are removed after their cold start.
    """

    def __init__(self, session: Session, cold_b: Record, found: Diagnosis, scratch: Path) -> None:
        self._session = session
        self._found = found
        self._scratch = scratch
        self._cold = {FIRST: session.records[0], COLD_B: cold_b}
        self._taken: dict[str, Record] = {}
        self.sent: list[Sent] = []
        self.right = True

    def push(self, what: str, push: Push, expected: str, left_out: tuple[str, ...] = (), tensors: int = 0) -> Look:
        """One transaction and a look; OutOfPushes when the limit is reached."""
        self.expect_room()
        self._found.pushes += 1
        self._say(what, left_out)
        self.right = False
        self.sent.append(transact(self._session, push))
        return self._look(what, expected, left_out, tensors)

    def expect_room(self) -> None:
        """OutOfPushes when no push is left: before a cold server is started for one."""
        if self._found.pushes >= self._found.limit:
            raise OutOfPushes

    def reload(self, role: str, expected: str) -> Look:
        """vLLM's own reload from disk, with the same moves around it, and a look. HttpFailure where it is refused."""
        session, manifest = self._session, self._session.manifests[role]
        fleet, [replica] = session.need("fleet"), session.need("fleet").replicas
        self._say("reload", ())
        self.right = False
        fleet.each(lambda lifecycle: lifecycle.pause(session.conf.lane.pause_mode))
        fleet.each(lambda lifecycle: lifecycle.reset_caches())
        fleet.each(lambda lifecycle: lifecycle.begin_push(role))
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(manifest.path)}}
        replica.server.control.post("/collective_rpc", body, timeout_s=session.conf.transfer.timeouts.finish_s)
        fleet.each(lambda lifecycle: lifecycle.end_push(role))
        fleet.each(lambda lifecycle: lifecycle.reset_caches())
        fleet.each(lambda lifecycle: lifecycle.resume())
        return self._look("reload", expected, (), len(manifest.tensors))

    def restart(self) -> None:
        """A fresh server on A, which must answer as the first did."""
        self._session.progress.say("restarting the server on A")
        restart(self._session, 0)
        self._session.labels = None
        self._session.label = self._session.need("facts").weight_version
        if not self._look("restart", FIRST, (), 0).equal:
            raise VerificationError("a fresh server on A does not answer like the first one: nothing can be compared")

    def to_a(self) -> None:
        """Bring the server back to A by a push, or by a restart where that does not do it."""
        if self._found.pushes < self._found.limit:
            count = len(self._session.manifests["model"].tensors)
            if self.push("back", Push("model", purpose="diagnose.back"), FIRST, (), count).equal:
                return
        self.restart()

    def cold_mixture(self, kept: tuple[str, ...]) -> str:
        """The record of a server that was started cold on B with the tensors ``kept`` at A's values; its file.

        It is started by the same words as the server under test, so that its own account is not asked for again.
        """
        session = self._session
        number = sum(name.startswith("record-mixture") for name in self._cold) + 1
        directory = self._scratch / f"{MIXTURE}-{number}"
        session.progress.say(f"starting a cold server on B with {len(kept)} tensors of A")
        write_mixture(directory, session.manifests["checkpoint"], session.manifests["model"], kept)
        server = start_server(session, directory, directory.name)
        try:
            record = take(session, server, f"B with {len(kept)} tensors of A, cold", directory.name)
        finally:
            stop_server(session, server)
        for file in sorted(directory.iterdir()):
            file.unlink()
        directory.rmdir()
        file_name = f"record-{directory.name}.json"
        self._cold[file_name] = record
        return file_name

    def taken(self, look: Look) -> Record:
        """The record of a look."""
        return self._taken[look.record]

    def _look(self, what: str, expected: str, left_out: tuple[str, ...], tensors: int) -> Look:
        session, name = self._session, f"diagnose-{len(self._found.looks) + 1}"
        record = take(session, session.need("seat"), what, name)
        apart = difference(record, self._cold[expected], session.need("floor"))
        look = Look(what, left_out, tensors, f"record-{name}.json", expected, apart.to_json())
        self._taken[look.record] = record
        self._found.looks.append(look)
        self.right = look.equal
        if look.equal:
            session.need("fleet").each(lambda lifecycle: lifecycle.verify())
        return look

    def _say(self, what: str, left_out: tuple[str, ...]) -> None:
        words = {"identity": "A over A", "to_b": "to B", "back": "back to A", "reload": "reload_weights from disk"}
        said = words.get(what, "A over A in part" if what == "part" else "B with a part kept at A")
        without = f", without {len(left_out)} part(s)" if left_out else ""
        self._session.progress.say(f"push {self._found.pushes} of {self._found.limit}: {said}{without}")
