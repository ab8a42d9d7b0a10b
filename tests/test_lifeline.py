from __future__ import annotations

import subprocess
import sys

import psutil

CHILD = """
import sys, time
from vst.lifeline import die_with_parent
die_with_parent(int(sys.argv[1]))
print("up", flush=True)
time.sleep(60)
"""
PARENT = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}, str(os.getpid())], stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_child_dies_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
        parent.kill()
        parent.wait()
    assert psutil.wait_procs([child], timeout=5)[1] == []


def test_a_child_whose_parent_is_gone_already_ends_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, "1"], capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
