"""Real vLLM servers on the CPU, started once and shared; every run of the product is a real command."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from omegaconf import OmegaConf
from warm_vllm import warm_vllm

from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import read_manifest
from vst.checkpoint.tiny import make_tiny_pair
from vst.confdir import conf_dir
from vst.errors import VstError
from vst.oracle.probes import make_probes
from vst.oracle.record import Record, take_record
from vst.selftest.row import quoted
from vst.server.client import ControlPlane
from vst.server.launch import ServerSpec, command, environment
from vst.server.process import ServerProcess, free_port
from vst.transfer.plan import JoinPlan, Member, PushPlan
from vst.transfer.publisher import Deadlines, Publisher


@dataclass
class Run:
    """One finished ``python -m vst``: its exit code, what it printed, and its run directory."""

    code: int
    out: str
    dir: Path
    seconds: float

    @property
    def verdict(self) -> dict[str, Any]:
        return dict(json.loads((self.dir / "verdict.json").read_text()))

    def check(self, id: str) -> dict[str, Any]:
        found = [check for lane in self.verdict["lanes"] for check in lane["checks"] if check["id"] == id]
        assert found, f"{id} is not in the verdict: {self.out}"
        return dict(found[-1])

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = (self.dir / "events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["kind"] == kind]

    def posts(self) -> list[str]:
        """The paths of all POST calls of the run and its publisher, in order."""
        lines = (self.dir / "events.jsonl").read_text().splitlines()
        events = [event for event in map(json.loads, lines) if event["kind"] in ("http", "publisher_http")]
        return [event["path"] for event in events if event["method"] == "POST"]


@dataclass
class Vst:
    """Starts the product's command line with a cache shared by the whole session."""

    cache: Path
    runs: Path
    count: int = 0
    extra: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *overrides: str, cwd: Path | None = None) -> tuple[subprocess.Popen[str], Path]:
        self.count += 1
        out = self.runs / f"{self.count}"
        argv = [sys.executable, "-m", "vst", f"paths.cache='{self.cache}'", f"hydra.run.dir='{out}'", *overrides]
        env = {**os.environ, **self.extra}
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd or self.runs, env=env
        )
        self.started.append(process)
        return process, out

    def end(self) -> None:
        """End what is left of the runs: each would keep its server, and with it both cores, beyond its test."""
        for process in self.started:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=60)

    def __call__(self, *overrides: str, cwd: Path | None = None, timeout: float = 400) -> Run:
        begun = time.monotonic()
        process, out = self.start(*overrides, cwd=cwd)
        try:
            text, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.end()
            raise
        return Run(process.returncode, text, out, time.monotonic() - begun)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of this session, the same for all workers of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    path.mkdir(exist_ok=True)
    return path


@pytest.fixture(scope="session")
def cache(shared: Path) -> Path:
    return shared / "cache"


@pytest.fixture(scope="session")
def vst(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vst]:
    runs = Vst(cache, tmp_path_factory.mktemp("runs"))
    yield runs
    runs.end()


@pytest.fixture(scope="session")
def pair(cache: Path) -> tuple[Path, Path]:
    """The embedded pair, A and B, in the session's cache."""
    return make_tiny_pair(cache / "tiny")


@pytest.fixture(scope="session")
def warm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """What is put before the command of a server whose own start a test is not about: vLLM is imported once for all.

    Nothing with ``--campaigns``: there every server starts afresh.
    """
    if request.config.getoption("--campaigns"):
        yield ()
        return
    with warm_vllm(tmp_path_factory.mktemp("warm") / "warm.log") as process:
        process.wait()
        yield process.prefix


def forked(warm: tuple[str, ...]) -> list[str]:
    """The overrides of a run whose servers and publisher are forked from the warm process."""
    words = ",".join(map(quoted, warm))
    return [f"server.launch_prefix=[{words}]", f"publisher.launch_prefix=[{words}]"]


def default_spec() -> ServerSpec:
    """The serving flags of ``server=cpu`` as they are in ``conf/``, so that references are comparable."""
    conf = OmegaConf.load(conf_dir() / "server" / "cpu.yaml")
    env = {str(key): str(value) for key, value in conf.env.items()}
    return ServerSpec("cpu", "vst_gloo", 1, 1, 1, conf.max_model_len, None, tuple(conf.args), env)


@dataclass
class Live:
    """A real server of the test's own, on one port, which comes back to its checkpoint after a test broke it."""

    model: Path
    log: Path
    prefix: tuple[str, ...] = ()
    port: int = field(default_factory=lambda: free_port("127.0.0.1"))
    process: ServerProcess | None = None
    label: str = ""
    cold: Record | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        spec = default_spec()
        argv = [*self.prefix, *command(spec, self.model, "127.0.0.1", self.port, "tiny")]
        self.process = ServerProcess(argv, environment(spec, os.environ), self.log)
        self.process.wait_ready(ControlPlane(self.url), 300)
        self.label = self.now_label()
        # It has only just loaded its checkpoint: every later state is compared with what it answers now.
        self.cold = self.cold or self.record()

    def record(self) -> Record:
        """What the server answers to the probes of the default configuration."""
        probes = make_probes(320, 8, 4, 192, 8, 5, 20260101)
        return take_record(ControlPlane(self.url, timeout_s=120), "tiny", probes, "A", 120)

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()

    def serving(self) -> bool:
        try:
            paused = httpx.get(f"{self.url}/is_paused", timeout=10, trust_env=False).json()["is_paused"]
        except httpx.HTTPError:
            return False
        return paused is False

    def now_label(self) -> str:
        return str(httpx.get(f"{self.url}/weight_info", timeout=10, trust_env=False).json()["weight_version"])

    def untouched(self) -> bool:
        """Whether nothing was pushed since the server was last known to serve its checkpoint."""
        return self.serving() and self.now_label() == self.label

    def attach(self, a: Path, b: Path, url: str | None = None) -> list[str]:
        """The overrides of a run that attaches to this server, or to a proxy before it."""
        env = [f"+server.env.{key}='{value}'" for key, value in default_spec().env.items()]
        return [
            "server=attach",
            f"server.base_url={url or self.url}",
            "model=local",
            "model.name=tiny",
            f"model.path='{a}'",
            f"checkpoint.path='{b}'",
            "server.max_model_len=512",
            "server.args=[--enforce-eager]",
            *env,
            *forked(self.prefix),
            "server.capabilities.weight_digests=false",
            "server.capabilities.reason='the CPU build empties repacked parameters'",
            "lane.cycles=1",
        ]


@pytest.fixture(scope="package")
def live_process(
    pair: tuple[Path, Path], warm: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Live]:
    # Not for the whole session: a worker of an idle server keeps polling, and two cores are few.
    live = Live(pair[0], tmp_path_factory.mktemp("live") / "server.log", warm)
    live.start()
    yield live
    live.stop()


@pytest.fixture(scope="session")
def recovery(
    pair: tuple[Path, Path], warm: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Recovery]:
    manifest = with_digests(read_manifest(pair[0]), None)
    directory = tmp_path_factory.mktemp("recovery")
    (directory / "a.json").write_text(json.dumps(manifest.to_json()))
    recovery = Recovery(directory, manifest.total_bytes, warm)
    yield recovery
    recovery.stop()


@pytest.fixture
def live(live_process: Live, recovery: Recovery) -> Iterator[Live]:
    """A server that serves A at the start of each test: whatever a test left, it is pushed back or restarted."""
    yield live_process
    if not live_process.untouched():
        recovery.bring_back(live_process)


@dataclass
class Recovery:
    """A publisher that stays: one full push of A and a resume bring a paused server back; a restart does otherwise."""

    directory: Path
    nbytes: int
    prefix: tuple[str, ...] = ()
    publisher: Publisher | None = None

    def bring_back(self, live: Live) -> None:
        try:
            self.push(live)
        except VstError:
            self.stop()
            live.stop()
            live.start()
        live.label = live.now_label()
        assert live.serving()

    def push(self, live: Live) -> None:
        control = ControlPlane(live.url, timeout_s=30)
        if self.publisher is None:
            deadlines = Deadlines(120, 30, 30, 30, 30, 1e6)
            log = self.directory / "publisher.log"
            self.publisher = Publisher(deadlines, log, lambda report: None, self.prefix)
            self.publisher.start({**os.environ, "VLLM_TARGET_DEVICE": "cpu"})
        layout = str(self.directory / "a.json")
        where = JoinPlan(layout, (Member(live.url, 1),), None, "vst_gloo", "127.0.0.1", 0, 1 << 20, "cpu", 30, 30)
        control.post("/pause", params={"mode": "keep"})
        self.publisher.join(where)
        self.publisher.push(PushPlan(layout, f"recovered-{time.monotonic_ns()}"), self.nbytes)
        control.post("/reset_prefix_cache")
        control.post("/resume")

    def stop(self) -> None:
        if self.publisher is not None:
            self.publisher.stop()
            self.publisher = None


@pytest.fixture(scope="session")
def ladder(vst: Vst, pair: tuple[Path, Path], shared: Path) -> Run:
    """The embedded default as a user runs it, with servers that start afresh; it fills the reference cache."""
    return once(shared / "ladder.json", vst)


@pytest.fixture(scope="session")
def two_workers(vst: Vst, pair: tuple[Path, Path], shared: Path, warm: tuple[str, ...]) -> Run:
    """The embedded default with tensor parallelism over two workers."""
    words = ("server.tensor_parallel_size=2", "lane.controls=none", "lane.cycles=1", *forked(warm))
    return once(shared / "two_workers.json", lambda: vst(*words))


def once(kept: Path, run: Callable[[], Run]) -> Run:
    """A run that is made once for the session, by whichever worker of pytest-xdist comes first."""
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            done = run()
            kept.write_text(json.dumps({**asdict(done), "dir": str(done.dir)}))
    told = json.loads(kept.read_text())
    return Run(told["code"], told["out"], Path(told["dir"]), told["seconds"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in Path(str(item.path)).parents:
            item.add_marker(pytest.mark.vllm)
