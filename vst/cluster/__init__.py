"""Runs that are sent out: as SLURM jobs or as local processes, watched, and judged from the verdicts on disk."""
