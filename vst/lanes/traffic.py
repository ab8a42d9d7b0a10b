"""Traffic beside a lane: the load of this run's configuration, what it may be answered, and where it is written."""

from __future__ import annotations

from vst.lanes.asking import vocab_size
from vst.lanes.servers import api_key
from vst.lanes.session import Server, Session
from vst.load.expected import Expected, learn
from vst.load.findings import Policy
from vst.load.generator import Limits, Load
from vst.load.log import LoadLog, read_log
from vst.load.workload import Pace, Target, Workload, make_workload
from vst.server.client import RANK_HEADER


def workload(session: Session) -> Workload:
    """The workload of this run: from the vocabulary in config.json and the longest prompt that the server takes."""
    conf, facts = session.conf.load, session.facts
    room = ((facts.max_model_len if facts else None) or conf.max_tokens + conf.output_tokens) - conf.output_tokens - 1
    longest = max(conf.min_tokens, min(conf.max_tokens, room))
    return make_workload(
        vocab_size(session),
        conf.prompts,
        conf.min_tokens,
        longest,
        conf.output_tokens,
        conf.stream_share,
        conf.seed,
    )


def policy(session: Session) -> Policy:
    """What an answer may be, as ``load.*`` declares it."""
    conf = session.conf.load
    return Policy(tuple(conf.refused), conf.aborted, conf.spanning, conf.settle_s)


def make_load(
    session: Session, name: str, pace: Pace | None = None, rank: int | None = None, seat: Server | None = None
) -> Load:
    """A load on the server under test, not started yet; it writes ``load-<name>.jsonl``.

    ``pace`` replaces the one of the configuration; ``rank`` addresses one data-parallel rank; ``seat`` is one of
    several servers or ranks.
    """
    conf, server = session.conf.load, seat or session.need("server")
    rank = server.control.rank if rank is None else rank
    headers = {} if rank is None else {RANK_HEADER: str(rank)}
    target = Target(server.control.base_url, server.name, api_key(session), headers)
    declared = Pace(conf.concurrency, conf.rate_per_s, conf.max_in_flight, conf.max_requests)
    limits = Limits(conf.request_s, conf.load_s)
    return Load(target, workload(session), pace or declared, limits, session.run.journal(log_file(name)))


def log_file(name: str) -> str:
    """The file of the load called ``name``."""
    return f"load-{name}.jsonl"


def read(session: Session, name: str) -> LoadLog:
    """The log of a load that was stopped."""
    return read_log((session.run / log_file(name)).read_bytes())


def learn_answers(session: Session, claim: str, name: str) -> Expected:
    """Ask every prompt of the workload of a server that nobody moves, and return what it answers.

    The caller must have proven that the server holds ``claim``. Writes ``load-<name>.jsonl`` and
    ``load-<name>-expected.json``; VerificationError when the server does not answer alike.
    """
    conf = session.conf.load
    pace = Pace(conf.concurrency, None, conf.max_in_flight, conf.prompts * conf.rounds)
    with make_load(session, name, pace) as load:
        load.mark("holds", claim=claim)
        load.run_out(conf.load_s)
        load.stop(conf.drain_s)
    log = read(session, name)
    expected = learn(claim, log.workload, log.answers)
    session.run.write(f"load-{name}-expected.json", expected.to_json())
    return expected
