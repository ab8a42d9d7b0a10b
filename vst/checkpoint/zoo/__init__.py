"""Tiny pairs of checkpoints for many architectures, written from the config classes of transformers (extra ``zoo``)."""
