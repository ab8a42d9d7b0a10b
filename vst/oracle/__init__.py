"""Probes, records and references: what a server answers, and whether two sets of answers are the same."""
