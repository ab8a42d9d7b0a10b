"""What many cycles showed: memory after each change, how long each phase took, what the traffic saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vst.report.material import Material, read_object
from vst.report.scales import Series, series

FILE = "endurance.json"
COLUMNS = ("n", "min", "p25", "median", "p75", "p95", "max")


@dataclass(frozen=True)
class Endurance:
    """The section: the line of memory and its source, seconds of each phase, and the kinds of answers of the load."""

    memory: Series | None
    source: str
    columns: tuple[str, ...]
    phases: tuple[tuple[str, tuple[Any, ...]], ...]
    load: tuple[tuple[str, Any], ...]
    trend: tuple[tuple[str, Any], ...]


def endurance(material: Material) -> Endurance | None:
    """The section of a run that made cycles; None for another one."""
    content = read_object(material.path / FILE)
    if content is None:
        return None
    memory = content.get("memory")
    held: Mapping[str, Any] = memory if isinstance(memory, Mapping) else {}
    phases = content.get("phases")
    return Endurance(
        memory=_memory(held.get("bytes")),
        source=str(held.get("source", "")),
        columns=COLUMNS,
        phases=tuple(
            (str(name), tuple(one.get(key) for key in COLUMNS))
            for name, one in (phases.items() if isinstance(phases, Mapping) else ())
            if isinstance(one, Mapping)
        ),
        load=_observed(material, "load.clean"),
        trend=_observed(material, "memory.trend"),
    )


def _memory(found: Any) -> Series | None:
    values = [value for value in found if isinstance(value, int)] if isinstance(found, list) else []
    return series([(f"change {n}", value / 2**20, True) for n, value in enumerate(values, 1)], " MiB")


def _observed(material: Material, id: str) -> tuple[tuple[str, Any], ...]:
    check = material.check(id)
    observed = check.get("observed") if check else None
    return tuple((str(key), value) for key, value in observed.items()) if isinstance(observed, Mapping) else ()
