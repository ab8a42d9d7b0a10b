"""The lanes: what is done in which order, and the checks that follow."""
