"""How fast the content of a checkpoint is digested, against other tools and against a plain read of the same bytes.

Alternating in one run, from the page cache: ``ours`` (``with_digests``: every tensor and every shard), ``sha256sum`` of
the shards, one process a core, ``blake3`` (the PyPI package, all cores) where it is installed, and ``read``. Memory
of ours is measured at its peak in a process of its own.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.synthetic import CASES, write_case
from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import Manifest, read_manifest


def ours(manifest: Manifest) -> None:
    with_digests(manifest, None)


def sha256sum(manifest: Manifest) -> None:
    paths = [str(manifest.shard_path(shard.name)) for shard in manifest.shards]
    cores = str(os.cpu_count() or 1)
    argv = ["xargs", "-0", "-n1", "-P", cores, "sha256sum"]
    subprocess.run(argv, input="\0".join(paths).encode(), check=True, stdout=subprocess.DEVNULL)


def b3(manifest: Manifest) -> None:
    import blake3

    for shard in manifest.shards:
        hasher = blake3.blake3(max_threads=blake3.blake3.AUTO)
        hasher.update_mmap(str(manifest.shard_path(shard.name)))
        hasher.digest()


def ways() -> dict[str, Callable[[Manifest], Any]]:
    # It imports torch, which has no place in the process whose memory is measured.
    from bench.push_sides import read_all

    found: dict[str, Callable[[Manifest], Any]] = {"ours": ours, "sha256sum": sha256sum, "read": read_all}
    try:
        import blake3  # noqa: F401
    except ImportError:
        print("blake3 is not installed: left out", flush=True)
        return found
    return {**found, "blake3": b3}


def run_case(name: str, root: Path, rounds: int) -> dict[str, Any]:
    manifest = read_manifest(write_case(root / name, CASES[name], 1))
    seconds: dict[str, list[float]] = {}
    for _ in range(rounds + 1):
        for key, way in ways().items():
            begun = time.perf_counter()
            way(manifest)
            seconds.setdefault(key, []).append(time.perf_counter() - begun)
    median = {key: statistics.median(values[1:]) for key, values in seconds.items()}
    tools = {key: value for key, value in median.items() if key in ("sha256sum", "blake3")}
    ratio = round(min(tools.values()) / median["ours"], 3)
    total = manifest.total_bytes
    rates = "  ".join(f"{key} {value:.3f} s {total / value / 1e9:.2f} GB/s" for key, value in median.items())
    peak = peak_of_ours(manifest.path)
    print(f"{name}: {rates}  ours at {ratio} of the fastest tool  peak {peak / 1e6:.0f} MB", flush=True)
    spread = {key: [round(value, 4) for value in values[1:]] for key, values in seconds.items()}
    return {"case": name, "bytes": total, "seconds": spread, "rate_of_fastest": ratio, "peak_bytes": peak}


def peak_of_ours(path: Path) -> int:
    argv = [sys.executable, __file__, "--peak", str(path)]
    return int(subprocess.run(argv, check=True, capture_output=True, text=True, timeout=600).stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="0.25GB-1shard,0.25GB-8shards,1GB-8shards")
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
