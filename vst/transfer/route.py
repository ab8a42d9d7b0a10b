"""Which of this machine's addresses another one reaches it by."""

from __future__ import annotations

import socket


def address_towards(host: str, port: int) -> str:
    """The local address of a connection to ``host:port``; OSError when there is none within 30 s."""
    with socket.create_connection((host, port), timeout=30) as probe:
        return str(probe.getsockname()[0])
