"""``eval=lm_eval``: a task of lm-eval as a child with a deadline, and its samples as an evaluation of ours."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from vst.errors import TransportError, VerificationError
from vst.evals import lm_eval
from vst.evals.plan import Sampling
from vst.evals.store import Evaluation
from vst.lanes.evaluation import server_identity
from vst.lanes.servers import api_key
from vst.lanes.session import Session
from vst.lifeline import guarded
from vst.server.launch import without_scheduler
from vst.server.process import tail

LOG = "lm_eval.log"
OUT = "lm_eval"
FILE = "evaluation-eval.jsonl"


def run_lm_eval(session: Session) -> Evaluation:
    """Run the task against the session's server; VerificationError when lm-eval is not installed."""
    if not lm_eval.installed():
        raise VerificationError("eval=lm_eval needs the package lm-eval: install vst with the extra lm-eval")
    conf, server = session.conf.eval, session.need("server")
    sampling = Sampling(conf.max_tokens, conf.temperature, conf.top_p, conf.seed, tuple(conf.stop))
    task, out = str(conf.task), session.run / OUT
    include = str(Path(conf.include_path).expanduser().absolute()) if conf.include_path else None
    argv = lm_eval.command(
        task, server.control.base_url, server.name, out, sampling, conf.concurrency, conf.limit, include,
        conf.request_timeout_s,
    )  # fmt: skip
    session.progress.say(f"lm-eval, task {task} ({LOG})")
    session.run.event("lm_eval_start", argv=argv)
    _run(session, argv, conf.timeout_s)
    samples = lm_eval.find_samples(out, task)
    identity = server_identity(session, "model", session.need("facts"))
    found = lm_eval.read_samples(samples, "A", task, identity)
    session.run.inputs["dataset"] = {"name": f"lm_eval/{task}", "digest": found.plan["questions"]}
    session.run.inputs["prompts"] = {"digest": found.plan["prompts"], "style": "lm_eval"}
    session.run.write_bytes(FILE, found.to_bytes())
    return found


def _run(session: Session, argv: list[str], timeout_s: float) -> None:
    """Run it to its end under the guard, so that nothing of it outlives the run; TransportError says how it failed."""
    log = session.run / LOG
    key = api_key(session)
    # lm-eval takes its key from the variable of another service; without one it refuses to start.
    env = {**without_scheduler(os.environ), "OPENAI_API_KEY": key or "none", "NO_COLOR": "1"}
    env["LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER"] = lm_eval.NOTHING
    with log.open("ab") as file:
        child = subprocess.Popen(
            guarded(argv), stdin=subprocess.PIPE, stdout=file, stderr=file, env=env, start_new_session=True
        )
    try:
        code = child.wait(timeout_s)
    except BaseException as error:
        if child.stdin is not None:
            child.stdin.close()
        child.wait(30)
        if isinstance(error, subprocess.TimeoutExpired):
            raise TransportError(f"lm-eval did not end after {timeout_s:g} s (eval.timeout_s); see {LOG}") from error
        raise
    if code != 0:
        raise TransportError(f"lm-eval ended with code {code}; the end of {LOG}:\n{tail(log)}")
