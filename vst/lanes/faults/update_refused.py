"""The server refuses the update: what arrives of its description has a shape too few."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager

from vst.lanes.faults.relay import UPDATE, Rule, detour
from vst.lanes.faults.shot import Shot
from vst.lanes.session import Session


def armed(session: Session) -> AbstractContextManager[Shot]:
    return detour(session, Rule(change=_without_a_shape))


def _without_a_shape(path: str, body: bytes) -> bytes:
    """Both backends describe an update by as many names as dtypes and shapes, and refuse it otherwise."""
    if path != UPDATE:
        return body
    content = json.loads(body)
    content["update_info"]["shapes"] = content["update_info"]["shapes"][:-1]
    return json.dumps(content).encode()
