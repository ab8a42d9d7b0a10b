"""The servers of a run: how they are started, attached to, asked what they are, and stopped."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from vst.attempt import left_half_done
from vst.errors import ConfigError, TransportError, VerificationError
from vst.lanes.session import Server, Session
from vst.provenance.runtime import server_facts
from vst.server import allocation
from vst.server.allocation import VISIBLE, Split, read_allocation
from vst.server.client import ControlPlane, Exchange
from vst.server.facts import Instance, ServerFacts, read_facts, read_start_time
from vst.server.launch import ServerSpec, command, environment, launch_prefix
from vst.server.process import ServerProcess, expect_free, free_port
from vst.verdict import Check, Outcome

NO_TOKENIZER = "--skip-tokenizer-init"
TOKENIZER_FILES = {"tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json", "tiktoken.model"}


class RestartedServer(VerificationError):
    """Another process answers than the one that was examined."""

    def __init__(self, before: Instance, after: Instance) -> None:
        super().__init__(
            f"the server was restarted behind our back: its process started at {after.start_time}, "
            f"the one that was examined at {before.start_time}; nothing proven before holds for it"
        )


def spec(session: Session) -> ServerSpec:
    """The serving flags of this run's servers, the reference's included."""
    conf = session.conf.server
    args = list(conf.args)
    model = session.manifests.get("model") or session.manifests.get("checkpoint")
    if conf.kind != "attach" and model is not None and not TOKENIZER_FILES & set(model.files):
        args = [*args, NO_TOKENIZER] if NO_TOKENIZER not in args else args
    env, gpus = dict(conf.env), split(session).server
    if gpus is not None:
        env[VISIBLE] = ",".join(gpus)
    kind = conf.kind if conf.kind != "attach" else ("cpu" if session.conf.transfer.backend == "vst_gloo" else "gpu")
    method, tokens = session.conf.model.draft_method or "draft_model", session.conf.model.draft_tokens
    drafts = {"method": method, "num_speculative_tokens": tokens}
    return ServerSpec(
        kind=kind,
        backend=session.conf.transfer.backend,
        tensor_parallel_size=conf.tensor_parallel_size,
        pipeline_parallel_size=conf.pipeline_parallel_size,
        data_parallel_size=conf.data_parallel_size,
        max_model_len=conf.max_model_len,
        dtype=conf.dtype,
        args=tuple(args),
        env=env,
        launch_prefix=launch_prefix(conf.launch_prefix, hosts(session), len(gpus or ())),
        speculative=drafts if session.conf.model.draft_path else None,
    )


def split(session: Session) -> Split:
    """Who uses which GPUs; TooFewDevices when this job has fewer than it needs."""
    return allocation.split(session.conf, read_allocation())


def hosts(session: Session) -> tuple[str, ...]:
    """The hosts of the job that this run is, this one first; empty outside a job."""
    return read_allocation().hosts


def api_key(session: Session) -> str | None:
    """The bearer token from the variable that is named for it; ConfigError when that is not set."""
    name = session.conf.server.api_key_env
    if name is None:
        return None
    if not os.environ.get(name):
        raise ConfigError(f"server.api_key_env={name}: this environment variable is not set")
    return os.environ[name]


def control(session: Session, base_url: str) -> ControlPlane:
    """A control plane whose exchanges all go to the run's events."""

    def heard(exchange: Exchange) -> None:
        session.run.event("http", **exchange.to_json())

    return ControlPlane(base_url, api_key(session), session.conf.server.request_timeout_s, heard)


def start_server(session: Session, model: Path, label: str) -> Server:
    """Start a server of ours on ``model`` and wait until it is ready; its log is ``server-<label>.log``."""
    conf = session.conf.server
    port = conf.port or free_port(conf.host)
    if not conf.port:
        session.run.evidence.default("server.port", port, f"any that was free, for the server {label}")
    expect_free(conf.host, port)
    flags, name = spec(session), served_name(session)
    argv = command(flags, model, conf.host, port, name, _draft_of(session, model))
    env = environment(flags, os.environ)
    session.run.event("server_start", label=label, argv=argv)
    session.run.evidence.servers.append(server_facts(label, argv, env, tuple(flags.env), session.run.scrubber))
    phase = session.run.evidence.timeline.begin(f"server.start {label}")
    process = ServerProcess(argv, env, session.run / f"server-{label}.log")
    host = "127.0.0.1" if conf.host in ("0.0.0.0", "::") else conf.host
    server = Server(control(session, f"http://{host}:{port}"), name, process)
    try:
        seconds = process.wait_ready(server.control, conf.start_timeout_s)
    except BaseException:
        stop_server(session, server)
        raise
    phase.end()
    session.run.event("server_ready", label=label, seconds=round(seconds, 3), pid=process.pid)
    return server


def _draft_of(session: Session, model: Path) -> Path | None:
    """The draft that belongs to the checkpoint in ``model``."""
    found = {role: manifest for role, manifest in session.manifests.items() if manifest.path == model}
    drafts = [session.manifests.get(f"draft-{role}") for role in found]
    return next((draft.path for draft in drafts if draft is not None), None)


def stop_server(session: Session, server: Server) -> None:
    """Stop a server of ours; an attached one only loses the connection."""
    server.control.close()
    if server.process is not None:
        server.process.stop()
        session.run.event("server_stopped", log=server.process.log.name)


def served_name(session: Session) -> str:
    """The name under which the server's model is asked."""
    return session.conf.server.served_model_name or session.conf.model.name


def attach(session: Session) -> Server:
    """The server to attach to; VerificationError when an earlier attempt of this run left it half done."""
    if before := left_half_done(session.run.path):
        raise VerificationError(
            f"{before.name} had begun a transaction on this server and was ended: what it holds is not known; "
            "restart the server, then run again in another directory"
        )
    session.run.evidence.servers.append(server_facts("attached", None, {}, (), session.run.scrubber))
    return Server(control(session, str(session.conf.server.base_url)), served_name(session))


def owned(session: Session) -> bool:
    """Whether the run starts and stops its server itself."""
    return session.conf.server.kind != "attach"


def on_this_machine(session: Session) -> bool:
    """Whether the server runs on this machine, as far as its address tells."""
    host = urlsplit(str(session.conf.server.base_url)).hostname if not owned(session) else "127.0.0.1"
    return host in ("127.0.0.1", "localhost", "::1", os.uname().nodename)


def expect_same_instance(session: Session) -> None:
    """VerificationError when another process answers than the one that was examined."""
    facts, server = session.need("facts"), session.need("server")
    if server.process is not None and not server.process.alive:
        raise TransportError(f"the server's process has ended; see {server.process.log.name}")
    found = read_start_time(server.control)
    if found != facts.instance.start_time:
        raise RestartedServer(facts.instance, Instance(found, None))


def examine(session: Session, server: Server) -> ServerFacts:
    """What the server says of itself, once, with the time that this takes."""
    session.progress.say("asking the server what it is")
    facts = read_facts(server.control)
    session.run.event("facts", version=facts.version, world_size=facts.world_size, label=facts.weight_version)
    return facts


def close(session: Session) -> None:
    """End everything that this run started; an attached server is left as it is."""
    if session.publisher is not None:
        session.publisher.stop()
    if session.server is not None:
        stop_server(session, session.server)
    if session.lock is not None:
        session.lock.release()


def same_check(session: Session) -> Check:
    """``server.same``: the process that was examined is the one that answers at the end."""
    expected = session.need("facts").instance.to_json()
    try:
        expect_same_instance(session)
    except VerificationError as error:
        return Check("server.same", Outcome.FAIL, expected=expected, reason=str(error))
    except TransportError as error:
        return Check("server.same", Outcome.ERROR, expected=expected, reason=str(error))
    return unchanged_check(session.need("facts").instance, session.need("server").process is not None)


def unchanged_check(instance: Instance, owned_process: bool) -> Check:
    """``server.same`` where nothing contradicts it: two answers without a start time agree and say nothing."""
    seen = instance.to_json()
    if instance.start_time is None and not owned_process:
        reason = "/metrics has no process_start_time_seconds, so a restart could not have been seen"
        return Check("server.same", Outcome.INCONCLUSIVE, seen, "the process that was examined", reason=reason)
    return Check("server.same", Outcome.PASS, seen, seen)
