"""How fast a push is, against what else could have brought the same bytes into the same server.

For every case, alternating in one run, so that a noisy machine treats all alike:

* ``push``      our publisher, the whole transaction from start to finish
* ``naive``     a sender that reads a tensor, puts a bucket together, broadcasts it, waits, and goes on
* ``reload``    vLLM's own ``reload_weights`` from the same files
* ``unhashed``  our publisher with a digest that costs nothing: what the digest costs
* ``broadcast`` the same bytes from warm memory to a process that drops them, by the same gloo, nothing else
* ``read``      the files from the page cache into one warm buffer

Beside the seconds there is the processor time that server and publishers took for each way: where a machine is shared
it says more than the clock. Peak memory is that of the publisher's process, beyond what it had before the push.
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
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.push_sides import broadcast_receiver, broadcast_sender, naive_sender, read_all
from bench.synthetic import CASES, write_case
from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import Manifest, read_manifest
from vst.server.client import ControlPlane
from vst.server.launch import ServerSpec, command, environment
from vst.server.process import ServerProcess, free_port
from vst.transfer.plan import JoinPlan, Member, PushPlan, Sent
from vst.transfer.publisher import Deadlines, Publisher

DEADLINES = Deadlines(180, 120, 120, 120, 300, 1e7)
SERVER_ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "TORCHDYNAMO_DISABLE": "1"}
"""As in ``server=cpu``."""

UNHASHED = Path(__file__).parent / "unhashed"


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

    def push(self, publisher: Publisher, manifest: Path) -> float:
        publisher.join(self.plan())
        begun = time.perf_counter()
        self.sent = publisher.push(PushPlan(str(manifest), "bench"), self.manifest.total_bytes)
        return time.perf_counter() - begun

    def reload(self) -> float:
        begun = time.perf_counter()
        self.control.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(self.model)}})
        return time.perf_counter() - begun

    def broadcast(self) -> float:
        context = multiprocessing.get_context("spawn")
        ports: Any = context.Queue()
        args = (self.manifest.total_bytes, self.bucket_bytes)
        other = context.Process(target=broadcast_receiver, args=(ports, *args))
        other.start()
        took = broadcast_sender(ports, *args)
        other.join()
        return took

    def stop(self) -> None:
        self.server.stop()


def peak_beyond(publisher: Publisher, act: Callable[[], float]) -> tuple[float, int]:
    """Seconds of ``act`` and by how many bytes the publisher's resident memory rose over what it was before."""
    process = psutil.Process(publisher.pid)
    status = Path(f"/proc/{process.pid}/status")

    def peak() -> int:
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) << 10

    Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    before = process.memory_info().rss
    return act(), peak() - before


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
    growth: list[int] = [0]

    def push() -> float:
        took, grown = peak_beyond(ours, lambda: bench.push(ours, bench.layout))
        growth.append(grown)
        return took

    ways: dict[str, Callable[[], float]] = {
        "push": push,
        "reload": bench.reload,
        "naive": lambda: naive_sender(bench.plan(), bench.manifest),
        "unhashed": lambda: bench.push(unhashed, bench.undigested),
        "broadcast": bench.broadcast,
        "read": lambda: read_all(bench.manifest),
    }
    ways = {key: way for key, way in ways.items() if key in options.ways.split(",")}
    seconds: dict[str, list[float]] = {key: [] for key in ways}
    work: dict[str, list[float]] = {key: [] for key in ways}
    try:
        for _ in range(options.rounds + 1):
            for key, way in ways.items():
                before = processor_time()
                seconds[key].append(way())
                work[key].append(processor_time() - before)
    finally:
        ours.stop()
        unhashed.stop()
    # The first round warms all of them; memory counts from it on.
    found = report(name, bench, {key: values[1:] for key, values in seconds.items()}, max(growth))
    processor = {key: round(statistics.median(values[1:]), 3) for key, values in work.items()}
    share = {f"push/{key}": round(processor["push"] / value, 3) for key, value in processor.items() if value}
    print(f"    processor seconds {processor}, push/reload {share.get('push/reload')}, load {os.getloadavg()[0]:.1f}")
    return {**found, "processor_s": processor, "processor_ratios": share, "load": os.getloadavg()}


def processor_time() -> float:
    """Seconds that this process and everything that it started and that still lives have computed."""
    me = psutil.Process()
    times = [me.cpu_times()]
    for one in me.children(recursive=True):
        with suppress(psutil.Error):
            times.append(one.cpu_times())
    return sum(one.user + one.system for one in times)


def report(name: str, bench: Bench, seconds: dict[str, list[float]], growth: int) -> dict[str, Any]:
    median = {key: statistics.median(values) for key, values in seconds.items()}
    total = bench.manifest.total_bytes
    sent = bench.sent.to_json() if bench.sent else {}
    ratios = {f"push/{key}": round(median["push"] / value, 3) for key, value in median.items() if key != "push"}
    if {"read", "broadcast"} <= median.keys():
        ratios["push/max(read,broadcast)"] = round(median["push"] / max(median["read"], median["broadcast"]), 3)
    rates = "  ".join(f"{key} {value:.3f} s {total / value / 1e9:.2f} GB/s" for key, value in median.items())
    print(f"{name}: {total / 1e9:.2f} GB  {rates}  {ratios}  publisher +{growth / 1e6:.0f} MB", flush=True)
    return {
        "case": name,
        "bytes": total,
        "bucket_bytes": bench.bucket_bytes,
        "ring": bench.ring,
        "seconds": {key: [round(value, 4) for value in values] for key, values in seconds.items()},
        "median_s": {key: round(value, 4) for key, value in median.items()},
        "ratios": ratios,
        "publisher_growth_bytes": growth,
        "memory": sent.get("memory"),
        "stages": sent.get("stages"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="0.25GB-1shard,1GB-1shard", help=f"some of {', '.join(CASES)}, or all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bucket-bytes", type=int, default=16 << 20)
    parser.add_argument("--ring", type=int, default=4)
    parser.add_argument("--ways", default="push,reload,naive,unhashed,broadcast,read")
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
