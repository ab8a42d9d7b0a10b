"""How evidence is written down: one spelling of JSON, one spelling of time, so that equal content has equal bytes."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any


def utc_now() -> str:
    """The wall clock as RFC 3339 in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")


def to_bytes(content: Any) -> bytes:
    """Canonical JSON for files: sorted keys, readable, NaN refused."""
    return (json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


def moment(text: Any) -> float | None:
    """Seconds since the epoch of an RFC 3339 time; None when it is none."""
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
