"""Which questions a run asks, and the records that it keeps of the answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from vst.checkpoint.config_file import try_config
from vst.errors import VerificationError, VstError
from vst.lanes.fleet import named
from vst.lanes.session import Server, Session
from vst.oracle.probes import ProbeSet, make_probes
from vst.oracle.record import Record, take_record
from vst.server.facts import ServerFacts
from vst.server.seats import seat_name
from vst.server.speculation import read_drafted

CLAIMS = {"checkpoint": "B", "model": "A"}
"""What the content of each role is called."""


def choose_probes(session: Session, facts: ServerFacts) -> ProbeSet:
    """The probes of this run: from the vocabulary in config.json and the longest prompt that the server takes."""
    conf = session.conf.oracle
    vocab = vocab_size(session)
    room = (facts.max_model_len or conf.max_tokens + conf.output_tokens) - conf.output_tokens - 1
    longest = max(conf.min_tokens, min(conf.max_tokens, room))
    probes = make_probes(vocab, conf.probes, conf.min_tokens, longest, conf.output_tokens, conf.top_k, conf.seed)
    session.run.inputs["probes"] = {"digest": probes.digest, "probes": len(probes.prompts), "longest": longest}
    return probes


def vocab_size(session: Session) -> int:
    """The size of the vocabulary; VerificationError when config.json does not say it."""
    manifest = session.manifests.get("model") or session.manifests["checkpoint"]
    config = try_config(manifest.path) or {}
    for part in (config, config.get("text_config")):
        if isinstance(part, Mapping) and isinstance(part.get("vocab_size"), int):
            return int(part["vocab_size"])
    raise VerificationError(f"{manifest.path}/config.json has no vocab_size, so no probes can be made")


def take_each(session: Session, claim: str, file: str) -> list[Record]:
    """Take a record from every seat, one after the other; ``seat_name`` names the files."""
    return [take(session, seat, claim, seat_name(file, number)) for number, seat in enumerate(session.seats)]


@contextmanager
def counted(session: Session, server: Server, name: str) -> Iterator[None]:
    """Keep under ``name`` what the server drafted and accepted inside; nothing for a server that does not draft."""
    before = read_drafted(server.control)
    yield
    after = read_drafted(server.control) if before is not None else None
    if before is not None and after is not None:
        session.drafted[name] = after.since(before)


def take(session: Session, server: Server, claim: str, file: str) -> Record:
    """Take a record and write it to ``record-<file>.json``; counts what the server drafted for it, if it drafts."""
    probes, timeout = session.need("probes"), session.conf.server.request_timeout_s
    try:
        with counted(session, server, file):
            record = take_record(server.control, server.name, probes, claim, timeout)
    except VstError as error:
        raise named(error, server.title) from error
    content = {**record.to_json(), "noise_floor": session.floor}
    session.run.write(f"record-{file}.json", content)
    return record
