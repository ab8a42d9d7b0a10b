"""Debian's SLURM packages, installed when they are missing and that is possible."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

BASE = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge"}
ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server-core", "mariadb-install-db": "mariadb-server-core"}
PLUGIN = "slurm-wlm-mysql-plugin"
POLICY = Path("/usr/sbin/policy-rc.d")


def which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin:/usr/bin")


def install(accounting: bool) -> str | None:
    """Install what is missing; None when all is there, else the reason why it is not."""
    wanted = {**BASE, **(ACCOUNTING if accounting else {})}
    if not (missing := sorted({package for program, package in wanted.items() if which(program) is None})):
        return None
    packages = " ".join([*missing, *([PLUGIN] if accounting else [])])
    if os.geteuid() != 0 or which("apt-get") is None:
        return f"SLURM is not installed and cannot be: as root run apt-get install --no-install-recommends {packages}"
    with open("/tmp/vst-slurm-install.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        problem = _apt(packages.split())
    left = [program for program in wanted if which(program) is None]
    return f"apt-get did not install {packages}: {problem}" if left else None


def _apt(packages: list[str]) -> str:
    # Debian starts daemons as it installs them; this is its way to forbid that.
    made = not POLICY.exists()
    if made:
        POLICY.write_text("#!/bin/sh\nexit 101\n")
        POLICY.chmod(0o755)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    try:
        subprocess.run(["apt-get", "update", "-qq"], env=env, capture_output=True, timeout=300, check=False)
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
        return done.stderr[-500:]
    finally:
        if made:
            POLICY.unlink()
