"""The allocation inside a job: who gets which GPUs, and servers over several nodes."""

from __future__ import annotations

import json
import time
from typing import Any

import psutil

from cluster.conftest import Vst
from cluster.slurm_cluster import Cluster

GPU = ("lane=L1", "server=gpu", "transfer=nccl", "publisher=gpu", "server.tensor_parallel_size=2")
# In place of vLLM, which needs real GPUs, this notes the environment that the server would have, and ends.
NOTE = 'exec "$0" -c "$2" "$3" bash -c "env > $OUT.\\$MARK; echo $WORDS >> $OUT.\\$MARK; exit 3"'


def prefix(vst: Vst, *before: str, words: str = "", mark: str = "one") -> str:
    note = NOTE.replace("$OUT", str(vst.cwd / "env")).replace("$WORDS", words).replace("\\$MARK", mark)
    listed = ",".join("'" + word.replace("'", "\\'") + "'" for word in (*before, "bash", "-c", note))
    return f"server.launch_prefix=[{listed}]"


def noted(vst: Vst, mark: str = "one") -> dict[str, str]:
    lines = (vst.cwd / f"env.{mark}").read_text().splitlines()
    return dict(line.partition("=")[::2] for line in lines)


def events(vst: Vst) -> dict[str, dict[str, Any]]:
    lines = (vst.sweep / "0/events.jsonl").read_text().splitlines()
    return {event["kind"]: event for event in map(json.loads, lines)}


def test_server_and_publisher_get_disjoint_gpus_of_the_allocation(vst: Vst) -> None:
    code, out = vst.slurm(*GPU, "hydra.launcher.gpus_per_node=3", prefix(vst))
    assert code == 20, out + vst.logs()  # the server that was started is none
    assert noted(vst)["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert events(vst)["publisher_start"]["devices"] == ["2"]
    assert not [name for name in noted(vst) if name.startswith(("SLURM_", "SBATCH_", "SRUN_", "SUBMITIT_"))]


def test_one_gpu_less_is_refused_before_it_is_submitted(vst: Vst) -> None:
    code, out = vst.slurm(*GPU, "hydra.launcher.gpus_per_node=2", prefix(vst))
    assert code == 2
    assert "needs 3 GPUs on a node (server and publisher), hydra.launcher.gpus_per_node=2 books fewer" in out
    assert not vst.file()


def test_an_allocation_with_one_gpu_less_is_refused_before_a_server_starts(vst: Vst) -> None:
    code, out = vst.slurm(*GPU, "hydra.launcher.gres=gpu:2", prefix(vst))
    assert code == 11, out + vst.logs()
    assert "server.devices: the job has 2 GPU(s) on this node (0, 1), needed are 3" in out
    assert "server_start" not in events(vst) and "publisher_start" not in events(vst)


def test_a_server_over_two_nodes_meets_at_the_jobs_first_host(vst: Vst) -> None:
    step = ("srun", "--overlap", "--nodes={nodes}", "--ntasks={nodes}", "--ntasks-per-node=1")
    where = "server.tensor_parallel_size=4"
    shape = ("hydra.launcher.nodes=2", "hydra.launcher.gpus_per_node=3")
    words = prefix(vst, *step, words="HEAD={head} HOSTS={hosts}", mark="$SLURMD_NODENAME")
    code, out = vst.slurm(*GPU, where, *shape, words)
    assert code == 20, out + vst.logs()
    for node in ("n1", "n2"):
        found = noted(vst, node)
        assert found["CUDA_VISIBLE_DEVICES"] == "0,1"
        assert found["HEAD"] == "n1 HOSTS=n1,n2"
        assert not [name for name in found if name.startswith(("SLURM_", "SRUN_"))]


def test_a_cancelled_job_takes_its_server_along(vst: Vst, cluster: Cluster) -> None:
    mark = f"sleep {time.time_ns()}"
    hang = f"server.launch_prefix=[bash,-c,'exec {mark}']"
    launcher = vst.start_slurm(*GPU, "hydra.launcher.gpus_per_node=3", hang)
    vst.until_begun()
    cluster.until(lambda: running(mark), "the server", 30)
    cluster.run("scancel", vst.job())
    launcher.communicate(timeout=60)
    assert launcher.returncode == 143
    assert json.loads((vst.sweep / "0/verdict.json").read_text())["interrupted"]
    cluster.until(lambda: not running(mark), "the end of the server", 30)


def running(command: str) -> bool:
    return any(" ".join(one.info["cmdline"] or []) == command for one in psutil.process_iter(["cmdline"]))
