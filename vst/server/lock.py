"""One run at a time for each server: two senders in one transfer group hang both.

The lock is an abstract Unix socket named after the server's resolved address. The kernel frees it when its holder ends,
however it ends, and names the holder to the next one who asks. It holds within one machine's network namespace.
"""

from __future__ import annotations

import hashlib
import ipaddress
import socket
import struct
from urllib.parse import urlsplit

from vst.errors import TransportError, VerificationError


class ServerLocked(VerificationError):
    """Another run holds the server."""


def address_of(base_url: str) -> str:
    """``ip:port`` of a base URL, so that two names of one server are one lock; TransportError if it has no address."""
    parts = urlsplit(base_url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise TransportError(f"{base_url}: the host {host} has no address: {error}") from error
    return min(f"{_one_loopback(str(entry[4][0]))}:{port}" for entry in found)


def _one_loopback(address: str) -> str:
    """A server that listens on this machine's loopback is one server, whichever of its addresses is used."""
    return "127.0.0.1" if ipaddress.ip_address(address.partition("%")[0]).is_loopback else address


class ServerLock:
    """Held from construction to ``release``; ServerLocked names the process that holds it."""

    def __init__(self, base_url: str) -> None:
        address = address_of(base_url)
        name = "\0vst-server-" + hashlib.sha256(address.encode()).hexdigest()[:32]
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(name)
        except OSError as error:
            self._socket.close()
            raise ServerLocked(f"{base_url} ({address}) is in use by another run, {_holder(name)}") from error
        # Those who ask for the holder connect and are never accepted: each takes a place in the queue.
        self._socket.listen(socket.SOMAXCONN)

    def release(self) -> None:
        self._socket.close()


def _holder(name: str) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(name)
            raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except ConnectionRefusedError:
            return "which has ended just now: try again"
        except OSError as error:
            return f"which could not be named: {error}"
    return f"process {struct.unpack('3i', raw)[0]}"
