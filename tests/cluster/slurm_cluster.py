"""A real SLURM on this host, started and stopped by the tests: no systemd, no cgroups, nothing outside its folder.

Every daemon runs in the foreground under the guard, which ends it and all below it also when the tests are killed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from cluster.slurm_conf import write_files
from cluster.slurm_install import which
from vst.cluster.clean_env import clean_env
from vst.lifeline import guarded


class Cluster:
    """One cluster with nodes n1 and n2; ``env`` is what its clients need."""

    def __init__(self, accounting: bool = False, array: int = 4) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="vst-slurm-", dir="/tmp"))
        self.folder.chmod(0o755)  # munge wants to be reached by everyone
        self.accounting = accounting
        self.values = write_files(self.folder, accounting, array)
        self.env = {**clean_env(), "SLURM_CONF": str(self.folder / "slurm.conf")}
        self.env["PATH"] += ":/usr/sbin:/sbin"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start everything and wait until both nodes take jobs."""
        munge, socket_file = self.folder / "munge", self.folder / "run/munge.socket"
        places = [f"--key-file={munge}/key", f"--socket={socket_file}", f"--seed-file={munge}/seed"]
        files = [f"--pid-file={self.folder}/run/munged.pid", f"--log-file={self.folder}/log/munged.log"]
        self._daemon("munged", "munged", "--foreground", *places, *files)
        self._until(socket_file.exists, "munged")
        if self.accounting:
            self._start_accounting()
        self.start_controller("-c")
        for node in ("n1", "n2"):
            self.start_node(node)
        self._until(lambda: self.run("sinfo", "-h", "-N", "-o", "%T", check=False).split() == ["idle"] * 2, "nodes")

    def start_node(self, node: str) -> None:
        self._daemon(f"slurmd {node}", "slurmd", "-D", "-N", node)

    def lose_node(self, node: str) -> None:
        """End the node as a power cut does: its daemon and all that runs on it at once, and nobody says a word.

        A node that is only told to be down goes on answering, and comes back while its job is still being ended.
        """
        daemon = self._daemons.pop(f"slurmd {node}")
        guard = psutil.Process(daemon.pid)
        for one in [*guard.children(recursive=True), guard]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        daemon.wait(30)
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    def return_node(self, node: str) -> None:
        """Start a node that was lost; it takes jobs when this returns."""
        self.start_node(node)
        self.until(lambda: self.run("sinfo", "-h", "-n", node, "-o", "%T").strip() == "idle", f"an idle {node}")

    def start_controller(self, *options: str) -> None:
        self._daemon("slurmctld", "slurmctld", "-D", *options)
        self._until(lambda: "UP" in self.run("scontrol", "ping", check=False), "slurmctld")

    def stop_controller(self) -> None:
        self._end("slurmctld")

    def _start_accounting(self) -> None:
        data, user = self.folder / "db/data", self.values["user"]
        same = ["--no-defaults", f"--user={user}", f"--datadir={data}", f"--tmpdir={self.folder}/db/tmp"]
        small = ["--innodb-log-file-size=8M"]
        root = ["--auth-root-authentication-method=socket", f"--auth-root-socket-user={user}", "--skip-test-db"]
        self.run("mariadb-install-db", *same, *small, *root)
        fast = ["--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0", "--performance-schema=0"]
        where = [f"--socket={self.folder}/run/db.socket", "--bind-address=127.0.0.1", f"--port={self.values['db']}"]
        files = [f"--init-file={self.folder}/db/init.sql", f"--log-error={self.folder}/log/mariadbd.log"]
        wait = ["--innodb-lock-wait-timeout=900", "--skip-name-resolve"]
        self._daemon("mariadbd", "mariadbd", *same, *small, *fast, *wait, *where, *files)
        self._until(lambda: _listens(self.values["db"]), "mariadbd")
        self._daemon("slurmdbd", "slurmdbd", "-D")
        self._until(lambda: _listens(self.values["dbd"]), "slurmdbd")
        self.run("sacctmgr", "-i", "add", "cluster", "vsttest")
        self.run("sacctmgr", "-i", "add", "account", "test")
        self.run("sacctmgr", "-i", "add", "user", user, "account=test")

    def _daemon(self, name: str, *command: str) -> None:
        with (self.folder / "log" / f"{name.replace(' ', '.')}.out").open("ab") as out:
            command = (str(which(command[0])), *command[1:])
            self._daemons[name] = subprocess.Popen(
                guarded(list(command)), stdin=subprocess.PIPE, stdout=out, stderr=out, env=self.env
            )

    def _end(self, name: str) -> None:
        daemon = self._daemons.pop(name)
        if daemon.stdin is not None:
            daemon.stdin.close()
        daemon.wait(30)

    def run(self, *command: str, check: bool = True, timeout: float = 60.0) -> str:
        """The output of a command on this cluster."""
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=timeout, check=False)
        if check and done.returncode:
            raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr or done.stdout}")
        return done.stdout

    def state(self, job: str) -> str:
        """State and exit code of a job, as ``FAILED 10:0``."""
        shown = self.run("scontrol", "show", "job", job)
        words = dict(word.partition("=")[::2] for word in shown.split() if "=" in word)
        return f"{words['JobState']} {words['ExitCode']}"

    def jobs(self) -> list[str]:
        """The numbers of jobs that are not over."""
        return self.run("squeue", "-h", "-r", "-o", "%i").split()

    def until(self, holds: Callable[[], object], what: str, seconds: float = 60.0) -> None:
        """Wait until something holds; AssertionError says what did not."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                raise AssertionError(f"{what} did not come within {seconds} s\n{self.run('squeue', check=False)}")
            time.sleep(0.1)

    def account(self) -> str:
        """Queue, nodes, the jobs' own pages and the end of the controller's log, for the message of a failed test."""
        shown = (("squeue", "-l"), ("sinfo", "-N", "-l", "-R"), ("sinfo", "-N", "-l"), ("scontrol", "show", "jobs"))
        pages = [self.run(*one, check=False) for one in shown]
        return "\n".join([*pages[:3], pages[3][-4000:], (self.folder / "log/slurmctld.log").read_text()[-6000:]])

    def _until(self, holds: Callable[[], object], what: str) -> None:
        try:
            self.until(holds, what, 30.0)
        except AssertionError as error:
            logs = "".join(f"--- {log.name}\n{log.read_text()[-1500:]}" for log in sorted(self.folder.glob("log/*")))
            raise AssertionError(f"{error}\n{logs}") from error

    def stop(self) -> list[str]:
        """End everything; the command lines of processes that were found alive after the daemons were gone."""
        if "slurmctld" in self._daemons and (left := self.jobs()):
            self.run("scancel", *left, check=False)
            end = time.monotonic() + 20
            while self.run("squeue", "-h", check=False) and time.monotonic() < end:
                time.sleep(0.2)
        for name in reversed(list(self._daemons)):
            self._end(name)
        strays = self.processes()
        for one in strays:
            one.kill()
        psutil.wait_procs(strays, timeout=5)
        shutil.rmtree(self.folder, ignore_errors=True)
        return [" ".join(_command(one)) for one in strays]

    def processes(self) -> list[psutil.Process]:
        """Everything that runs with this cluster's configuration: daemons, steps, jobs and what they left."""
        return [one for one in psutil.process_iter() if self._is_ours(one)]

    def _is_ours(self, one: psutil.Process) -> bool:
        try:
            return one.pid != os.getpid() and one.environ().get("SLURM_CONF") == self.env["SLURM_CONF"]
        except psutil.Error:
            return False


def _command(one: psutil.Process) -> list[str]:
    try:
        return one.cmdline()
    except psutil.Error:
        return ["?"]


def _listens(port: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0
