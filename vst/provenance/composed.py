"""Hydra's account of a configuration, written by us: Hydra itself would write down the secrets in it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from vst.provenance.redaction import Scrubber
from vst.provenance.sidecar import Request

FOLDER = ".hydra"
RESOLVED = f"{FOLDER}/resolved.yaml"


def _yaml(content: Any, scrubber: Scrubber) -> bytes:
    return yaml.safe_dump(scrubber.foreign_tree(content), sort_keys=False, allow_unicode=True).encode()


def composed_files(cfg: DictConfig, hydra: Any, scrubber: Scrubber) -> dict[str, bytes]:
    """What Hydra calls ``.hydra`` (configuration, Hydra's own, overrides) and the resolved configuration, masked."""
    plain = {
        f"{FOLDER}/config.yaml": OmegaConf.to_container(cfg, resolve=False, enum_to_str=True),
        f"{FOLDER}/hydra.yaml": {"hydra": OmegaConf.to_container(hydra, resolve=False, enum_to_str=True)},
        f"{FOLDER}/overrides.yaml": list(hydra.overrides.task),
    }
    return {name: _yaml(content, scrubber) for name, content in plain.items()} | {RESOLVED: _resolved(cfg, scrubber)}


def _resolved(cfg: DictConfig, scrubber: Scrubber) -> bytes:
    content = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    return yaml.safe_dump(scrubber.foreign_tree(content), sort_keys=True, allow_unicode=True).encode()


def resolved_digest(cfg: DictConfig) -> str:
    """``sha256:<hex>`` of ``resolved.yaml`` as any machine would write it: masked by names and shapes alone."""
    return "sha256:" + hashlib.sha256(_resolved(cfg, Scrubber())).hexdigest()


def make_request(argv: Sequence[str], cfg: DictConfig, overrides: Sequence[str], scrubber: Scrubber) -> Request:
    """The request of a run: command line and overrides masked, the resolved configuration by digest."""
    return Request(
        argv=tuple(scrubber.foreign_tree(list(argv))),
        overrides=tuple(scrubber.foreign_tree(list(overrides))),
        config_digest=resolved_digest(cfg),
    )


def chosen_groups(hydra: Any, scrubber: Scrubber) -> list[dict[str, str]]:
    """The configuration groups that were not chosen on the command line, with what the primary configuration chose."""
    given = {str(override).lstrip("+~").partition("=")[0] for override in hydra.overrides.task}
    return [
        {"key": str(group), "value": str(choice), "from": f"the defaults list of conf/{hydra.job.config_name}.yaml"}
        for group, choice in scrubber.foreign_tree(OmegaConf.to_container(hydra.runtime.choices)).items()
        if "/" not in group and group not in given
    ]
