"""Source snapshots: a git commit and a clean worktree that pin exactly the code that a container ran."""

from vst.snapshot.facts import SnapshotFacts, load_and_verify

__all__ = ["SnapshotFacts", "load_and_verify"]
