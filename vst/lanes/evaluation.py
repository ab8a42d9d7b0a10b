"""One evaluation in one state of a server: what is asked, of whom, and the file that the answers go to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from vst.errors import VerificationError
from vst.evals.arithmetic import make_questions
from vst.evals.asking import Endpoint, evaluate
from vst.evals.judging import Rules
from vst.evals.plan import Plan, Sampling
from vst.evals.prompts import make_prompts
from vst.evals.question import Question, choose, read_questions
from vst.evals.store import Evaluation, make_header, read_evaluation
from vst.lanes.asking import counted
from vst.lanes.servers import NO_TOKENIZER, api_key, owned, spec
from vst.lanes.session import Server, Session
from vst.oracle.reference import stable_facts
from vst.provenance.atomic import file_sha256
from vst.server.client import Exchange
from vst.server.facts import ServerFacts

TOLD_EVERY = 50
EMBEDDED = 64


def make_plan(session: Session) -> Plan:
    """The questions of the eval group with their prompts; VerificationError when a file of them cannot be used."""
    conf = session.conf.eval
    if NO_TOKENIZER in spec(session).args:
        raise VerificationError("the checkpoint has no tokenizer, so the server cannot be asked in words")
    questions, shots, source = _from_files(session) if conf.dataset else _embedded(session)
    sampling = Sampling(conf.max_tokens, conf.temperature, conf.top_p, conf.seed, tuple(conf.stop))
    prompts = make_prompts(questions, shots, conf.style)
    plan = Plan(conf.name, source, questions, prompts, shots, conf.style, sampling, conf.concurrency)
    account = plan.to_json()
    session.run.inputs["dataset"] = {**source, "count": len(questions), "digest": account["questions"]}
    session.run.inputs["prompts"] = {"digest": account["prompts"], "style": plan.style, "shots": account["shots"]}
    return plan


def _embedded(session: Session) -> tuple[tuple[Question, ...], tuple[Question, ...], dict[str, Any]]:
    """The embedded set; its examples are the questions that come after those that are asked."""
    conf = session.conf.eval
    count = conf.limit or EMBEDDED
    made = make_questions(count + conf.shots, conf.seed)
    return made[:count], made[count:], {"name": conf.name, "made_from_seed": conf.seed}


def _from_files(session: Session) -> tuple[tuple[Question, ...], tuple[Question, ...], dict[str, Any]]:
    conf = session.conf.eval
    path = Path(str(conf.dataset)).expanduser().absolute()
    source: dict[str, Any] = {"name": conf.name, "path": str(path)}
    questions = choose(read_questions(path), conf.limit, str(path))
    source["sha256"] = file_sha256(path)
    if not conf.shots:
        return questions, (), source
    examples = Path(str(conf.shots_dataset)).expanduser().absolute()
    shots = choose(read_questions(examples), conf.shots, str(examples))
    return questions, shots, {**source, "shots_path": str(examples), "shots_sha256": file_sha256(examples)}


def rules(session: Session) -> Rules:
    conf = session.conf.eval
    return Rules(conf.alpha, conf.margin, conf.power, conf.extraction)


def server_identity(session: Session, role: str, facts: ServerFacts) -> dict[str, Any]:
    """Which server in which state answers: a later run may go on with what was asked only of the same.

    ``updates`` is how many transactions of this run came before.
    """
    draft = session.manifests.get(f"draft-{role}")
    instance = {**facts.instance.to_json(), "weight_version": facts.weight_version}
    return {
        "content_digest": session.manifests[role].content_digest,
        "draft_content_digest": draft.content_digest if draft else None,
        "instance": None if owned(session) else instance,
        "facts": stable_facts(facts),
        "updates": session.transactions,
    }


def take_evaluation(
    session: Session, server: Server, plan: Plan, claim: str, name: str, identity: dict[str, Any]
) -> Evaluation:
    """Ask all questions of the server; the answers are in ``evaluation-<name>.jsonl``, in order when it is whole."""
    file = f"evaluation-{name}.jsonl"
    path, resume = session.run / file, session.conf.eval.resume
    resumed = read_evaluation(Path(resume).expanduser().absolute()) if resume else None
    header = make_header(claim, plan.to_json(), identity)
    session.progress.say(f"{len(plan.questions)} questions: {claim} ({file})")
    phase = session.run.evidence.timeline.begin(f"evaluation {name}")
    with counted(session, server, file):
        found = evaluate(plan, _endpoint(session, server), path, header, resumed, _heard(session), _told(session))
    phase.end()
    drafted = session.drafted.get(file) if resumed is None else None
    found = replace(found, drafted=drafted.to_json() if drafted else None)
    session.run.adopt(file)
    session.run.write_bytes(file, found.to_bytes())
    session.run.event("evaluation", file=file, claim=claim, records=len(found.records), failed=len(found.failed))
    return found


def _endpoint(session: Session, server: Server) -> Endpoint:
    conf, clean = session.conf.eval, session.run.scrubber.text
    where, rank = server.control.base_url, server.control.rank
    return Endpoint(where, server.name, api_key(session), conf.request_timeout_s, conf.retries, clean, rank)


def _heard(session: Session) -> Callable[[Exchange], None]:
    def heard(exchange: Exchange) -> None:
        session.run.event("http", **exchange.to_json())

    return heard


def _told(session: Session) -> Callable[[int, int], None]:
    def told(done: int, total: int) -> None:
        if done % TOLD_EVERY == 0 and done < total:
            session.progress.say(f"{done} of {total} answered")

    return told
