"""How fast the content of a checkpoint is digested, against other tools and against a plain read of the same bytes.

Alternating in one run, from the page cache: ``ours`` (``with_digests``: the content), ``ours+sha256`` (with the SHA-256
of the shards in the same pass), ``sha256sum`` of the shards, one process a core, ``blake3`` (the PyPI package, mapping
the files, all threads), and ``read`` (into one warm buffer by one thread: what no digest can reach).
The ratio of rates to the faster of the two tools is that of the medians; beside it stands the median of the ratios of
each round, which says more where others use the machine, and the processor seconds of each way. Memory of ours is
measured at its peak in a process of its own.
Run: ``python tests/bench/bench_digest.py [--cases NAME,…] [--rounds 5] [--keep DIR] [--json FILE]``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blake3 import blake3

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.synthetic import CASES, write_case
from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import Manifest, read_manifest

TOOLS = ("sha256sum", "blake3")


def ours(manifest: Manifest) -> None:
    with_digests(manifest, None)


def ours_and_sha256(manifest: Manifest) -> None:
    with_digests(manifest, None, shard_digests=True)


def sha256sum(manifest: Manifest) -> None:
    paths = [str(manifest.shard_path(shard.name)) for shard in manifest.shards]
    cores = str(os.cpu_count() or 1)
    argv = ["xargs", "-0", "-n1", "-P", cores, "sha256sum"]
    subprocess.run(argv, input="\0".join(paths).encode(), check=True, stdout=subprocess.DEVNULL)


def b3(manifest: Manifest) -> None:
    for shard in manifest.shards:
        hasher = blake3(max_threads=blake3.AUTO)
        hasher.update_mmap(str(manifest.shard_path(shard.name)))
        hasher.digest()


def ways() -> dict[str, Callable[[Manifest], Any]]:
    # It imports torch, which has no place in the process whose memory is measured.
    from bench.push_sides import read_all

    return {"ours": ours, "ours+sha256": ours_and_sha256, "sha256sum": sha256sum, "blake3": b3, "read": read_all}


def run_case(name: str, root: Path, rounds: int) -> dict[str, Any]:
    manifest = read_manifest(write_case(root / name, CASES[name], 1))
    seconds: dict[str, list[float]] = {key: [] for key in ways()}
    processor: dict[str, list[float]] = {key: [] for key in seconds}
    for _ in range(rounds + 1):
        for key, way in ways().items():
            begun, used = time.perf_counter(), processor_time()
            way(manifest)
            seconds[key].append(time.perf_counter() - begun)
            processor[key].append(processor_time() - used)
    # The first round fills the page cache.
    return report(name, manifest, _without_first(seconds), _without_first(processor))


def _without_first(values: dict[str, list[float]]) -> dict[str, list[float]]:
    return {key: [round(value, 4) for value in found[1:]] for key, found in values.items()}


def processor_time() -> float:
    """Seconds that this process and the children that it waited for have computed."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def report(
    name: str, manifest: Manifest, seconds: dict[str, list[float]], processor: dict[str, list[float]]
) -> dict[str, Any]:
    median = {key: statistics.median(values) for key, values in seconds.items()}
    used = {key: round(statistics.median(values), 3) for key, values in processor.items()}
    total = manifest.total_bytes
    rates = "  ".join(f"{key} {value:.3f} s {total / value / 1e9:.2f} GB/s" for key, value in median.items())
    ratios = {key: rate_of_fastest(key, median, seconds) for key in ("ours", "ours+sha256")}
    peak = peak_of_ours(manifest.path)
    print(f"{name}: {rates}  peak {peak / 1e6:.0f} MB", flush=True)
    print(f"    rate of the fastest tool (medians, median of rounds) {ratios}  processor seconds {used}", flush=True)
    return {
        "case": name,
        "bytes": total,
        "seconds": seconds,
        "processor_s": used,
        "rate_of_fastest": {key: value[0] for key, value in ratios.items()},
        "rate_of_fastest_by_round": {key: value[1] for key, value in ratios.items()},
        "peak_bytes": peak,
    }


def rate_of_fastest(way: str, median: dict[str, float], seconds: dict[str, list[float]]) -> tuple[float, float]:
    """The rate of a way in that of the faster tool: of the medians, and the median over the rounds."""
    rounds = zip(seconds[way], *(seconds[tool] for tool in TOOLS), strict=True)
    by_round = statistics.median(min(tools) / took for took, *tools in rounds)
    return round(min(median[tool] for tool in TOOLS) / median[way], 3), round(by_round, 3)


def peak_of_ours(path: Path) -> int:
    argv = [sys.executable, __file__, "--peak", str(path)]
    return int(subprocess.run(argv, check=True, capture_output=True, text=True, timeout=600).stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="1GB-1shard,1GB-8shards")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peak", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        ours(read_manifest(options.peak))
        # Not ru_maxrss, which begins with what the parent had.
        status = Path("/proc/self/status").read_text().splitlines()
        print(next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) << 10)
        return
    with tempfile.TemporaryDirectory(prefix="vst-bench-") as scratch:
        root = options.keep or Path(scratch)
        results = [run_case(name, root, options.rounds) for name in options.cases.split(",")]
    text = json.dumps({"cores": os.cpu_count(), "load": os.getloadavg(), "results": results}, indent=1)
    if options.json:
        options.json.write_text(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
