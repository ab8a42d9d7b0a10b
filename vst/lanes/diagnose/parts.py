"""Into which parts a checkpoint is divided for the search, and which of them are looked at first. Pure functions.

A *family* is that of ``checkpoint/families.py``, a *kind* the same tensor of every layer. A *module* is what a server
fills as one: tensors that it fuses (q, k and v, all experts of a layer) must arrive together, so that a partial push
never leaves a module half filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from vst.checkpoint.families import EXPERTS, FUSED, SHARED, family, is_router

Parts = Mapping[str, tuple[str, ...]]
"""The tensors of each part, by its name."""


def kinds(names: Iterable[str]) -> Parts:
    """One part for each tensor name with its layer and expert numbers left out."""
    return _grouped(names, _masked)


def families_of(names: Iterable[str], config: Mapping[str, Any]) -> Parts:
    """One part for each tensor family."""
    return _grouped(names, lambda name: family(name, dict(config)))


def modules(names: Iterable[str]) -> Parts:
    """One part for each child of a layer; experts, shared experts and router of it are parts of their own."""
    return _grouped(names, _module)


def _grouped(names: Iterable[str], key: Callable[[str], str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(key(name), []).append(name)
    return {part: tuple(sorted(each)) for part, each in sorted(found.items())}


def _masked(name: str) -> str:
    return ".".join("*" if word.isdigit() else word for word in name.split("."))


def _module(name: str) -> str:
    words = name.split(".")
    layer = next((at for at, word in enumerate(words) if word.isdigit()), None)
    if layer is None:
        return ".".join(words[:-1]) or name
    base = ".".join([*words[:layer], "*", words[layer + 1]])
    what = _inside(words)
    return f"{base} {what}" if what else base


def _inside(words: list[str]) -> str:
    if SHARED.intersection(words):
        return "shared experts"
    if is_experts(words):
        return "experts"
    return "router" if is_router(words[:-1]) else ""


def is_experts(words: list[str]) -> bool:
    """Whether the words of a tensor name lead to routed experts, whatever the tensor itself is."""
    return bool((EXPERTS | FUSED).intersection(words)) and not SHARED.intersection(words)


def suspects(names: Iterable[str], config: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Tensors that servers were seen to get wrong, by why they are looked at first; empty for a plain model.

    What a server derives from a tensor after it was loaded is what a reload can miss: the head that is the embedding,
    experts that are packed, parameters of a state space that are stored in another form.
    """
    names = list(names)
    by = {name: family(name, dict(config)) for name in names}
    tied = bool(config.get("tie_word_embeddings")) and "head" not in by.values()
    found = {
        "tied head": tuple(name for name in names if tied and by[name] == "embedding"),
        "experts": tuple(name for name in names if is_experts(name.split("."))),
        "state space": tuple(name for name in names if by[name] == "state_space"),
    }
    return {why: each for why, each in found.items() if each}


def holding(parts: Parts, names: Iterable[str]) -> list[str]:
    """The parts that hold any of ``names``."""
    wanted = set(names)
    return [part for part, each in parts.items() if wanted.intersection(each)]


def tensors(parts: Parts, chosen: Iterable[str]) -> tuple[str, ...]:
    """All tensors of the chosen parts, sorted."""
    return tuple(sorted(name for part in chosen for name in parts[part]))
