"""What a walk goes over: a session of the product on a server that is there, with the cold records of A and B."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from vst import config
from vst.checkpoint.digests import with_digests
from vst.checkpoint.manifest import read_manifest
from vst.confdir import conf_dir
from vst.config import VstConf
from vst.lanes.asking import choose_probes
from vst.lanes.fleet_opening import make_fleet
from vst.lanes.session import Server, Session
from vst.lanes.transaction import write_manifest
from vst.oracle.record import Record, take_record
from vst.provenance.rundir import RunDir
from vst.provenance.sidecar import Request
from vst.server.client import ControlPlane, Exchange
from vst.transfer.publisher import Publisher

NUMBERS = count(1)


class Quiet:
    """Nobody looks on."""

    def say(self, text: str) -> None: ...

    def bytes(self, what: str, done: int, total: int) -> None: ...


class Unsealed(RunDir):
    """A run directory without sidecars: a walk makes hundreds of steps, and its evidence is its plan."""

    def write_bytes(self, name: str, data: bytes) -> Path:
        (self.path / name).write_bytes(data)
        return self.path / name


def compose_conf(overrides: Sequence[str]) -> VstConf:
    """The configuration as the command line would compose it."""
    GlobalHydra.instance().clear()
    config.register()
    OmegaConf.register_new_resolver("pid", lambda: 1, replace=True)
    OmegaConf.register_new_resolver("mode_of", lambda target: "RUN", replace=True)
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return config.load(compose("config", overrides=list(overrides)))


class Ground:
    """A session on one server; ``exchanges`` is how many calls were made by now."""

    def __init__(self, url: str, conf: VstConf, directory: Path, publisher: Publisher | None = None) -> None:
        self.exchanges = 0
        run = Unsealed(directory / f"walk-{next(NUMBERS)}", Request(("vst",), (), "sha256:" + "0" * 64))
        self.session = session = Session(conf, run, Quiet())
        for role, path in (("model", conf.model.path), ("checkpoint", conf.checkpoint.path)):
            session.manifests[role] = with_digests(read_manifest(Path(path)), None)
            write_manifest(session, role)
        server = Server(ControlPlane(url, timeout_s=60, on_exchange=self._heard), conf.model.name)
        session.servers = session.seats = (server,)
        session.fleet = make_fleet(session, "model")
        facts = session.need("facts")
        session.probes, session.floor, session.label = choose_probes(session, facts), 0.0, facts.weight_version
        session.publisher = publisher

    def ask_fewer(self, kept: Sequence[int], *cold: Record) -> list[Record]:
        """Ask only these probes from now on; returns the cold records with the answers to them."""
        probes = self.session.need("probes")
        self.session.probes = few = replace(probes, prompts=tuple(probes.prompts[number] for number in kept))
        return [replace(one, probes=few.digest, answers=tuple(one.answers[n] for n in kept)) for one in cold]

    def _heard(self, exchange: Exchange) -> None:
        self.exchanges += 1

    def record(self, claim: str) -> Record:
        """What the server answers now."""
        server = self.session.need("server")
        return take_record(server.control, server.name, self.session.need("probes"), claim, 60)


def stored(path: Path) -> Record:
    """A record, or the one inside a reference."""
    content = json.loads(path.read_text())
    return Record.from_json(content.get("record", content))
