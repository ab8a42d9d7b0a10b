"""A fault of the scripted server: what is wrong, where, and when. Plain data, one JSON object for each.

Every fault has a ``kind``; the other fields narrow it down. A field that a kind does not use is refused, so that no
knob is turned in vain. ``KINDS`` is the whole list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from vst.checkpoint.families import family
from vst.errors import ConfigError

PHASES = {
    "join": "/init_weight_transfer_engine",
    "start": "/start_weight_update",
    "update": "/update_weights",
    "broadcast": "/update_weights",
    "finish": "/finish_weight_update",
    "pause": "/pause",
    "resume": "/resume",
    "reset": "/reset_prefix_cache",
    "sleep": "/sleep",
    "wake": "/wake_up",
    "generate": "/v1/completions",
    "flag": "/is_paused",
    "label": "/weight_info",
    "metrics": "/metrics",
    "health": "/health",
}
"""The phases at which a call can be broken, and the route of each; a route itself may be given as well."""

WEIGHTS = ("match", "family", "rank", "replica", "first", "last", "after")
CALL = ("phase", "when", "bucket", "first", "last", "after", "update", "replica")

KINDS: dict[str, tuple[str, ...]] = {
    "stale": (*WEIGHTS, "of"),
    "swap": (*WEIGHTS, "with_match"),
    "scale_lost": WEIGHTS,
    "squeeze": (*WEIGHTS, "dtype"),
    "nan": (*WEIGHTS, "amount", "seed"),
    "noise": (*WEIGHTS, "amount", "seed"),
    "zero": WEIGHTS,
    "late": ("first", "last"),
    "finish_lies": ("first", "last", "seconds"),
    "cache_kept": ("replica", "first", "last"),
    "cache_refuses": ("first", "last"),
    "cache_unseen": (),
    "label_kept": ("first", "last"),
    "label_moves": ("after", "label"),
    "foreign_update": ("after", "label", "match", "family", "amount", "seed"),
    "restart": ("after",),
    "version_moves": ("after", "label"),
    "sleep_frees_nothing": ("tags", "levels"),
    "wake_restores_nothing": ("match", "family", "levels"),
    "wake_order": ("tags",),
    "flag_lies": ("flag", "value", "states"),
    "pause_ignored": ("modes",),
    "admits": ("modes",),
    "abort_keeps": (),
    "wait_cuts": ("tokens", "first", "last"),
    "keep_drops": ("tokens",),
    "keep_doubles": ("tokens",),
    "keep_changes": ("tokens",),
    "leak": ("amount",),
    "answer": (*CALL, "status", "body"),
    "hang": (*CALL, "seconds"),
    "cut": CALL,
    "die": CALL,
    "order": ("moves", "amount", "seed"),
}
"""Each kind with the fields that it uses."""


@dataclass(frozen=True)
class Fault:
    """One fault; ``first`` and ``last`` count from 1 the updates, calls or cycles that it is there for.

    ``match`` is a regular expression searched in the checkpoint's tensor names and ``family`` a tensor family; without
    either all tensors are meant. ``rank`` and ``replica`` count from 0 inside one server; ``instance`` is the number of
    the server, from 1, where a run starts several. ``after`` is the number of answered completions before
    which nothing happens, ``update`` that of updates begun; the calls of a route are counted from then on.
    """

    kind: str
    match: str | None = None
    family: str | None = None
    with_match: str | None = None
    of: str = "tensor"
    rank: int | None = None
    replica: int | None = None
    instance: int | None = None
    first: int = 1
    last: int | None = None
    after: int = 0
    update: int = 0
    amount: float = 0.05
    seed: int = 0
    dtype: str = "float8_e4m3fn"
    seconds: float | None = None
    label: str = "somebody-else"
    tags: tuple[str, ...] = ()
    levels: tuple[int, ...] = ()
    modes: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    flag: str = "is_sleeping"
    value: bool = False
    tokens: int = 1
    phase: str | None = None
    when: str = "before"
    bucket: int | None = None
    status: int = 500
    body: Any = None

    def due(self, number: int) -> bool:
        """Whether the fault is there for the ``number``-th occurrence, counted from 1."""
        return self.first <= number and (self.last is None or number <= self.last)

    def hits(self, tensor: str) -> bool:
        """Whether the fault is about this tensor of the checkpoint."""
        if self.family is not None and family(tensor) != self.family:
            return False
        return self.match is None or re.search(self.match, tensor) is not None

    @property
    def path(self) -> str | None:
        """The route of a broken call."""
        return self.phase if self.phase is None or self.phase.startswith("/") else PHASES[self.phase]

    def at(self, rank: int, replica: int) -> bool:
        """Whether the fault is about this rank of this replica."""
        return self.rank in (None, rank) and self.replica in (None, replica)


def parse(text: str) -> Fault:
    """The fault in a JSON object; ConfigError names an unknown kind or a field that its kind does not use."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"a fault is a JSON object, got {text!r}: {error}") from error
    if not isinstance(data, Mapping) or data.get("kind") not in KINDS:
        raise ConfigError(f"a fault needs a kind, one of {', '.join(KINDS)}; got {text!r}")
    return make(**{str(key): value for key, value in data.items()})


def make(kind: str, **given: Any) -> Fault:
    """A fault of ``kind``; ConfigError for a field that the kind does not use or a value that it cannot have."""
    unused = sorted(set(given) - set(KINDS[kind]) - {"instance"})
    if unused:
        raise ConfigError(f"fault {kind} does not use {', '.join(unused)}; it uses {', '.join(KINDS[kind])}")
    values: dict[str, Any] = {key: _frozen(key, value) for key, value in given.items()}
    fault = Fault(kind, **values)
    _check(fault)
    return fault


def _frozen(key: str, value: Any) -> Any:
    return tuple(value) if isinstance(value, list) and key != "body" else value


def _check(fault: Fault) -> None:
    if "phase" in KINDS[fault.kind] and not _known(fault.phase):
        raise ConfigError(f"fault {fault.kind} needs a phase: {', '.join(PHASES)} or a route; got {fault.phase}")
    if fault.when not in ("before", "after") or fault.of not in ("tensor", "buffer"):
        raise ConfigError(f"fault {fault.kind}: when is before or after, of is tensor or buffer")
    if fault.bucket is not None and fault.phase != "broadcast":
        raise ConfigError("bucket belongs to phase broadcast")


def _known(phase: str | None) -> bool:
    return phase is not None and (phase.startswith("/") or phase in PHASES)


def fault_words(texts: Sequence[str], instance: int) -> list[str]:
    """The words of a double's command line for the faults of one server of several; a reference's server has none."""
    mine = [text for text in texts if parse(text).instance in (None, instance)]
    return [word for text in mine for word in ("--fault", text)]


def to_json(fault: Fault) -> dict[str, Any]:
    """The fault as it is given: the kind and every field that is not at its default."""
    plain = {f.name: getattr(fault, f.name) for f in fields(fault)}
    given = {f.name for f in fields(fault) if f.name == "kind" or plain[f.name] != f.default}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items() if key in given}
