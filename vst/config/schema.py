"""The schema: one dataclass per group, with names and types; the YAML files in ``conf/`` give the values.

``MISSING`` has no default anywhere: a YAML file or the command line must say it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from vst.evals.options import EvalConf

LANES = ("L0", "L1", "L2", "L3", "L4", "L5", "L6")
"""The rungs of the ladder in order; ``vst.lanes.ladder.RUNGS`` has a runner for each of them but the first."""

FAULTS = ("publisher_killed", "control_plane_cut", "update_refused", "hang", "server_killed")
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


def register() -> None:
    """Make the schema known to Hydra; safe to repeat."""
    ConfigStore.instance().store(name="vst_schema", node=VstConf)
