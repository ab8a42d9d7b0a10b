"""The servers of a run: how they are started, attached to, asked what they are, and stopped."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from vst.attempt import left_half_done
from vst.errors import ConfigError, VerificationError, VstError
from vst.lanes.fleet import Server, named
from vst.lanes.session import Session
from vst.provenance.runtime import server_facts
from vst.selftest.fault import fault_words
from vst.server import allocation
from vst.server.allocation import VISIBLE, Split, read_allocation
from vst.server.client import ControlPlane, Exchange
from vst.server.facts import ServerFacts, read_facts
from vst.server.launch import SCRIPTED, ServerSpec, command, environment, launch_prefix
from vst.server.process import ServerProcess, expect_free, free_port
from vst.server.seats import server_titles

UNDER_TEST, REFERENCE, MIXTURE = "model", "reference", "mixture"
NO_TOKENIZER = "--skip-tokenizer-init"
TOKENIZER_FILES = {"tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json", "tiktoken.model"}


def spec(session: Session, index: int = 0) -> ServerSpec:
    """The serving flags of this run's servers, the reference's included; ``index`` decides only which GPUs are used."""
    conf = session.conf.server
    args = list(conf.args)
    model = session.manifests.get("model") or session.manifests.get("checkpoint")
    if conf.kind != "attach" and model is not None and not TOKENIZER_FILES & set(model.files):
        args = [*args, NO_TOKENIZER] if NO_TOKENIZER not in args else args
    env, gpus = dict(conf.env), _own_gpus(session, index)
    if gpus is not None:
        env[VISIBLE] = ",".join(gpus)
    backend_kind = "cpu" if session.conf.transfer.backend == "vst_gloo" else "gpu"
    kind = conf.kind if conf.kind != "attach" else SCRIPTED if conf.scripted else backend_kind
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
        launch_prefix=_prefix(session, kind, len(gpus or ())),
        speculative=drafts if session.conf.model.draft_path else None,
    )


def _own_gpus(session: Session, index: int) -> tuple[str, ...] | None:
    """The GPUs of one of the run's servers; None where nothing is divided."""
    gpus = split(session).server
    if gpus is None:
        return None
    each = len(gpus) // session.conf.server.replicas
    return gpus[index * each : (index + 1) * each]


def _prefix(session: Session, kind: str, gpus: int) -> tuple[str, ...]:
    """What the server is started with; a double runs on this machine alone and needs no making ready of nodes."""
    words = session.conf.server.launch_prefix
    return tuple(words) if kind == SCRIPTED else launch_prefix(words, hosts(session), gpus)


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


def control(session: Session, base_url: str, title: str = "") -> ControlPlane:
    """A control plane whose exchanges all go to the run's events, with the server's title where there are several."""

    def heard(exchange: Exchange) -> None:
        session.run.event("http", **exchange.to_json(), **({"server": title} if title else {}))

    return ControlPlane(base_url, api_key(session), session.conf.server.request_timeout_s, heard)


def start_server(session: Session, model: Path, label: str, index: int = 0, title: str = "") -> Server:
    """Start one server of ours on ``model`` and wait until it is ready; its log is ``server-<label>.log``."""
    launched = _launch(session, model, label, index, title)
    try:
        _await(session, launched, label)
    except BaseException:
        stop_server(session, launched)
        raise
    return launched


def start_servers(session: Session, model: Path, label: str) -> tuple[Server, ...]:
    """Start every server of the run on ``model``, all at once, and wait until all are ready; otherwise none is left."""
    launched: list[tuple[Server, str]] = []
    try:
        for index, title in enumerate(server_titles(vars(session.conf.server))):
            name = label if index == 0 else f"{label}-{index + 1}"
            launched.append((_launch(session, model, name, index, title), name))
        for server, name in launched:
            _await(session, server, name)
    except BaseException:
        for server, _ in launched:
            stop_server(session, server)
        raise
    return tuple(server for server, _ in launched)


def _launch(session: Session, model: Path, label: str, index: int, title: str) -> Server:
    conf = session.conf.server
    port = conf.port + index if conf.port else free_port(conf.host)
    if not conf.port:
        session.run.evidence.default("server.port", port, f"any that was free, for the server {label}")
    expect_free(conf.host, port)
    flags, name = spec(session, index), served_name(session)
    argv = command(flags, model, conf.host, port, name, _draft_of(session, model))
    if not label.startswith((REFERENCE, MIXTURE)):
        argv += fault_words(conf.faults, index + 1)
    env = environment(flags, os.environ)
    session.run.event("server_start", label=label, argv=argv)
    session.run.evidence.servers.append(server_facts(label, argv, env, tuple(flags.env), session.run.scrubber))
    process = ServerProcess(argv, env, session.run / f"server-{label}.log")
    host = "127.0.0.1" if conf.host in ("0.0.0.0", "::") else conf.host
    return Server(control(session, f"http://{host}:{port}", title), name, process, title)


def _await(session: Session, server: Server, label: str) -> None:
    phase = session.run.evidence.timeline.begin(f"server.start {label}")
    if server.process is None:
        raise VerificationError(f"{label}: a server that this run did not start is not waited for")
    seconds = server.process.wait_ready(server.control, session.conf.server.start_timeout_s)
    phase.end()
    session.run.event("server_ready", label=label, seconds=round(seconds, 3), pid=server.process.pid)


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


def attach(session: Session) -> tuple[Server, ...]:
    """The servers to attach to; VerificationError when an earlier attempt of this run left them half done."""
    if before := left_half_done(session.run.path):
        raise VerificationError(
            f"{before.name} had begun a transaction on this server and was ended: what it holds is not known; "
            "restart the server, then run again in another directory"
        )
    conf = session.conf.server
    addresses = list(conf.base_urls) or [str(conf.base_url)]
    for _ in addresses:
        session.run.evidence.servers.append(server_facts("attached", None, {}, (), session.run.scrubber))
    pairs = zip(addresses, server_titles(vars(conf)), strict=True)
    return tuple(Server(control(session, url, title), served_name(session), None, title) for url, title in pairs)


def owned(session: Session) -> bool:
    """Whether the run starts and stops its server itself."""
    return session.conf.server.kind != "attach"


def scripted(session: Session) -> bool:
    """Whether the run was told to look at our own double instead of a vLLM."""
    return session.conf.server.kind == SCRIPTED or session.conf.server.scripted


def on_this_machine(session: Session) -> bool:
    """Whether a server of the run is on this machine, as far as its address tells."""
    conf, here = session.conf.server, ("127.0.0.1", "localhost", "::1", os.uname().nodename)
    addresses = list(conf.base_urls) or [str(conf.base_url)]
    return owned(session) or any(urlsplit(url).hostname in here for url in addresses)


def examine(session: Session, server: Server) -> ServerFacts:
    """What the server says of itself, once, with the time that this takes."""
    session.progress.say(f"asking {server.title or 'the server'} what it is")
    try:
        facts = read_facts(server.control)
    except VstError as error:
        raise named(error, server.title) from error
    session.run.event("facts", version=facts.version, world_size=facts.world_size, label=facts.weight_version)
    return facts


def close(session: Session) -> None:
    """End everything that this run started; an attached server is left as it is."""
    if session.publisher is not None:
        session.publisher.stop()
    for seat in session.seats:
        seat.control.close()
    for server in session.servers:
        stop_server(session, server)
    for lock in session.locks:
        lock.release()
