"""The day-0 checklist: what a new model must clear before reinforcement learning runs on it, filled from evidence."""
