"""Text from outside, made harmless for where it is shown: a terminal, a page, Markdown, a spreadsheet.

Names and messages come from checkpoints and servers. What cannot be printed (control characters, escape sequences,
marks that turn the direction of writing) becomes visible; then each place has its own kind of markup to take away.
"""

from __future__ import annotations

import re
from typing import Any

LONGEST = 600
_MARKUP = re.compile(r"[\\`*_\[\]<>|~&@#$]|:(?=//)|(?<=www)\.")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")


def visible(value: Any) -> str:
    """The text with everything that is not printable, but line breaks, spelled as an escape."""
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in str(value))


def plain(value: Any, longest: int = LONGEST) -> str:
    """Any text as one that can do nothing to a terminal: control characters shown, length bounded."""
    text = visible(value)
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters, whole in verdict.json)"


def markdown(value: Any, longest: int = LONGEST) -> str:
    """Text that a Markdown reader shows as it stands, in one line: no markup, no HTML, no link made of an address."""
    return _MARKUP.sub(lambda found: f"\\{found[0]}", " ".join(plain(value, longest).split()))


def csv_cell(value: Any, longest: int = LONGEST) -> Any:
    """A cell that no spreadsheet takes for a formula; numbers and nothing stay what they are."""
    if value is None or isinstance(value, (int, float)):
        return value
    line = " ".join(plain(value, longest).split())
    return f"'{line}" if line.lstrip().startswith(_FORMULA) else line
