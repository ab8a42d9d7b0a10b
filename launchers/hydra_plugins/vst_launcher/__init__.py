"""Hydra's launchers ``slurm`` and ``local`` for vst; Hydra finds this package by its name."""
