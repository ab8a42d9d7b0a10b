"""What Hydra sees of the launchers; ``vst.cluster`` does the work. Hydra imports this file with every command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from vst.cluster.shape import LocalShape, Shape, SlurmShape, make_shape

if TYPE_CHECKING:
    from vst.cluster.launch import Request

STORE = ConfigStore.instance()
STORE.store(group="hydra/launcher", name="vst_slurm", node=SlurmShape, provider="vst")
STORE.store(group="hydra/launcher", name="vst_local", node=LocalShape, provider="vst")


class _Launcher(Launcher):
    """Runs every job of a sweep to its verdict; a run that failed is not an exception here."""

    shape: ClassVar[type[Shape]]

    def __init__(self, **parameters: Any) -> None:
        self._parameters = {
            key: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
            for key, value in parameters.items()
        }
        self._request: Request | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._context, self._config = hydra_context, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from vst.cluster.launch import Request, launch

        if self._request is None:
            self._request = Request(self._context, self._config, make_shape(self.shape, self._parameters))
        codes = launch(self._request, job_overrides, initial_job_idx)
        batch = codes[-len(job_overrides) :]
        return [_returned(words, code) for words, code in zip(job_overrides, batch, strict=True)]


def _returned(words: Sequence[str], code: int) -> JobReturn:
    ended = JobReturn(overrides=list(words), status=JobStatus.COMPLETED)
    ended.return_value = code
    return ended


class SlurmLauncher(_Launcher):
    """``hydra/launcher=slurm``: one SLURM job per run."""

    shape = SlurmShape


class LocalLauncher(_Launcher):
    """``hydra/launcher=local``: one process per run, ``hydra.launcher.parallel`` of them at once."""

    shape = LocalShape
