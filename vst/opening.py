"""The beginning of a run: its directory is opened, and what is true before any lane starts is written down."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from vst.config import ProvenanceConf, SnapshotConf, VstConf
from vst.errors import VerificationError
from vst.provenance.composed import chosen_groups, composed_files, make_request
from vst.provenance.links import previous_run, snapshot_facts
from vst.provenance.machine import machine_facts
from vst.provenance.redaction import Scrubber
from vst.provenance.rundir import RunDir
from vst.provenance.signing import load_signer
from vst.provenance.source import source_facts
from vst.verdict import Check, LaneVerdict, Outcome


def open_run(cfg: DictConfig, conf: VstConf) -> RunDir:
    """The run directory with the masked configuration in it.

    ConfigError for a signing key that cannot be used, before anything is written; OSError or StorageFailure when the
    directory cannot be written.
    """
    hydra = HydraConfig.get()
    resolved = OmegaConf.to_container(cfg, resolve=True)
    scrubber = Scrubber.of([resolved, list(hydra.overrides.task)], os.environ, conf.server.api_key_env)
    signer = load_signer(conf.provenance.sign) if conf.provenance.sign else None
    files = composed_files(cfg, hydra, scrubber)
    request = make_request(sys.argv, cfg, hydra.overrides.task, scrubber)
    run = RunDir(Path(hydra.runtime.output_dir), request, scrubber, signer)
    run.evidence.defaults += chosen_groups(hydra, scrubber)
    for name, data in files.items():
        run.write_bytes(name, data)
    return run


def look_around(run: RunDir, snapshot: SnapshotConf, provenance: ProvenanceConf) -> LaneVerdict | None:
    """Verify the snapshot before anything else, then note source, machine and the previous run.

    Returns the judgement on the snapshot, None without one; ConfigError when a path of the configuration is wrong.
    """
    judged = _snapshot(run, snapshot) if snapshot.manifest else None
    run.evidence.source = source_facts(run.scrubber)
    run.evidence.machine = machine_facts(os.environ)
    if provenance.previous:
        run.evidence.previous = previous_run(provenance.previous)
    return judged


def _snapshot(run: RunDir, snapshot: SnapshotConf) -> LaneVerdict:
    expected = "ref, commit, tree, artifacts and every file agree with the manifest"
    try:
        facts = snapshot_facts(str(snapshot.manifest), snapshot.root, snapshot.imports)
    except VerificationError as error:
        check = Check("snapshot.verified", Outcome.REFUSED, snapshot.manifest, expected, reason=str(error))
        return LaneVerdict("snapshot", (check,))
    run.evidence.snapshot = facts
    shown = {key: facts[key] for key in ("id", "commit", "tree", "sha256")}
    outside = f"vst itself is not imported from {facts['root']}: the snapshot does not pin the code of this run"
    warnings = () if facts["runs_vst"] else (outside,)
    return LaneVerdict("snapshot", (Check("snapshot.verified", Outcome.PASS, shown, expected, warnings=warnings),))
