"""What one run holds: its configuration and directory, the server, the publisher, and the records taken so far."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from vst.attempt import left_half_done
from vst.checkpoint.manifest import Manifest
from vst.config import VstConf
from vst.errors import ConfigError, TransportError, VerificationError
from vst.oracle.probes import ProbeSet, make_probes
from vst.oracle.record import Record, take_record
from vst.provenance.rundir import RunDir
from vst.provenance.runtime import server_facts
from vst.server.allocation import VISIBLE, Split, read_allocation, split
from vst.server.client import ControlPlane, Exchange
from vst.server.facts import Instance, ServerFacts, read_facts, read_start_time
from vst.server.launch import ServerSpec, command, environment, launch_prefix, without_scheduler
from vst.server.lifecycle import Lifecycle
from vst.server.lock import ServerLock
from vst.server.process import ServerProcess, expect_free, free_port
from vst.transfer.plan import JoinPlan
from vst.transfer.publisher import Deadlines, Publisher

NO_TOKENIZER = "--skip-tokenizer-init"
TOKENIZER_FILES = {"tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json", "tiktoken.model"}


class Progress(Protocol):
    """Whoever shows the run while it goes on."""

    def say(self, text: str) -> None: ...

    def bytes(self, what: str, done: int, total: int) -> None: ...


@dataclass(frozen=True)
class Server:
    """A server that can be asked: the control plane, how it was started if we did, and the log of that."""

    control: ControlPlane
    name: str
    process: ServerProcess | None = None


@dataclass
class Session:
    """The state of one run; lanes fill it in the order in which they need it."""

    conf: VstConf
    run: RunDir
    progress: Progress
    manifests: dict[str, Manifest] = field(default_factory=dict)
    manifest_files: dict[str, Path] = field(default_factory=dict)
    server: Server | None = None
    facts: ServerFacts | None = None
    lifecycle: Lifecycle | None = None
    lock: ServerLock | None = None
    publisher: Publisher | None = None
    joined: bool = False
    probes: ProbeSet | None = None
    records: list[Record] = field(default_factory=list)
    floor: float | None = None
    transactions: int = 0
    label: str | None = None
    covered: dict[str, Any] | None = None

    def need(self, name: str) -> Any:
        """A part of the session that an earlier lane must have filled; VerificationError when it has not."""
        value = getattr(self, name)
        if value is None:
            raise VerificationError(f"{name} is not there yet: an earlier lane did not run")
        return value

    # --- the server -----------------------------------------------------------------------------------------------

    def spec(self) -> ServerSpec:
        """The serving flags of this run's servers, the reference's included."""
        conf = self.conf.server
        args = list(conf.args)
        model = self.manifests.get("model") or self.manifests.get("checkpoint")
        if conf.kind != "attach" and model is not None and not TOKENIZER_FILES & set(model.files):
            args = [*args, NO_TOKENIZER] if NO_TOKENIZER not in args else args
        env, split = dict(conf.env), self.split()
        if split.server is not None:
            env[VISIBLE] = ",".join(split.server)
        kind = conf.kind if conf.kind != "attach" else ("cpu" if self.conf.transfer.backend == "vst_gloo" else "gpu")
        return ServerSpec(
            kind=kind,
            backend=self.conf.transfer.backend,
            tensor_parallel_size=conf.tensor_parallel_size,
            pipeline_parallel_size=conf.pipeline_parallel_size,
            data_parallel_size=conf.data_parallel_size,
            max_model_len=conf.max_model_len,
            dtype=conf.dtype,
            args=tuple(args),
            env=env,
            launch_prefix=launch_prefix(conf.launch_prefix, self.hosts(), len(split.server or ())),
        )

    def split(self) -> Split:
        """Who uses which GPUs; TooFewDevices when this job has fewer than it needs."""
        return split(self.conf, read_allocation())

    def hosts(self) -> tuple[str, ...]:
        """The hosts of the job that this run is, this one first; empty outside a job."""
        return read_allocation().hosts

    def api_key(self) -> str | None:
        name = self.conf.server.api_key_env
        if name is None:
            return None
        if not os.environ.get(name):
            raise ConfigError(f"server.api_key_env={name}: this environment variable is not set")
        return os.environ[name]

    def control(self, base_url: str) -> ControlPlane:
        return ControlPlane(base_url, self.api_key(), self.conf.server.request_timeout_s, self._heard)

    def _heard(self, exchange: Exchange) -> None:
        self.run.event("http", **exchange.to_json())

    def start_server(self, model: Path, label: str) -> Server:
        """Start a server of ours on ``model`` and wait until it is ready; its log is ``server-<label>.log``."""
        conf = self.conf.server
        port = conf.port or free_port(conf.host)
        if not conf.port:
            self.run.evidence.default("server.port", port, f"any that was free, for the server {label}")
        expect_free(conf.host, port)
        spec, name = self.spec(), self.served_name()
        argv = command(spec, model, conf.host, port, name)
        env = environment(spec, os.environ)
        self.run.event("server_start", label=label, argv=argv)
        self.run.evidence.servers.append(server_facts(label, argv, env, tuple(spec.env), self.run.scrubber))
        phase = self.run.evidence.timeline.begin(f"server.start {label}")
        process = ServerProcess(argv, env, self.run / f"server-{label}.log")
        host = "127.0.0.1" if conf.host in ("0.0.0.0", "::") else conf.host
        server = Server(self.control(f"http://{host}:{port}"), name, process)
        try:
            seconds = process.wait_ready(server.control, conf.start_timeout_s)
        except BaseException:
            self.stop_server(server)
            raise
        phase.end()
        self.run.event("server_ready", label=label, seconds=round(seconds, 3), pid=process.pid)
        return server

    def stop_server(self, server: Server) -> None:
        server.control.close()
        if server.process is not None:
            server.process.stop()
            self.run.event("server_stopped", log=server.process.log.name)

    def served_name(self) -> str:
        return self.conf.server.served_model_name or self.conf.model.name

    def attach(self) -> Server:
        """The server to attach to; VerificationError when an earlier attempt of this run left it half done."""
        if before := left_half_done(self.run.path):
            raise VerificationError(
                f"{before.name} had begun a transaction on this server and was ended: what it holds is not known; "
                "restart the server, then run again in another directory"
            )
        self.run.evidence.servers.append(server_facts("attached", None, {}, (), self.run.scrubber))
        return Server(self.control(str(self.conf.server.base_url)), self.served_name())

    @property
    def owned(self) -> bool:
        return self.conf.server.kind != "attach"

    @property
    def local(self) -> bool:
        """Whether the server runs on this machine, as far as its address tells."""
        host = urlsplit(str(self.conf.server.base_url)).hostname if not self.owned else "127.0.0.1"
        return host in ("127.0.0.1", "localhost", "::1", os.uname().nodename)

    def expect_same_instance(self) -> None:
        """VerificationError when another process answers than the one that was examined."""
        facts, server = self.need("facts"), self.need("server")
        if server.process is not None and not server.process.alive:
            raise TransportError(f"the server's process has ended; see {server.process.log.name}")
        found = read_start_time(server.control)
        if found != facts.instance.start_time:
            raise RestartedServer(facts.instance, Instance(found, None))

    # --- records --------------------------------------------------------------------------------------------------

    def make_probes(self, facts: ServerFacts) -> ProbeSet:
        """The probes of this run: from the vocabulary of the configuration and the longest prompt that the server
        takes.
        """
        conf = self.conf.oracle
        vocab = self.vocab_size()
        room = (facts.max_model_len or conf.max_tokens + conf.output_tokens) - conf.output_tokens - 1
        longest = max(conf.min_tokens, min(conf.max_tokens, room))
        probes = make_probes(vocab, conf.probes, conf.min_tokens, longest, conf.output_tokens, conf.top_k, conf.seed)
        self.run.inputs["probes"] = {"digest": probes.digest, "probes": len(probes.prompts), "longest": longest}
        return probes

    def vocab_size(self) -> int:
        from vst.checkpoint.config_file import try_config

        manifest = self.manifests.get("model") or self.manifests["checkpoint"]
        config = try_config(manifest.path) or {}
        for part in (config, config.get("text_config")):
            if isinstance(part, Mapping) and isinstance(part.get("vocab_size"), int):
                return int(part["vocab_size"])
        raise VerificationError(f"{manifest.path}/config.json has no vocab_size, so no probes can be made")

    def take(self, server: Server, claim: str, file: str) -> Record:
        """Take a record and write it to ``record-<file>.json``."""
        record = take_record(
            server.control, server.name, self.need("probes"), claim, self.conf.server.request_timeout_s
        )
        content = {**record.to_json(), "noise_floor": self.floor}
        self.run.write(f"record-{file}.json", content)
        return record

    # --- the publisher --------------------------------------------------------------------------------------------

    def start_publisher(self) -> Publisher:
        """Start the publisher's process, which takes its imports while something else goes on."""
        timeouts = self.conf.transfer.timeouts
        deadlines = Deadlines(
            timeouts.boot_s, timeouts.join_s, timeouts.start_s, timeouts.broadcast_s, timeouts.finish_s, self._slowest()
        )
        publisher = Publisher(deadlines, self.run / "publisher.log", self._published)
        own = self.split().publisher
        device = {"VLLM_TARGET_DEVICE": "cpu"} if self.conf.publisher.device == "cpu" else {}
        visible = {VISIBLE: ",".join(own)} if own is not None else {}
        publisher.start({**without_scheduler(os.environ), "VLLM_NO_USAGE_STATS": "1", **device, **visible})
        self.run.event("publisher_start", pid=publisher.pid, devices=own)
        self.publisher = publisher
        return publisher

    def _slowest(self) -> float:
        """The bytes a second below which a broadcast is given up; a push that is slowed down on purpose is not."""
        transfer = self.conf.transfer
        rate, least = transfer.rate_limit_bytes_per_s, transfer.timeouts.min_bytes_per_s
        return min(least, rate / 2) if rate else least

    def _published(self, report: dict[str, Any]) -> None:
        # An event has a kind of its own; that of a failure is told beside it.
        fields = {{"kind": "failure"}.get(key, key): value for key, value in report.items() if key != "event"}
        self.run.event(f"publisher_{report['event']}", **fields)
        self.run.evidence.timeline.publisher(report)
        if report["event"] == "ready":
            self.run.evidence.libraries = {"vllm": report["vllm"], **report.get("libraries", {})}
        if report["event"] == "progress":
            self.progress.bytes("sent", report["bytes"], report["total"])

    def join_plan(self, layout: Path, world_size: int) -> JoinPlan:
        conf, server = self.conf, self.need("server")
        timeouts = conf.transfer.timeouts
        longest = timeouts.broadcast_s + self._largest_total() / self._slowest()
        return JoinPlan(
            layout=str(layout),
            base_url=server.control.base_url,
            api_key_env=conf.server.api_key_env,
            backend=conf.transfer.backend,
            master_address=conf.transfer.master_address or self._rendezvous(server.control.base_url),
            port=conf.transfer.port,
            world_size=world_size + 1,
            bucket_bytes=conf.transfer.bucket_bytes,
            device=self.split().device,
            timeout_s=max(longest, timeouts.join_s),
            http_timeout_s=max(longest, timeouts.join_s, timeouts.finish_s),
        )

    def _rendezvous(self, base_url: str) -> str:
        """Where the server's workers find the publisher: on another node only by this host's name in the job."""
        hosts = self.hosts() if self.conf.server.launch_prefix else ()
        return hosts[0] if len(hosts) > 1 else _route_to(base_url)

    def _largest_total(self) -> int:
        return max((manifest.total_bytes for manifest in self.manifests.values()), default=0)

    def join(self) -> None:
        """Make the publisher a member of the server's transfer group, once."""
        if not self.joined:
            publisher = self.publisher or self.start_publisher()
            layout = self.manifest_files.get("model") or self.manifest_files["checkpoint"]
            publisher.join(self.join_plan(layout, self.need("facts").world_size))
            self.joined = True

    def close(self) -> None:
        """End everything that this run started; an attached server is left as it is."""
        if self.publisher is not None:
            self.publisher.stop()
        if self.server is not None:
            self.stop_server(self.server)
        if self.lock is not None:
            self.lock.release()

    def examine(self, server: Server) -> ServerFacts:
        self.progress.say("asking the server what it is")
        facts = read_facts(server.control)
        self.run.event("facts", version=facts.version, world_size=facts.world_size, label=facts.weight_version)
        return facts


class RestartedServer(VerificationError):
    """Another process answers than the one that was examined."""

    def __init__(self, before: Instance, after: Instance) -> None:
        super().__init__(
            f"the server was restarted behind our back: its process started at {after.start_time}, "
            f"the one that was examined at {before.start_time}; nothing proven before holds for it"
        )


def _route_to(base_url: str) -> str:
    """The address of this machine on the way to the server, under which its workers can reach the publisher."""
    from vst.transfer.route import address_towards

    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        return address_towards(parts.hostname or "127.0.0.1", port)
    except OSError as error:
        raise TransportError(f"no route to {parts.hostname}:{port}: {error}; set transfer.master_address") from error
