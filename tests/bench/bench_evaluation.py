"""What the client costs: ``python tests/bench/bench_evaluation.py [questions] [concurrency] [delay_ms]``.

GSM8K's number of questions, or another, against a scripted completions server in a process of its own. Printed: the
time for each request beyond the server's own, the memory that this process took, and whether a record was lost or a
request sent twice. Exit code 1 when one was.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from evals.completions import Completions  # noqa: E402
from evals.plans import endpoint, header, make_plan  # noqa: E402

from vst.evals.asking import evaluate  # noqa: E402


def serve(pipe: Connection, delay_s: float) -> None:
    with Completions(delay_s=delay_s) as server:
        pipe.send(server.url)
        pipe.recv()
        pipe.send((server.prompts, server.most))


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    count, concurrency, delay_ms = ([int(one) for one in sys.argv[1:4]] + [1319, 256, 50][len(sys.argv) - 1 :])[:3]
    pipe, other = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(other, delay_ms / 1000), daemon=True)
    process.start()
    url = pipe.recv()
    plan = make_plan(count, concurrency=concurrency, shots=5)
    before, cpu, begun = peak_mib(), time.process_time(), time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "e.jsonl"
        found = evaluate(plan, endpoint(url, 120.0), path, header(plan))
        size = path.stat().st_size
    wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
    pipe.send("done")
    prompts, most = pipe.recv()
    ideal = delay_ms / 1000 * -(-count // concurrency)
    twice = sum(times - 1 for times in Counter(prompts).values())
    print(f"{count} questions, concurrency {concurrency}, the server takes {delay_ms} ms for each")
    print(f"wall {wall:.2f} s, of which the server alone {ideal:.2f} s; client CPU {cpu:.2f} s")
    beyond = 1000 * (wall - ideal) / count
    print(f"client overhead a request: {1000 * cpu / count:.2f} ms of CPU, {beyond:.2f} ms of time")
    print(f"peak memory {peak_mib():.0f} MiB, {peak_mib() - before:.0f} MiB more than before; file {size / 1e6:.1f} MB")
    print(f"most requests open at once {most}; records {len(found.records)}, failed {len(found.failed)}")
    print(f"lost {count - len(found.records)}, sent twice {twice}, never sent {count - len(set(prompts))}")
    return 1 if found.missing or found.failed or twice or len(set(prompts)) != count else 0


if __name__ == "__main__":
    sys.exit(main())
