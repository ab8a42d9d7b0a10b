"""Time and memory of a large sweep of trivial runs, beside the stock submitit launcher with as many empty jobs.

    python tests/cluster/bench_sweep.py [RUNS] [STOCK]

STOCK is a directory with hydra-submitit-launcher in it (pip install --no-deps --target STOCK hydra-submitit-launcher);
without it only our own launcher is measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster.slurm_cluster import Cluster  # noqa: E402

APP = """\
import hydra

@hydra.main(config_path=None, version_base="1.3")
def main(cfg):
    return 0

if __name__ == "__main__":
    main()
"""


def measure(command: list[str], env: dict[str, str], cwd: Path) -> tuple[float, float, int]:
    """Seconds, peak resident memory in MiB and exit code of a command, without its children."""
    begun = time.monotonic()
    process = subprocess.Popen(command, env=env, cwd=cwd, stdout=subprocess.DEVNULL)
    peak = 0

    def look() -> None:
        nonlocal peak
        while process.poll() is None:
            try:
                peak = max(peak, psutil.Process(process.pid).memory_info().rss)
            except psutil.Error:
                return
            time.sleep(0.2)

    watcher = threading.Thread(target=look)
    watcher.start()
    code = process.wait()
    watcher.join()
    return time.monotonic() - begun, peak / 2**20, code


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    stock = sys.argv[2] if len(sys.argv) > 2 else None
    folder = Path(tempfile.mkdtemp(prefix="vst-bench-"))
    cluster = Cluster(accounting=stock is not None, array=1001)  # the stock launcher hangs without sacct
    try:
        cluster.start()
        env = {**cluster.env, "VST_CACHE": str(folder / "cache")}
        sweep = [f"oracle.seed=range(0,{count})", "hydra/launcher=slurm", "hydra.launcher.cpus_per_task=4"]
        own = [sys.executable, "-m", "vst", "-m", "lane=L0", *sweep, f"hydra.sweep.dir={folder}/own"]
        show(f"vst, {count} runs of L0", measure([*own, "hydra.launcher.mem_gb=0.5"], env, folder))
        if stock:
            (folder / "app.py").write_text(APP)
            words = ["+x=" + f"range(0,{count})", "hydra/launcher=submitit_slurm", f"hydra.sweep.dir={folder}/stock"]
            shape = ["hydra.launcher.cpus_per_task=4", "hydra.launcher.mem_gb=1"]
            command = [sys.executable, "app.py", "-m", *words, *shape]
            paths = os.pathsep.join([stock, str(folder)])
            show(f"stock, {count} empty jobs", measure(command, {**env, "PYTHONPATH": paths}, folder))
    finally:
        cluster.stop()


def show(what: str, measured: tuple[float, float, int]) -> None:
    seconds, peak, code = measured
    print(f"{what}: {seconds:.1f} s from submit to the last result, launcher's peak {peak:.0f} MiB, exit code {code}")


if __name__ == "__main__":
    main()
