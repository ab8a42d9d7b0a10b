"""Debian's SLURM packages, installed when they are missing and that is possible."""

from __future__ import annotations

import fcntl
import os

from debian import install_packages, which

BASE = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge"}
ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server-core", "mariadb-install-db": "mariadb-server-core"}
PLUGIN = "slurm-wlm-mysql-plugin"


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
        problem = install_packages(packages.split())
    left = [program for program in wanted if which(program) is None]
    return f"apt-get did not install {packages}: {problem}" if left else None
