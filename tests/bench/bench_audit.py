"""How long the audit of lane L0 takes on a checkpoint of the largest size, against safetensors' own ``safe_open``.

Makes a sparse checkpoint (163 shards, 92,095 tensors, 700 GB in name, some MB on disk), then times five rounds of

* ``audit``: all checks of one checkpoint without reading tensor data (``content=False``, ``finite="never"``)
* ``manifest``: ``read_manifest`` alone
* ``safe_open``: listing keys, shapes and dtypes of every shard with safetensors (framework numpy), single files only

and measures the peak memory of the audit in its own process. All of them use one core and no disk: where a machine is
shared, the processor seconds say what they take. A million tensors, 11 times as many as 92,095, take 14 times as long,
and the writing, three cases and the second audit together about four times as long as the audit alone.
Run: ``python tests/bench/bench_audit.py [--million | --linear]``; the last prints the audit alone for sizes up to a
million, with the microseconds that one tensor takes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from vst.checkpoint.audit import AuditOptions, audit
from vst.checkpoint.manifest import read_manifest
from vst.checkpoint.writer import write_sparse_checkpoint
from vst.verdict import Outcome

ROUNDS = 5
SHARDS, TENSORS_PER_SHARD, TENSOR_BYTES = 163, 565, 7_600_000
MILLION_SHARDS, MILLION_TENSORS_PER_SHARD = 500, 2000
LINEAR = (163, 50_000), (163, 92_095), (250, 250_000), (500, 500_000), (500, 1_000_000)
"""(shards, tensors)."""

OPTIONS = AuditOptions(content=False, finite="never", allow_network_fs=True)
NEEDED_BYTES = 1 << 30


def run_audit(directory: Path) -> int:
    result = audit({"checkpoint": directory}, OPTIONS)
    bad = [check for check in result.checks if check.outcome not in (Outcome.PASS, Outcome.NOT_APPLICABLE)]
    if bad:
        raise SystemExit(f"the audit of the synthetic checkpoint failed: {bad[0].reason}")
    return len(result.manifests["checkpoint"].tensors)


def run_manifest(directory: Path) -> int:
    return len(read_manifest(directory).tensors)


def run_safe_open(directory: Path) -> int:
    from safetensors import safe_open

    layout = {}
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, "numpy") as file:
            for key in file.keys():  # noqa: SIM118
                view = file.get_slice(key)
                layout[key] = (view.get_shape(), view.get_dtype())
    return len(layout)


CASES: dict[str, Callable[[Path], int]] = {
    "audit": run_audit,
    "manifest": run_manifest,
    "safe_open": run_safe_open,
}


def timed(case: Callable[[Path], int], directory: Path) -> tuple[float, float, int]:
    """Seconds on the clock, seconds of the processor, and the tensors that were seen."""
    start, used = time.perf_counter(), time.process_time()
    count = case(directory)
    return time.perf_counter() - start, time.process_time() - used, count


def peak_of_audit(directory: Path) -> tuple[float, float]:
    """Peak resident MiB of a process that audits the checkpoint once, and the wall seconds of that whole process."""
    start = time.perf_counter()
    command = [sys.executable, __file__, "--peak", str(directory)]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return float(found.stdout), time.perf_counter() - start


def measure(directory: Path, rounds: int) -> dict[str, object]:
    seconds: dict[str, list[float]] = {name: [] for name in CASES}
    processor: dict[str, list[float]] = {name: [] for name in CASES}
    counts: dict[str, int] = {}
    for _ in range(rounds):
        for name, case in CASES.items():
            elapsed, used, counts[name] = timed(case, directory)
            seconds[name].append(elapsed)
            processor[name].append(used)
    if len(set(counts.values())) != 1:
        raise SystemExit(f"the cases saw different numbers of tensors: {counts}")
    for name, values in seconds.items():
        clock = f"median {statistics.median(values):7.3f} s  min {min(values):7.3f} s"
        print(f"{name:10} {clock}  processor {statistics.median(processor[name]):7.3f} s  of {rounds}", flush=True)
    peak, process = peak_of_audit(directory)
    print(f"{'peak':10} {peak:.0f} MiB resident, {process:.2f} s for the whole process")
    return {
        "tensors": counts["audit"],
        "median_s": {name: round(statistics.median(values), 4) for name, values in seconds.items()},
        "processor_s": {name: round(statistics.median(values), 4) for name, values in processor.items()},
        "audit_peak_mib": round(peak, 1),
        "audit_process_s": round(process, 3),
    }


def linear() -> list[dict[str, float]]:
    """The audit of ever more tensors, the best of three: whether each of them takes as long as before."""
    found = []
    for shards, tensors in LINEAR:
        with tempfile.TemporaryDirectory(prefix="vst-bench-") as name:
            directory = Path(name)
            room(directory)
            write_sparse_checkpoint(directory, shards, tensors // shards, TENSOR_BYTES)
            taken = [timed(run_audit, directory) for _ in range(3)]
        seconds, processor, count = min(taken)
        each = seconds / count * 1e6
        clock = f"{seconds:7.3f} s  processor {processor:7.3f} s"
        print(f"{count:9,} tensors  {clock}  {each:5.2f} us a tensor", flush=True)
        found.append({"tensors": count, "seconds": round(seconds, 4), "us_a_tensor": round(each, 3)})
    return found


def room(directory: Path) -> None:
    found = os.statvfs(directory)
    if found.f_bavail * found.f_frsize < NEEDED_BYTES or (found.f_files and found.f_favail < 2 * MILLION_SHARDS):
        raise SystemExit(f"{directory}: not enough free space or inodes for the sparse checkpoint")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--million", action="store_true", help="one million tensors in 500 shards, one round")
    parser.add_argument("--linear", action="store_true", help="the audit alone, at sizes up to a million tensors")
    parser.add_argument("--peak", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        run_audit(arguments.peak)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    if arguments.linear:
        print(json.dumps(linear()))
        return
    directory = Path(tempfile.mkdtemp(prefix="vst-bench-"))
    try:
        room(directory)
        size = (MILLION_SHARDS, MILLION_TENSORS_PER_SHARD) if arguments.million else (SHARDS, TENSORS_PER_SHARD)
        write_sparse_checkpoint(directory, *size, TENSOR_BYTES)
        print(json.dumps(measure(directory, 1 if arguments.million else ROUNDS)))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
