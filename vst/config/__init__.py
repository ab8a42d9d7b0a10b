"""The configuration: a schema, values in ``conf/``, nothing from the environment but ``paths`` and named secrets.

Unknown keys fail when Hydra composes; what is missing or wrong is listed by ``load`` before anything is started.
"""

from vst.config.loading import digest, load
from vst.config.needs import derives, evaluates, needs_checkpoint
from vst.config.schema import (
    FAULTS,
    LANES,
    OPERATIONS,
    LaunchConf,
    ProvenanceConf,
    SnapshotConf,
    VstConf,
    register,
)

__all__ = [
    "FAULTS",
    "LANES",
    "OPERATIONS",
    "LaunchConf",
    "ProvenanceConf",
    "SnapshotConf",
    "VstConf",
    "derives",
    "digest",
    "evaluates",
    "load",
    "needs_checkpoint",
    "register",
]
