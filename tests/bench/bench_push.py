"""How fast a push is, against what else could have brought the same bytes into the same server.

For every case, alternating in one run, so that a noisy machine treats all alike:

* ``push``      our publisher, the whole transaction from start to finish
* ``naive``     a sender that reads a tensor, puts a bucket together, broadcasts it, waits, and goes on
* ``reload``    vLLM's own ``reload_weights`` from the same files
* ``unhashed``  our publisher with a digest that costs nothing: what the digest costs
* ``publish``   our publisher's half of a push: it reads, hashes and broadcasts to a process that drops what it gets
* ``broadcast`` the same bytes from warm memory to a process that drops them, by the same gloo, nothing else
* ``read``      the files from the page cache into one warm buffer

Before each way the server is left alone until its processes no longer spin for what may come, so that no way pays for
the one before. Beside the seconds there is the processor time that server and publishers took for each way: where a
machine is shared it says more than the clock. ``push/work`` is the push against the processor time of ``reload`` and
``publish`` together, spread over all cores: at 1 the cores did nothing but read, hash, send and load, and never waited.
Peak memory is what the process that sends, and those of the server, had at most beyond
what they had before; a push is held against ring x bucket + largest tensor + 64 MB.
Run: ``python tests/bench/bench_push.py [--cases NAME,…] [--rounds 5] [--keep DIR] [--json FILE]``. Needs vLLM.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.push_sides import (
    broadcast_receiver,
    broadcast_sender,
    naive_sender,
    publishing_receiver,
    publishing_sender,
    read_all,
)
from bench.synthetic import CASES, write_case
from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import Manifest, read_manifest
from vst.server.client import ControlPlane
from vst.server.launch import ServerSpec, command, environment
from vst.server.process import ServerProcess, free_port
from vst.transfer.outgoing import Memory
from vst.transfer.plan import JoinPlan, Member, PushPlan, Sent
from vst.transfer.publisher import Deadlines, Publisher

DEADLINES = Deadlines(180, 120, 120, 120, 300, 1e7)
SERVER_ENV = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
}
"""As in ``server=cpu``."""

SETTLE_S = 1.5
"""vLLM's EngineCore spins for a second after each answer of a worker (``SpinCondition`` in its shm_broadcast.py)."""

SLACK_BYTES = 64_000_000
UNHASHED = Path(__file__).parent / "unhashed"


class Took(NamedTuple):
    """Seconds of one way, and those of a processor in a process that has ended since."""

    seconds: float
    elsewhere: float = 0.0


class Bench:
    """One server, two publishers that stay, and the ways in which bytes reach it."""

    def __init__(self, model: Path, work: Path, bucket_bytes: int, ring: int) -> None:
        self.model, self.bucket_bytes, self.ring = model, bucket_bytes, ring
        self.manifest: Manifest = with_digests(read_manifest(model), None)
        self.layout = work / "manifest.json"
        self.layout.write_text(json.dumps(self.manifest.to_json()))
        undigested = read_manifest(model).to_json()
        self.undigested = work / "undigested.json"
        self.undigested.write_text(json.dumps(undigested))
        self.port = free_port("127.0.0.1")
        spec = ServerSpec("cpu", "vst_gloo", 1, 1, 1, 256, None, ("--enforce-eager",), SERVER_ENV)
        argv = command(spec, model, "127.0.0.1", self.port, "bench")
        self.server = ServerProcess(argv, environment(spec, os.environ), work / "server.log")
        self.control = ControlPlane(self.url, timeout_s=300)
        self.server.wait_ready(self.control, 900)
        self.control.post("/pause", params={"mode": "keep"})
        self.work = work
        self.sent: Sent | None = None
        self.memory = Memory()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def plan(self) -> JoinPlan:
        members = (Member(self.url, 1),)
        where = (str(self.layout), members, None, "vst_gloo", "127.0.0.1", 0, self.bucket_bytes, "cpu", 300.0, 300.0)
        return JoinPlan(*where, self.ring)

    def publisher(self, name: str, **env: str) -> Publisher:
        started = Publisher(DEADLINES, self.work / f"{name}.log", lambda report: None)
        started.start({**os.environ, "VLLM_TARGET_DEVICE": "cpu", **env})
        return started

    def push(self, publisher: Publisher, manifest: Path) -> Took:
        publisher.join(self.plan())
        begun = time.perf_counter()
        self.sent = publisher.push(PushPlan(str(manifest), "bench"), self.manifest.total_bytes)
        return Took(time.perf_counter() - begun)

    def reload(self) -> Took:
        begun = time.perf_counter()
        self.control.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(self.model)}})
        return Took(time.perf_counter() - begun)

    def broadcast(self) -> Took:
        args = (self.manifest.total_bytes, self.bucket_bytes)
        return _beside(broadcast_receiver, args, lambda ports: broadcast_sender(ports, *args))

    def publish(self) -> Took:
        sizes = [one.nbytes for one in self.manifest.tensors]
        push = PushPlan(str(self.layout), "bench")
        return _beside(
            publishing_receiver,
            (sizes, self.bucket_bytes),
            lambda ports: publishing_sender(ports, self.plan(), push, self.manifest, self.memory),
        )

    def stop(self) -> None:
        self.server.stop()


def _beside(receiver: Callable[..., None], args: tuple[Any, ...], act: Callable[[Any], float]) -> Took:
    """What ``act`` says, with ``receiver`` in a process of its own; both are given the queue of the rendezvous."""
    context = multiprocessing.get_context("spawn")
    ports: Any = context.Queue()
    spent: Any = context.Queue()
    other = context.Process(target=_counted, args=(spent, receiver, ports, *args))
    other.start()
    took = act(ports)
    elsewhere = spent.get(timeout=DEADLINES.broadcast_s)
    other.join()
    return Took(took, elsewhere)


def _counted(spent: Any, receiver: Callable[..., None], *args: Any) -> None:
    begun = time.process_time()
    receiver(*args)
    spent.put(time.process_time() - begun)


class Peaks:
    """By how many bytes the resident memory of some processes rose, each at its own highest, since this was made."""

    def __init__(self, processes: list[psutil.Process]) -> None:
        self._before: dict[int, int] = {}
        for one in processes:
            Path(f"/proc/{one.pid}/clear_refs").write_text("5")
            self._before[one.pid] = one.memory_info().rss

    def grown(self) -> int:
        return sum(max(0, self._highest(pid) - before) for pid, before in self._before.items())

    @staticmethod
    def _highest(pid: int) -> int:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) << 10


def run_case(name: str, root: Path, options: argparse.Namespace) -> dict[str, Any]:
    model = write_case(root / name, CASES[name], 1)
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        bench = Bench(model, Path(scratch), options.bucket_bytes, options.ring)
        try:
            return measure(name, bench, options)
        finally:
            bench.stop()


def measure(name: str, bench: Bench, options: argparse.Namespace) -> dict[str, Any]:
    ours, unhashed = bench.publisher("ours"), bench.publisher("unhashed", PYTHONPATH=str(UNHASHED))
    ours.join(bench.plan())
    unhashed.join(bench.plan())
    here, server = psutil.Process(), psutil.Process(bench.server.pid)
    senders = {"push": psutil.Process(ours.pid), "unhashed": psutil.Process(unhashed.pid)}
    ways: dict[str, Callable[[], Took]] = {
        "push": lambda: bench.push(ours, bench.layout),
        "reload": bench.reload,
        "naive": lambda: Took(naive_sender(bench.plan(), bench.manifest)),
        "unhashed": lambda: bench.push(unhashed, bench.undigested),
        "publish": bench.publish,
        "broadcast": bench.broadcast,
        "read": lambda: Took(read_all(bench.manifest)),
    }
    ways = {key: way for key, way in ways.items() if key in options.ways.split(",")}
    seconds: dict[str, list[float]] = {key: [] for key in ways}
    work: dict[str, list[float]] = {key: [] for key in ways}
    peaks: dict[str, list[tuple[int, int]]] = {key: [] for key in ways}
    try:
        for _ in range(options.rounds + 1):
            for key, way in ways.items():
                sender, receiver = Peaks([senders.get(key, here)]), Peaks([server, *server.children(recursive=True)])
                time.sleep(SETTLE_S)
                before = processor_time()
                took = way()
                seconds[key].append(took.seconds)
                work[key].append(processor_time() - before + took.elsewhere)
                peaks[key].append((sender.grown(), receiver.grown()))
    finally:
        ours.stop()
        unhashed.stop()
    # The first round warms all of them, and takes the memory that the others use again.
    memory = {key: tuple(map(max, zip(*values, strict=True))) for key, values in peaks.items()}
    found = report(name, bench, {key: values[1:] for key, values in seconds.items()}, memory)
    processor = {key: round(statistics.median(values[1:]), 3) for key, values in work.items()}
    share = {f"push/{key}": round(processor["push"] / value, 3) for key, value in processor.items() if value}
    if {"reload", "publish"} <= processor.keys():
        least = (processor["reload"] + processor["publish"]) / len(os.sched_getaffinity(0))
        found["ratios"]["push/work"] = round(found["median_s"]["push"] / least, 3)
    print(
        f"    processor seconds {processor}, push/reload {share.get('push/reload')}; "
        f"push/work {found['ratios'].get('push/work')}, load {os.getloadavg()[0]:.1f}"
    )
    return {**found, "processor_s": processor, "processor_ratios": share, "load": os.getloadavg()}


def processor_time() -> float:
    """Seconds that this process and everything that it started and that still lives have computed."""
    me = psutil.Process()
    times = [me.cpu_times()]
    for one in me.children(recursive=True):
        with suppress(psutil.Error):
            times.append(one.cpu_times())
    return sum(one.user + one.system for one in times)


def report(
    name: str, bench: Bench, seconds: dict[str, list[float]], memory: dict[str, tuple[int, ...]]
) -> dict[str, Any]:
    median = {key: statistics.median(values) for key, values in seconds.items()}
    total = bench.manifest.total_bytes
    sent = bench.sent.to_json() if bench.sent else {}
    ratios = {f"push/{key}": round(median["push"] / value, 3) for key, value in median.items() if key != "push"}
    if {"read", "broadcast"} <= median.keys():
        hardware = max(median["read"], median["broadcast"])
        over = {key: median[key] for key in ("push", "publish") if key in median}
        ratios |= {f"{key}/max(read,broadcast)": round(value / hardware, 3) for key, value in over.items()}
    bound = sent["memory"]["sender"] + sent["memory"]["largest_tensor"] + SLACK_BYTES
    rates = "  ".join(f"{key} {value:.3f} s {total / value / 1e9:.2f} GB/s" for key, value in median.items())
    print(f"{name}: {total / 1e9:.2f} GB  {rates}  {ratios}")
    grown = ", ".join(f"{key} +{one / 1e6:.0f} and server +{other / 1e6:.0f}" for key, (one, other) in memory.items())
    kept = "within" if memory["push"][0] <= bound else "BEYOND"
    print(f"    peak memory in MB: {grown}; push is {kept} its bound of {bound / 1e6:.0f}", flush=True)
    return {
        "case": name,
        "bytes": total,
        "bucket_bytes": bench.bucket_bytes,
        "ring": bench.ring,
        "seconds": {key: [round(value, 4) for value in values] for key, values in seconds.items()},
        "median_s": {key: round(value, 4) for key, value in median.items()},
        "ratios": ratios,
        "growth_bytes": {key: {"sender": one, "server": other} for key, (one, other) in memory.items()},
        "bound_bytes": bound,
        "memory": sent.get("memory"),
        "stages": sent.get("stages"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="0.25GB-1shard,1GB-1shard", help=f"some of {', '.join(CASES)}, or all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bucket-bytes", type=int, default=16 << 20)
    parser.add_argument("--ring", type=int, default=4)
    parser.add_argument("--ways", default="push,reload,naive,unhashed,publish,broadcast,read", help="push and others")
    parser.add_argument("--keep", type=Path, help="where the checkpoints are made and kept")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = list(CASES) if options.cases == "all" else options.cases.split(",")
    with tempfile.TemporaryDirectory(prefix="vst-bench-") as scratch:
        results = [run_case(name, options.keep or Path(scratch), options) for name in names]
    text = json.dumps({"cores": os.cpu_count(), "results": results}, indent=1)
    if options.json:
        options.json.write_text(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
