"""From what Hydra composed to the typed configuration, or one message that says what to set."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vst.config.needs import HINTS, empty_keys, filled, missing_keys
from vst.config.schema import VstConf
from vst.config.together import contradictions
from vst.config.values import wrong_values
from vst.errors import ConfigError
from vst.evals.options import eval_problems
from vst.provenance.composed import resolved_digest


def load(cfg: DictConfig) -> VstConf:
    """The typed configuration, complete and consistent; ConfigError lists everything that is missing or wrong."""
    try:
        return _load(cfg)
    except OmegaConfBaseException as error:
        raise ConfigError(f"the configuration cannot be resolved: {str(error).splitlines()[0]}") from error


def _load(cfg: DictConfig) -> VstConf:
    if empty := empty_keys(cfg):
        raise ConfigError("\n".join(f"{key} is empty: give it a value, or leave it out" for key in empty))
    missing = sorted(missing_keys(cfg))
    if missing:
        lines = [f"  {key}=…   {HINTS.get(key, 'has no default')}" for key in missing]
        raise ConfigError(
            f"model={cfg.model.name} needs {len(missing)} value(s) that are not set:\n" + "\n".join(lines)
        )
    conf = OmegaConf.to_object(filled(cfg))
    if not isinstance(conf, VstConf):
        raise ConfigError("the composed configuration is not a VstConf")
    problems = wrong_values(conf) + eval_problems(conf.eval) + contradictions(conf)
    if problems:
        raise ConfigError("\n".join(problems))
    return conf


def digest(cfg: DictConfig) -> str:
    """``sha256:<hex>`` of the resolved configuration without Hydra's part; what has a secret name counts as masked."""
    return resolved_digest(cfg)
