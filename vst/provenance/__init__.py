"""The evidence: the run directory, its sidecars and their schemas."""
