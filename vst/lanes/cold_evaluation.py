"""The evaluation of B by a server that was started cold on it: from a file, from the cache, or taken for this run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vst.errors import VerificationError
from vst.evals.plan import Plan, pinned_digest
from vst.evals.store import Evaluation, read_evaluation
from vst.lanes.eval_checks import need_reference
from vst.lanes.evaluation import make_plan, server_identity, take_evaluation
from vst.lanes.references import make_key, moved
from vst.lanes.sending import start_publisher
from vst.lanes.servers import examine, start_server, stop_server
from vst.lanes.session import Server, Session
from vst.oracle.reference import ReferenceKey
from vst.provenance.atomic import write_atomic
from vst.server.facts import ServerFacts

NAME = "reference"
FILE = f"evaluation-{NAME}.jsonl"


class ColdEvaluation:
    """Looks for a stored evaluation first; ``take`` is for a cold server that somebody has started anyway."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.plan: Plan = make_plan(session)
        self._key = self._make_key()
        session.cold_evaluation = self._stored()

    def _make_key(self) -> ReferenceKey:
        publisher = self._session.publisher or start_publisher(self._session)
        key = make_key(self._session, "checkpoint", publisher.wait_ready())
        return replace(key, probes=f"evaluation {self.plan.digest}")

    @property
    def found(self) -> bool:
        return self._session.cold_evaluation is not None

    def _stored(self) -> Evaluation | None:
        conf = self._session.conf.eval
        if conf.reference:
            path = Path(conf.reference).expanduser().absolute()
            content = str(self._session.manifests["checkpoint"].content_digest)
            need_reference(read_evaluation(path), self.plan.digest, content, str(path))
            return self._kept(path)
        if not conf.reference_cache:
            return None
        try:
            stored = read_evaluation(self._cached)
        except VerificationError:
            return None
        # A file under another's name is no evaluation of this checkpoint.
        same = stored.header.get("key") == self._key.to_json() and pinned_digest(stored.plan) == self.plan.digest
        return self._kept(self._cached) if same and stored.complete and not stored.failed else None

    @property
    def _cached(self) -> Path:
        directory = Path(self._session.conf.paths.cache).expanduser().absolute() / "evaluations"
        return directory / f"{self._key.digest}.jsonl"

    def _kept(self, path: Path) -> Evaluation:
        """Keep it in the run directory wherever it came from, so that the run can be judged again offline."""
        self._session.progress.say(f"evaluation of cold B: {path}")
        data = path.read_bytes()
        self._session.run.write_bytes(FILE, data)
        return read_evaluation(self._session.run / FILE)

    def take(self, server: Server, facts: ServerFacts) -> None:
        """Evaluate a cold server on B, and keep it for later runs when every question was answered."""
        session = self._session
        identity = server_identity(session, "checkpoint", facts) | {"instance": None, "updates": 0}
        found = take_evaluation(session, server, self.plan, "B", NAME, identity)
        session.cold_evaluation = found
        whole = found.complete and not found.failed and not moved(session, "checkpoint")
        if session.conf.eval.reference_cache and whole:
            self._cached.parent.mkdir(parents=True, exist_ok=True)
            keyed = replace(found, header={**found.header, "key": self._key.to_json()})
            write_atomic(self._cached, keyed.to_bytes())

    def start_and_take(self) -> None:
        """Start a cold server for nothing but this."""
        session = self._session
        session.progress.say("evaluation of B: starting a cold server on B (kept in the cache for the next run)")
        server = start_server(session, session.manifests["checkpoint"].path, "reference-evaluation")
        try:
            self.take(server, examine(session, server))
        finally:
            stop_server(session, server)
