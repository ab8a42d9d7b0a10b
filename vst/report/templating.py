"""The templates of the pages: everything that is put in is text, visible and escaped, whatever it holds."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from vst.harmless import visible

if TYPE_CHECKING:
    from jinja2 import Environment

LONGEST = 4000
SHORT = 140
LONGEST_JSON = 20_000


@lru_cache
def environment() -> Environment:
    """The environment that all pages are made in."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("vst.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=harmless,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "short": short, "whole": whole, "is_long": is_long, "seconds": seconds, "size": size, "link": link, "num": num,
    }  # fmt: skip
    return made


def harmless(value: Any) -> Any:
    """What a template prints: text without anything invisible, cut where nobody would read on."""
    from markupsafe import Markup

    if isinstance(value, (Markup, int, float)):
        return value
    text = visible(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"


def as_text(value: Any) -> str:
    """Any JSON value in one line, for people: no quotes around words, pairs as ``key: value``."""
    if value is None:
        return "–"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {as_text(one)}" for key, one in value.items()) or "nothing"
    if isinstance(value, list):
        if all(not isinstance(one, (dict, list)) for one in value):
            return ", ".join(map(as_text, value)) or "none"
        return f"{len(value)} entries: {as_text(value[0])}, …" if len(value) > 1 else as_text(value[0])
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def short(value: Any, longest: int = SHORT) -> str:
    """A value in one line of bearable length."""
    line = " ".join(as_text(value).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def is_long(value: Any) -> bool:
    """Whether ``short`` shows less than there is."""
    return isinstance(value, (dict, list)) and len(value) > 1 or len(as_text(value)) > SHORT


def whole(value: Any) -> str:
    """A value as indented JSON, cut at a length that a page can bear."""
    text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_JSON else f"{text[:LONGEST_JSON]}\n… (whole in verdict.json)"


def num(value: Any) -> str:
    """A number as people read it; what is not one as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return as_text(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def seconds(value: Any) -> str:
    """A duration with its unit."""
    if not isinstance(value, (int, float)):
        return "did not end"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 120 else f"{int(value // 60)} min {int(value % 60)} s"


def size(value: Any) -> str:
    """Bytes with a decimal unit."""
    if not isinstance(value, (int, float)):
        return "–"
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def link(name: Any, base: str = "") -> str:
    """The address of a file of the run, relative to the page; never one with a scheme or out of the directory."""
    return quote(f"./{base}{name}", safe="/._-")
