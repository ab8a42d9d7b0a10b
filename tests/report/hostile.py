"""Text that a checkpoint or a server could send, and what must never come of it."""

from __future__ import annotations

SCRIPT = "<script>window.pwned=1</script><img src=x onerror=window.pwned=1>"
QUOTES = "\"' onmouseover=window.pwned=1 x='"
ANSI = "\x1b[2J\x1b[31mPASS\x1b[0m\x07"
BIDI = "abc\u202egnp.exe\u2066\u200b\ufeff"
TEMPLATE = "{{ 7 * 7 }}{% raw %}"
MARKDOWN = "| x | [click](javascript:alert(1)) ![i](http://evil.example/x.png) `code` **bold** <b>"
FORMULA = "=cmd|' /C calc'!A0"
LONG = "A" * 20_000
ALL = (SCRIPT, QUOTES, ANSI, BIDI, TEMPLATE, MARKDOWN, FORMULA, LONG)
NAMES = ("script", "quotes", "ansi", "bidi", "template", "markdown", "formula", "long")
"""What each of ``ALL`` is called, for the names of tests."""

TEXT = " ".join(ALL[:-1])
