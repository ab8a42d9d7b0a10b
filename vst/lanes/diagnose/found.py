"""What a diagnosis has found, as plain data: every look at the server in order, and the set that remained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

FORMAT = "vst-diagnosis/1"
FILE = "diagnosis.json"


@dataclass(frozen=True)
class Look:
    """One push, restart or reload, and how the server answered after it.

    ``what`` is ``identity``, ``to_b``, ``back``, ``part`` (A over A without ``left_out``), ``kept`` (B with
    ``left_out`` at A's values), ``restart`` or ``reload``. ``record`` and ``expected`` are files of the run; ``apart``
    is their difference.
    """

    what: str
    left_out: tuple[str, ...]
    tensors: int
    record: str
    expected: str
    apart: Mapping[str, Any]

    @property
    def equal(self) -> bool:
        return bool(self.apart["equal"])

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "left_out": list(self.left_out), "apart": dict(self.apart)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Look:
        """VerificationError's business is the caller's: what is missing raises KeyError or TypeError."""
        return Look(**{**data, "left_out": tuple(data["left_out"])})


@dataclass
class Diagnosis:
    """``mode`` is ``identity`` where A over A already breaks, ``transition`` where B does, None while nothing does.

    ``why`` are the suspects that the set consists of, ``parts`` the names that it is reported by, ``tensors`` its
    tensors, ``minimal`` whether none of the parts can be spared. ``stopped`` is why the search could not go on.
    ``same_wrong`` says whether a reload from disk gave the very answers that the push gave.
    """

    limit: int
    looks: list[Look] = field(default_factory=list)
    pushes: int = 0
    mode: str | None = None
    why: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    minimal: bool = False
    stopped: str = ""
    reload: str = ""
    same_wrong: bool | None = None

    def last(self, what: str) -> Look | None:
        """The last look of a kind."""
        return next((look for look in reversed(self.looks) if look.what == what), None)

    def to_json(self) -> dict[str, Any]:
        plain = {key: value for key, value in vars(self).items() if key != "looks"}
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}
        return {"format": FORMAT, **plain, "looks": [look.to_json() for look in self.looks]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Diagnosis:
        plain = {key: value for key, value in data.items() if key not in ("format", "looks")}
        fields: dict[str, Any] = {k: tuple(one) if isinstance(one, list) else one for k, one in plain.items()}
        return Diagnosis(looks=[Look.from_json(one) for one in data["looks"]], **fields)
