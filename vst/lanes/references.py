"""Where the reference of B comes from: a given file, the cache, or a server that is started cold on B for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from vst.checkpoint.stability import changed, identities
from vst.errors import VerificationError
from vst.lanes.asking import choose_probes, take, vocab_size
from vst.lanes.sending import start_publisher
from vst.lanes.servers import REFERENCE, examine, spec, start_server, stop_server
from vst.lanes.session import Server, Session
from vst.oracle.record import Record
from vst.oracle.reference import Reference, ReferenceCache, ReferenceKey, comparable_facts, read_reference
from vst.provenance.links import use_reference
from vst.provenance.redaction import looks_secret
from vst.server.facts import ServerFacts
from vst.server.launch import flags

FORWARDED = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VLLM_CPU_KVCACHE_SPACE",
    "VLLM_ATTENTION_BACKEND",
    "CUDA_VISIBLE_DEVICES",
)
"""Inherited variables that can change an answer or the device; they are part of a reference's key."""


Besides = Callable[[Server, ServerFacts], None]
"""What else is done with a cold server on B before it is stopped."""


def obtain(session: Session, besides: Besides | None = None) -> Reference:
    """The reference of checkpoint B; starts and stops a server of its own when there is none yet.

    ``besides`` is called with that server, and only if one is started.
    Its record is kept in the run directory wherever it came from, so that the run can be judged again offline.
    """
    given = session.conf.oracle.reference
    if given:
        path = Path(given).expanduser().absolute()
        reference = read_reference(path)
        _expect_of_b(session, reference)
        return _kept(session, reference, path)
    publisher = session.publisher or start_publisher(session)
    key = make_key(session, "checkpoint", publisher.wait_ready())
    if session.conf.oracle.reference_cache:
        found = _cache(session).load(key)
        if found is not None:
            session.progress.say("reference of B: from the cache")
            return _kept(session, found, _cache(session).path(key))
    return _cold(session, key, besides)


def _expect_of_b(session: Session, reference: Reference) -> None:
    """VerificationError where a reference that was given is of another checkpoint: every answer would look wrong."""
    content = session.manifests["checkpoint"].content_digest
    if reference.content_digest != content:
        raise VerificationError(
            f"the reference {reference.source} is of a checkpoint with the content {reference.content_digest}, and B "
            f"has {content}: take one of B with lane=record, or leave oracle.reference out"
        )


def _kept(session: Session, reference: Reference, origin: Path) -> Reference:
    use_reference(session.run, {**reference.record.to_json(), "noise_floor": None}, origin)
    return reference


def make_key(session: Session, role: str, versions: Mapping[str, str]) -> ReferenceKey:
    """The key of a role's reference: content, flags, environment, versions, and how the probes are made."""
    flagged, oracle, manifest = spec(session), session.conf.oracle, session.manifests[role]
    inherited = {name: os.environ[name] for name in FORWARDED if name in os.environ}
    probes = [oracle.probes, oracle.seed, oracle.min_tokens, oracle.max_tokens, oracle.output_tokens, oracle.top_k]
    return ReferenceKey(
        content_digest=str(manifest.content_digest),
        files=manifest.files,
        flags=(flagged.kind, *flags(flagged)),
        # The key is written into the cache: a token decides no answer and does not belong there.
        env={name: value for name, value in {**inherited, **flagged.env}.items() if not looks_secret(name)},
        versions=versions,
        probes=f"{probes} of {vocab_size(session)}",
        draft=str(draft.content_digest) if (draft := session.manifests.get(f"draft-{role}")) else None,
    )


def _cold(session: Session, key: ReferenceKey, besides: Besides | None) -> Reference:
    session.progress.say("reference of B: starting a cold server on B (kept in the cache for the next run)")
    server = start_server(session, session.manifests["checkpoint"].path, REFERENCE)
    try:
        facts = examine(session, server)
        session.probes = choose_probes(session, facts)
        record = take(session, server, "B", "reference")
        if besides is not None:
            besides(server, facts)
    finally:
        stop_server(session, server)
    use_reference(session.run, None, None)
    return keep(session, "checkpoint", key, record, facts, started=True)


def keep(
    session: Session, role: str, key: ReferenceKey, record: Record, facts: ServerFacts, started: bool
) -> Reference:
    """Make a reference of a record from a fresh process on the checkpoint ``role``, and store it for later runs.

    It is stored only if this run ``started`` the process, and only if the files are still those that were audited: a
    process that loaded others would be a reference of something that nobody has any more.
    """
    source = "a cold server of this run" if started else "a running server, cold as far as it tells"
    drafted = session.drafted.get("reference" if role == "checkpoint" else "model-1")
    reference = Reference(record, key.content_digest, comparable_facts(facts), source, drafted)
    if session.conf.oracle.reference_cache and started and not moved(session, role):
        _cache(session).store(key, reference)
    return reference


def moved(session: Session, role: str) -> list[str]:
    """The files of a checkpoint that were changed, removed or added since they were audited."""
    return changed(session.audited[role], identities(session.manifests[role].path))


def _cache(session: Session) -> ReferenceCache:
    return ReferenceCache(Path(session.conf.paths.cache).expanduser().absolute() / "references")
