"""Lane ``eval``: audit A, ask the server what it is, then the questions of the eval group; nothing is changed."""

from __future__ import annotations

from vst.errors import TransportError, VstError
from vst.evals.defaults import server_defaults
from vst.evals.store import Evaluation
from vst.lanes import eval_checks
from vst.lanes.evaluation import make_plan, rules, server_identity, take_evaluation
from vst.lanes.examine import run_contract
from vst.lanes.files import run_files, still_stable
from vst.lanes.fleet_opening import open_servers
from vst.lanes.ladder import Show, not_started
from vst.lanes.same_server import same_check
from vst.lanes.sending import start_publisher
from vst.lanes.session import Session
from vst.verdict import Check, LaneVerdict, Outcome, Verdict


def evaluate_model(session: Session, verdict: Verdict, show: Show) -> None:
    """L0 of A, L1, and the evaluation, which goes to ``evaluation-eval.jsonl``."""
    files, before = run_files(session)
    verdict.lanes.append(files)
    show(files)
    if not files.passed:
        return
    verdict.lanes.append(_contract(session))
    show(verdict.lanes[-1])
    if verdict.lanes[-1].passed:
        verdict.lanes.append(_evaluation(session))
        show(verdict.lanes[-1])
    verdict.lanes[0] = LaneVerdict("L0", (*files.checks, still_stable(before, session)))


def _contract(session: Session) -> LaneVerdict:
    try:
        start_publisher(session)
        open_servers(session)
    except VstError as error:
        return not_started(error)
    return run_contract(session)


def _evaluation(session: Session) -> LaneVerdict:
    try:
        return LaneVerdict("eval", (*_ask(session), same_check(session)))
    except VstError as error:
        outcome = Outcome.ERROR if isinstance(error, TransportError) else Outcome.REFUSED
        check = Check("eval.complete", outcome, expected="an answer to every question", reason=str(error))
        return LaneVerdict("eval", (check,))


def _ask(session: Session) -> tuple[Check, ...]:
    if session.conf.eval.kind == "lm_eval":
        from vst.lanes.evaluate_lm_eval import run_lm_eval

        found = run_lm_eval(session)
        return eval_checks.complete_check({"eval": found}, ("eval",)), accuracy_check(session, found)
    plan = make_plan(session)
    identity = server_identity(session, "model", session.need("facts"))
    found = take_evaluation(session, session.need("seat"), plan, "A", "eval", identity)
    defaults = server_defaults(session.manifests["model"].path, session.need("facts").config)
    return (
        eval_checks.complete_check({"eval": found}, ("eval",)),
        eval_checks.pinned_check({"eval": found}, plan.to_json(), defaults),
        accuracy_check(session, found),
    )


def accuracy_check(session: Session, found: Evaluation) -> Check:
    """``eval.accuracy``: what was right by both readings; told, not judged, because nothing says what it should be."""
    observed = {rule: found.right(rule) for rule in ("strict", "flexible")}
    why = f"counted by {rules(session).extraction}; one evaluation alone is compared with nothing"
    observed["questions"] = len(found.records)
    return Check("eval.accuracy", Outcome.NOT_APPLICABLE, observed, None, reason=why)
