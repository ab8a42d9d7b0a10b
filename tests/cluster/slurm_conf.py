"""The configuration of a SLURM on one host: two nodes, four GPUs each that are links to /dev/null."""

from __future__ import annotations

import getpass
import os
import socket
import time
from pathlib import Path

SLURM_CONF = """\
ClusterName=vsttest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
{bind}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={dir}/run/munge.socket,cred_expire=5
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool/%n
SlurmctldPidFile={dir}/run/slurmctld.pid
SlurmdPidFile={dir}/run/slurmd.%n.pid
SlurmctldLogFile={dir}/log/slurmctld.log
SlurmdLogFile={dir}/log/slurmd.%n.log
FirstJobId={first}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
{accounting}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
ReturnToService=2
MailProg=/bin/true
MpiDefault=none
KillWait=15
MessageTimeout=3
MinJobAge=3600
MaxArraySize={array}
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={n1} CPUs=8 RealMemory=16000 Gres=gpu:4 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={n2} CPUs=8 RealMemory=16000 Gres=gpu:4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=60 DefMemPerCPU=500 State=UP
"""

ACCOUNTED = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd}
AccountingStoragePass={dir}/run/munge.socket
AccountingStorageEnforce=associations,limits
AccountingStorageTRES=gres/gpu"""

DBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={dir}/run/munge.socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={dbd}
SlurmUser={user}
LogFile={dir}/log/slurmdbd.log
PidFile={dir}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={db}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_acct_db
"""

INIT_SQL = """\
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@'127.0.0.1' IDENTIFIED BY '{password}';
GRANT ALL ON slurm_acct_db.* TO slurm@'127.0.0.1';
"""


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def write_files(folder: Path, accounting: bool, array: int) -> dict[str, str]:
    """Write everything below ``folder``; the values that were filled in."""
    for name in ("run", "log", "state", "spool/n1", "spool/n2", "dev", "munge", "db/tmp"):
        (folder / name).mkdir(parents=True)
    (folder / "munge").chmod(0o700)
    (folder / "munge/key").write_bytes(os.urandom(128))
    (folder / "munge/key").chmod(0o600)
    names = ("ctld", "n1", "n2", "dbd", "db")
    values = {name: str(port) for name, port in zip(names, free_ports(5), strict=True)}
    values |= {"dir": str(folder), "host": socket.gethostname().partition(".")[0], "user": getpass.getuser()}
    # submitit names its files after job numbers: they must not repeat from one cluster to the next.
    values["array"] = str(array)
    values |= {"first": str(int(time.time()) % 6_000_000 * 10 + 1), "password": os.urandom(12).hex()}
    values["accounting"] = ACCOUNTED.format(**values) if accounting else "AccountingStorageType=accounting_storage/none"
    values["bind"] = "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny" if _is_loopback(values["host"]) else ""
    (folder / "slurm.conf").write_text(SLURM_CONF.format(**values))
    (folder / "slurmdbd.conf").write_text(DBD_CONF.format(**values))
    (folder / "slurmdbd.conf").chmod(0o600)
    (folder / "db/init.sql").write_text(INIT_SQL.format(**values))
    # A plain file would be accepted and leave CUDA_VISIBLE_DEVICES unset; a link to a character device does it.
    for number in range(4):
        (folder / f"dev/nvidia{number}").symlink_to("/dev/null")
    (folder / "gres.conf").write_text(f"NodeName=n[1-2] Name=gpu File={folder}/dev/nvidia[0-3]\n")
    return values


def _is_loopback(host: str) -> bool:
    try:
        return socket.gethostbyname(host).startswith("127.")
    except OSError:
        return False
