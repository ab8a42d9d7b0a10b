"""Debian packages that the tests need and a machine may not have."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

POLICY = Path("/usr/sbin/policy-rc.d")


def which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin:/usr/bin")


def install_packages(packages: list[str]) -> str:
    """Install them as root; what apt said when it failed."""
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
