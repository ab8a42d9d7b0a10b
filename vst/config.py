"""The configuration: one dataclass per group, values in ``conf/``, nothing from the environment but ``paths`` and named
secrets.

The dataclasses give names and types; the YAML files give values. Unknown keys fail when Hydra composes, values that are
missing are listed by ``load`` before anything is started.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vst.checkpoint.zoo.catalogue import CATALOGUE, PREFIX
from vst.errors import ConfigError
from vst.evals.options import EvalConf, eval_problems
from vst.provenance.composed import resolved_digest
from vst.selftest.fault import parse
from vst.server.address import base_url_problem
from vst.server.launch import SCRIPTED, reserved
from vst.server.plan import parse_all

LANES = ("L0", "L1", "L2", "L3", "L4", "L5", "L6")
"""The rungs of the ladder in order; ``vst.lanes.ladder.RUNGS`` has a runner for each of them but the first."""

EVALUATING = ("L5",)
FAULTS = ("publisher_killed", "control_plane_cut", "update_refused", "hang", "server_killed")
ENDURANCE_S = ("fault_push_s", "hang_s", "limit_s", "quiet_s")
CONSOLES = ("auto", "plain", "json")
OPERATIONS = ("publish", "lifecycle", "record", "compare", "eval", "diagnose", "selftest")


@dataclass
class ModelConf:
    """Checkpoint A: what the server was started from. ``generate`` names an embedded pair instead of a path; ``derive``
    makes A from B where only B is given and the run starts its server itself.

    ``draft_path`` is the draft for speculative decoding that the server was started with, a checkpoint of its own;
    ``draft_method`` is what vLLM calls its kind, ``draft_model`` where nothing is said.
    """

    name: str = MISSING
    path: str = MISSING
    revision: str | None = None
    trusted: str | None = None
    generate: str | None = None
    derive: bool = False
    draft_path: str | None = None
    draft_method: str | None = None
    draft_tokens: int = 2


@dataclass
class CheckpointConf:
    """Checkpoint B: what is pushed, ``draft_path`` after it; the options of the audit hold for both checkpoints."""

    name: str | None = None
    path: str = MISSING
    draft_path: str | None = None
    revision: str | None = None
    trusted: str | None = None
    finite: str = MISSING
    finite_limit_bytes: int = MISSING
    allow_network_fs: bool = MISSING
    allow_missing_scales: list[str] = field(default_factory=list)
    allow_tied_mismatch: bool = MISSING
    allow_extra_shards: bool = MISSING
    digest_cache: bool = MISSING


@dataclass
class CapabilitiesConf:
    """What the server is declared not to offer; a check that needs it is then not applicable, with the reason given.

    ``kill`` says whether the run may kill it and start it anew, which it may only with a server of its own.
    ``sleep`` is ``memory``, ``flags`` (it answers and moves its flags, nothing is freed) or ``none`` (not offered).
    """

    cached_tokens: bool = MISSING
    weight_digests: bool = MISSING
    kill: bool = MISSING
    sleep: str = MISSING
    sleep_reason: str | None = None
    reason: str | None = None


@dataclass
class ServerConf:
    """The servers under test; ``attach`` never starts or stops one.

    ``base_urls`` are several to attach to instead of ``base_url``, ``replicas`` is how many are started: one push goes
    to all of them. ``memory`` says where the bytes that they use are read: ``metric:NAME``, ``pid:N`` or ``device``;
    None: the processes of an owned CPU server, the devices of an owned GPU server.

    ``scripted`` accepts our own double in a vLLM's place, and ``faults`` are what a double of ours has wrong with it
    (JSON objects, see ``vst.selftest.fault``); of several servers that a run starts, only the first has them.
    """

    kind: str = MISSING
    base_url: str | None = None
    base_urls: list[str] = field(default_factory=list)
    replicas: int = 1
    host: str = MISSING
    port: int = MISSING
    served_model_name: str | None = None
    tensor_parallel_size: int = MISSING
    pipeline_parallel_size: int = MISSING
    data_parallel_size: int = MISSING
    max_model_len: int | None = None
    dtype: str | None = None
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    launch_prefix: list[str] = field(default_factory=list)
    api_key_env: str | None = None
    start_timeout_s: float = MISSING
    request_timeout_s: float = MISSING
    memory: str | None = None
    capabilities: CapabilitiesConf = field(default_factory=CapabilitiesConf)
    faults: list[str] = field(default_factory=list)
    scripted: bool = False


@dataclass
class TimeoutsConf:
    """Deadlines of the publisher's phases in seconds; the broadcast has ``broadcast_s`` plus bytes /
    ``min_bytes_per_s``.
    """

    boot_s: float = MISSING
    join_s: float = MISSING
    start_s: float = MISSING
    broadcast_s: float = MISSING
    finish_s: float = MISSING
    min_bytes_per_s: float = MISSING


@dataclass
class TransferConf:
    """The data plane; ``bucket_bytes`` null leaves the backend's default, ``master_address`` null finds the route.

    ``mtp``: the model drafts with layers of its own checkpoint, which are pushed again for the draft. ``ring``: how
    many buckets the publisher reads ahead at most. ``staging`` is how tensors get to a GPU that sends: ``tensor`` (one
    at a time) or ``pipelined`` (through the ring, beside the broadcast).
    """

    backend: str = MISSING
    mtp: bool = False
    master_address: str | None = None
    port: int = MISSING
    bucket_bytes: int | None = None
    ring: int = MISSING
    staging: str = MISSING
    rate_limit_bytes_per_s: float | None = None
    timeouts: TimeoutsConf = field(default_factory=TimeoutsConf)


@dataclass
class PublisherConf:
    """The process that reads and sends; ``device`` is ``cpu`` or ``cuda:N``, ``launch_prefix`` what it is started
    with.
    """

    device: str = MISSING
    launch_prefix: list[str] = field(default_factory=list)


@dataclass
class LaneConf:
    """What is run: ``name`` a lane, ``ladder`` or an operation; ``controls`` is all, none or families separated by
    commas. ``pushes`` is how many ``diagnose`` may make.

    ``rows``, ``seeds``, ``parallel``, ``row_timeout_s`` and ``warm`` belong to ``selftest``.
    """

    name: str = MISSING
    upto: str = MISSING
    final: str = MISSING
    identities: int = MISSING
    cycles: int = MISSING
    controls: str = MISSING
    unobservable: list[str] = field(default_factory=list)
    pause_mode: str = MISSING
    plan: str | None = None
    pushes: int | None = None
    rows: str | None = None
    seeds: int | None = None
    parallel: int | None = None
    row_timeout_s: float | None = None
    warm: bool = True
    left: str | None = None
    right: str | None = None
    repeat: str | None = None


@dataclass
class AdmissionConf:
    """What a request meets that is sent in a state in which the server does not serve: held, refused or either."""

    keep: str = MISSING
    abort: str = MISSING
    wait: str = MISSING
    asleep: str = MISSING


@dataclass
class LifecycleConf:
    """The moves around an update: ``chain`` in the notation of plans.

    ``quiet_s`` is how long lane L4 watches a server that does not serve, after everything has settled.
    """

    chain: list[str] = MISSING
    quiet_s: float = MISSING
    admission: AdmissionConf = field(default_factory=AdmissionConf)


@dataclass
class LoadConf:
    """Traffic beside a lane. ``rate_per_s`` null is a closed loop of ``concurrency`` askers, a number an open one.

    ``refused`` are statuses with which a request may be turned away during a pause, ``aborted`` lets a pause cut
    answers short, ``spanning`` lets an answer that crossed an update go on as anything from there.
    """

    prompts: int = MISSING
    min_tokens: int = MISSING
    max_tokens: int = MISSING
    output_tokens: int = MISSING
    stream_share: float = MISSING
    seed: int = MISSING
    concurrency: int = MISSING
    rate_per_s: float | None = None
    max_in_flight: int = MISSING
    max_requests: int = MISSING
    rounds: int = MISSING
    request_s: float = MISSING
    load_s: float = MISSING
    drain_s: float = MISSING
    settle_s: float = MISSING
    refused: list[int] = field(default_factory=list)
    aborted: bool = MISSING
    spanning: bool = MISSING


@dataclass
class EnduranceConf:
    """Lane L6. A cycle may let the memory of a server grow by ``memory_share`` of the checkpoint's bytes, or by
    ``memory_least_bytes`` where that is more; ``faults`` names those that are made.

    ``fault_push_s`` is how long a push lasts that a fault interrupts, ``hang_s`` the deadline that a hanging publisher
    must meet, ``limit_s`` the time from a fault to its verdict beside that, ``quiet_s`` how long a server that does not
    serve must leave a request without an answer; all in seconds.
    """

    cycles: int = MISSING
    answers: int = MISSING
    memory_share: float = MISSING
    memory_least_bytes: int = MISSING
    faults: list[str] = field(default_factory=list)
    fault_push_s: float = MISSING
    hang_s: float = MISSING
    limit_s: float = MISSING
    quiet_s: float = MISSING


@dataclass
class OracleConf:
    """Probes and records; ``search`` is how many further probe sets are asked for an expert that the first does not
    reach; ``reference`` is the path of a record of B, null takes it from the cache or a cold server."""

    probes: int = MISSING
    seed: int = MISSING
    min_tokens: int = MISSING
    max_tokens: int = MISSING
    output_tokens: int = MISSING
    top_k: int = MISSING
    repeats: int = MISSING
    search: int = MISSING
    reference: str | None = None
    reference_cache: bool = MISSING


@dataclass
class PathsConf:
    """Where runs and the cache lie; the one place that reads the environment (``VST_RUNS``, ``VST_CACHE``)."""

    runs: str = MISSING
    cache: str = MISSING


@dataclass
class ProvenanceConf:
    """The evidence: ``sign`` is a PEM file with an Ed25519 private key, ``previous`` the run that this one follows."""

    sign: str | None = None
    previous: str | None = None


@dataclass
class SnapshotConf:
    """The source snapshot that the code runs from; ``root`` is where its tree is mounted, None for its worktree."""

    manifest: str | None = None
    root: str | None = None
    imports: list[str] = field(default_factory=list)


@dataclass
class LaunchConf:
    """How a launcher sends runs out. A job gets the defaults: this is not part of what a run is."""

    wait: bool = True
    resume: bool = False
    dry_run: bool = False


@dataclass
class VstConf:
    """The whole configuration of a run; ``console`` is how it is shown, which is no part of what it is."""

    model: ModelConf = field(default_factory=ModelConf)
    checkpoint: CheckpointConf = field(default_factory=CheckpointConf)
    server: ServerConf = field(default_factory=ServerConf)
    transfer: TransferConf = field(default_factory=TransferConf)
    publisher: PublisherConf = field(default_factory=PublisherConf)
    lane: LaneConf = field(default_factory=LaneConf)
    lifecycle: LifecycleConf = field(default_factory=LifecycleConf)
    oracle: OracleConf = field(default_factory=OracleConf)
    load: LoadConf = field(default_factory=LoadConf)
    endurance: EnduranceConf = field(default_factory=EnduranceConf)
    eval: EvalConf = field(default_factory=EvalConf)
    paths: PathsConf = field(default_factory=PathsConf)
    provenance: ProvenanceConf = field(default_factory=ProvenanceConf)
    snapshot: SnapshotConf = field(default_factory=SnapshotConf)
    launch: LaunchConf = field(default_factory=LaunchConf)
    console: str = "auto"


MEMORY = r"metric:[A-Za-z_:][A-Za-z0-9_:]*|pid:[0-9]+|device"

HINTS = {
    "model.path": "the directory of checkpoint A, which the server is started from",
    "checkpoint.path": "the directory of checkpoint B, which is pushed",
    "server.base_url": "the address of the running server, such as http://host:8000 (several: server.base_urls=[…])",
    "model.draft_path": "the directory of the draft that the server was started with",
    "checkpoint.draft_path": "the directory of the draft that is pushed after checkpoint B",
    "eval.dataset": "a file of questions, JSON lines with question and answer",
    "eval.shots_dataset": "a file of questions to take the examples from, such as GSM8K's train.jsonl; or eval.shots=0",
    "eval.task": "a task of lm-eval",
    "lane.left": "the record or evaluation that was taken",
    "lane.right": "the record or evaluation that it must equal",
}


def register() -> None:
    """Make the schema known to Hydra; safe to repeat."""
    ConfigStore.instance().store(name="vst_schema", node=VstConf)


def load(cfg: DictConfig) -> VstConf:
    """The typed configuration, complete and consistent; ConfigError lists everything that is missing or wrong."""
    try:
        return _load(cfg)
    except OmegaConfBaseException as error:
        raise ConfigError(f"the configuration cannot be resolved: {str(error).splitlines()[0]}") from error


def _load(cfg: DictConfig) -> VstConf:
    missing = sorted(_missing(cfg))
    if missing:
        lines = [f"  {key}=…   {HINTS.get(key, 'has no default')}" for key in missing]
        raise ConfigError(
            f"model={cfg.model.name} needs {len(missing)} value(s) that are not set:\n" + "\n".join(lines)
        )
    conf = OmegaConf.to_object(_filled(cfg))
    if not isinstance(conf, VstConf):
        raise ConfigError("the composed configuration is not a VstConf")
    problems = list(_problems(conf))
    if problems:
        raise ConfigError("\n".join(problems))
    return conf


def digest(cfg: DictConfig) -> str:
    """``sha256:<hex>`` of the resolved configuration without Hydra's part; what has a secret name counts as masked."""
    return resolved_digest(cfg)


def needs_checkpoint(lane: LaneConf) -> bool:
    """Whether a lane reads checkpoint B; L1, L2 and ``record`` look at A alone, ``selftest`` has pairs of its own."""
    return lane.name not in ("record", "compare", "eval", "selftest") and not (
        lane.name in LANES + ("ladder",) and lane.upto in ("L1", "L2")
    )


def evaluates(lane: LaneConf) -> bool:
    """Whether a lane asks the questions of the eval group."""
    climbed = LANES[: LANES.index(lane.upto) + 1] if lane.upto in LANES else ()
    return lane.name == "eval" or (lane.name in (*LANES, "ladder") and any(name in EVALUATING for name in climbed))


def _missing(cfg: DictConfig) -> set[str]:
    missing = set(OmegaConf.missing_keys(cfg))
    if not evaluates(cfg.lane):
        missing = {key for key in missing if not key.startswith("eval.")}
    missing |= _missing_beside(cfg)
    if cfg.model.generate is not None or not needs_checkpoint(cfg.lane):
        missing -= {"checkpoint.path"}
    if cfg.model.generate is not None or cfg.lane.name in ("compare", "selftest"):
        missing -= {"model.path"}
    if derives(cfg):
        missing -= {"model.path"}
    if cfg.server.kind == "attach" and cfg.server.base_urls:
        missing -= {"server.base_url"}
    elif cfg.server.kind == "attach" and (OmegaConf.is_missing(cfg.server, "base_url") or not cfg.server.base_url):
        missing.add("server.base_url")
    if cfg.lane.name == "compare":
        missing |= {f"lane.{side}" for side in ("left", "right") if not cfg.lane[side]}
    return missing


def derives(cfg: DictConfig | VstConf) -> bool:
    """Whether A is made from B: nothing but B is given, and the server that is started on A is the run's own."""
    if isinstance(cfg, DictConfig):
        given = not OmegaConf.is_missing(cfg.checkpoint, "path") and bool(cfg.checkpoint.path)
    else:
        given = bool(cfg.checkpoint.path)
    own = cfg.server.kind != "attach" and needs_checkpoint(cfg.lane)
    return bool(given and own and cfg.model.derive and cfg.model.draft_path is None)


def _missing_beside(cfg: DictConfig) -> set[str]:
    """What is missing because of another value: the other draft, the file of the examples, the task."""
    missing = set()
    drafts = cfg.model.draft_method is not None or cfg.model.draft_path is not None
    if drafts and not cfg.model.draft_path:
        missing.add("model.draft_path")
    if drafts and needs_checkpoint(cfg.lane) and not cfg.checkpoint.draft_path:
        missing.add("checkpoint.draft_path")
    if evaluates(cfg.lane) and cfg.eval.kind == "lm_eval" and not cfg.eval.task:
        missing.add("eval.task")
    given = not OmegaConf.is_missing(cfg.eval, "dataset") and cfg.eval.dataset is not None
    if evaluates(cfg.lane) and given and cfg.eval.kind == "questions" and cfg.eval.shots and not cfg.eval.shots_dataset:
        missing.add("eval.shots_dataset")
    return missing


def _filled(cfg: DictConfig) -> DictConfig:
    """Paths that this run does not need, or that are generated later, become empty instead of missing."""
    filled = cfg.copy()
    for key in ("model.path", "checkpoint.path", "eval.dataset", "server.base_url"):
        group, _, name = key.partition(".")
        if OmegaConf.is_missing(filled[group], name):
            OmegaConf.update(filled, key, "" if name == "path" else None)
    return filled


def _problems(conf: VstConf) -> list[str]:
    choices: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "lane.name": (conf.lane.name, (*LANES, "ladder", *OPERATIONS)),
        "lane.upto": (conf.lane.upto, LANES),
        "lane.final": (conf.lane.final, ("checkpoint", "model")),
        "lane.pause_mode": (conf.lane.pause_mode, ("abort", "wait", "keep")),
        "server.kind": (conf.server.kind, ("cpu", "gpu", "attach", SCRIPTED)),
        "transfer.backend": (conf.transfer.backend, ("vst_gloo", "nccl")),
        "transfer.staging": (conf.transfer.staging, ("tensor", "pipelined")),
        "checkpoint.finite": (conf.checkpoint.finite, ("auto", "always", "never")),
        "console": (conf.console, CONSOLES),
        "model.generate": (conf.model.generate, (None, "tiny", *(f"{PREFIX}{name}" for name in CATALOGUE))),
        "server.capabilities.sleep": (conf.server.capabilities.sleep, ("memory", "flags", "none")),
        **{
            f"lifecycle.admission.{key}": (value, ("held", "refused", "either"))
            for key, value in vars(conf.lifecycle.admission).items()
        },
    }
    found = [
        f"{key}={value}: expected one of {', '.join(str(option) for option in options)}"
        for key, (value, options) in choices.items()
        if value not in options
    ]
    at_least = {
        "lane.identities": (conf.lane.identities, 2),
        "lane.cycles": (conf.lane.cycles, 1),
        "oracle.repeats": (conf.oracle.repeats, 2),
        "oracle.probes": (conf.oracle.probes, 1),
        "oracle.min_tokens": (conf.oracle.min_tokens, 2),
        "oracle.output_tokens": (conf.oracle.output_tokens, 1),
        "server.tensor_parallel_size": (conf.server.tensor_parallel_size, 1),
        "server.pipeline_parallel_size": (conf.server.pipeline_parallel_size, 1),
        "server.data_parallel_size": (conf.server.data_parallel_size, 1),
        "server.replicas": (conf.server.replicas, 1),
        "oracle.max_tokens": (conf.oracle.max_tokens, conf.oracle.min_tokens),
        "oracle.top_k": (conf.oracle.top_k, 1),
        "oracle.search": (conf.oracle.search, 0),
        "endurance.cycles": (conf.endurance.cycles, 1),
        "endurance.answers": (conf.endurance.answers, 1),
        "load.prompts": (conf.load.prompts, 1),
        "load.min_tokens": (conf.load.min_tokens, 2),
        "load.max_tokens": (conf.load.max_tokens, conf.load.min_tokens),
        "load.output_tokens": (conf.load.output_tokens, 2),
        "load.concurrency": (conf.load.concurrency, 1),
        "load.max_in_flight": (conf.load.max_in_flight, 1),
        "load.max_requests": (conf.load.max_requests, 1),
        "load.rounds": (conf.load.rounds, 2),
        "transfer.ring": (conf.transfer.ring, 2),
        "transfer.timeouts.min_bytes_per_s": (conf.transfer.timeouts.min_bytes_per_s, 1),
        "model.draft_tokens": (conf.model.draft_tokens, 1),
    }
    counts = {f"lane.{key}": getattr(conf.lane, key) for key in ("seeds", "parallel", "pushes")}
    at_least |= {key: (value, 1) for key, value in counts.items() if value is not None}
    found += [f"{key}={value}: must be at least {least}" for key, (value, least) in at_least.items() if value < least]
    found += [f"{key}={value}: must be positive" for key, value in _positive(conf).items() if not 0 < value < math.inf]
    ports = {"server.port": conf.server.port, "transfer.port": conf.transfer.port}
    found += [f"{key}={port}: must be from 0 (any) to 65535" for key, port in ports.items() if not 0 <= port <= 65535]
    found += _server_problems(conf.server) + _chain_problems(conf)
    found += eval_problems(conf.eval) + _together(conf)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", conf.publisher.device):
        found.append(f"publisher.device={conf.publisher.device}: expected cpu or cuda:N")
    if conf.transfer.backend == "vst_gloo" and conf.transfer.bucket_bytes is None:
        found.append("transfer.bucket_bytes is not set; the gloo backend needs it")
    unknown = sorted(set(conf.endurance.faults) - set(FAULTS))
    if unknown:
        found.append(f"endurance.faults={unknown}: expected some of {', '.join(FAULTS)}")
    if not 0 <= conf.load.stream_share <= 1:
        found.append(f"load.stream_share={conf.load.stream_share}: a share is from 0 to 1")
    if conf.launch.dry_run:
        found.append("launch.dry_run needs a launcher: hydra/launcher=slurm, or -m for local processes")
    if conf.snapshot.manifest is None and (conf.snapshot.root or conf.snapshot.imports):
        found.append("snapshot.root and snapshot.imports say where a snapshot is: set snapshot.manifest too")
    if conf.lane.name in LANES and conf.lane.upto != conf.lane.name:
        found.append(f"lane.upto={conf.lane.upto} contradicts lane={conf.lane.name}: use lane=ladder lane.upto=…")
    if conf.transfer.backend == "nccl" and conf.publisher.device == "cpu":
        found.append("transfer=nccl sends from a GPU: set publisher.device=cuda:N (a GPU that the server does not use)")
    return found


def _positive(conf: VstConf) -> dict[str, float]:
    """What has to be a finite positive number where it is set."""
    timeouts, transfer, load = conf.transfer.timeouts, conf.transfer, conf.load
    values = {
        **{f"transfer.timeouts.{name}": value for name, value in vars(timeouts).items()},
        "transfer.bucket_bytes": transfer.bucket_bytes,
        "transfer.rate_limit_bytes_per_s": transfer.rate_limit_bytes_per_s,
        "server.start_timeout_s": conf.server.start_timeout_s,
        "server.request_timeout_s": conf.server.request_timeout_s,
        "server.max_model_len": conf.server.max_model_len,
        **{f"endurance.{name}": getattr(conf.endurance, name) for name in ENDURANCE_S},
        "endurance.memory_share": conf.endurance.memory_share,
        "endurance.memory_least_bytes": conf.endurance.memory_least_bytes,
        "lane.row_timeout_s": conf.lane.row_timeout_s,
        "lifecycle.quiet_s": conf.lifecycle.quiet_s,
        "load.rate_per_s": load.rate_per_s,
        "load.request_s": load.request_s,
        "load.load_s": load.load_s,
        "load.drain_s": load.drain_s,
        "load.settle_s": load.settle_s,
    }
    return {key: value for key, value in values.items() if value is not None}


def _chain_problems(conf: VstConf) -> list[str]:
    """What is wrong with the chain, wherever it would begin; whether it is legal is judged on the server's state."""
    if conf.lane.plan is not None and conf.lane.name != "lifecycle":
        return ["lane.plan is replayed by lane=lifecycle: set it"]
    try:
        steps = parse_all(conf.lifecycle.chain)
    except ConfigError as error:
        return [f"lifecycle.chain: {error}"]
    if conf.lane.name == "lifecycle" and (conf.server.replicas > 1 or len(conf.server.base_urls) > 1):
        return ["lane=lifecycle moves one server: name it with server.base_url, or set server.replicas=1"]
    return [] if steps else ["lifecycle.chain is empty: name its steps, or use lifecycle=offload or lifecycle=keep"]


def _together(conf: VstConf) -> list[str]:
    """What two groups say that cannot both be."""
    found = []
    if conf.eval.resume and conf.lane.name != "eval":
        found.append("eval.resume goes on with the evaluation of lane=eval; any other lane evaluates from the start")
    if conf.eval.kind == "lm_eval" and conf.lane.name != "eval" and evaluates(conf.lane):
        found.append("eval=lm_eval runs in lane=eval; compare two of its evaluations with lane=compare")
    if conf.transfer.mtp and conf.model.draft_path:
        found.append("transfer.mtp and model.draft_path exclude each other: a server drafts in one way")
    given = [arg for arg in conf.server.args if arg.replace("_", "-").startswith("--speculative-config")]
    if given and conf.model.draft_path:
        found.append(f"server.args={given[0]}: vst sets this itself from model.draft_path")
    return found


def _server_problems(server: ServerConf) -> list[str]:
    found = [
        f"server.args={arg}: vst sets this itself; use the key of the server group that stands for it"
        for arg in reserved(server.args)
    ]
    attached = server.kind == "attach"
    addresses = {"server.base_url": server.base_url} if server.base_url else {}
    addresses |= {f"server.base_urls[{number}]": url for number, url in enumerate(server.base_urls)}
    problems = {key: base_url_problem(url) for key, url in addresses.items()} if attached else {}
    found += [f"{key}: {problem}" for key, problem in problems.items() if problem]
    if server.faults and server.kind != SCRIPTED:
        found.append("server.faults belong to a scripted server: set server=scripted")
    for text in server.faults:
        parse(text)
    if server.memory and not re.fullmatch(MEMORY, server.memory):
        found.append(f"server.memory={server.memory}: expected metric:NAME, pid:N or device")
    return found + list(_fleet_problems(server, attached))


def _fleet_problems(server: ServerConf, attached: bool) -> Iterator[str]:
    if server.base_urls and (server.base_url or not attached):
        yield "server.base_urls is for server=attach, instead of server.base_url: set one of them"
    if len(set(server.base_urls)) != len(server.base_urls):
        yield "server.base_urls names a server twice"
    if server.capabilities.kill and attached:
        yield "server.capabilities.kill=true: a server that this run did not start is not killed"
    if server.replicas > 1 and attached:
        yield "server.replicas is how many servers the run starts: name running ones with server.base_urls"
    if server.replicas > 1 and server.launch_prefix and server.kind != SCRIPTED:
        yield "server.launch_prefix spreads one server over nodes: server.replicas must be 1 with it"
    if len(server.devices) % max(server.replicas, 1):
        yield f"server.devices={server.devices}: cannot be divided among server.replicas={server.replicas}"
