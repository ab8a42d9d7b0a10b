"""The memory that a publisher shares with the workers of its machine, and the few words in it that both ends write.

It is an anonymous file of the publisher (memfd_create(2)), which a worker opens through ``/proc``: there is no name
that could be left behind, it lives as long as somebody maps it, and only a process of the same user can open it. Its
pages take memory when they are first touched, so its length costs nothing.

First come 16 random bytes by which a worker knows that it opened the right file, then for every worker how many buckets
it has loaded and one byte a ticket, then the data. A ticket stands for one bucket on its way: a worker sets its byte
when nothing looks at the bucket any more, and the publisher clears it before the ticket is used again.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import struct
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import torch

from vst.transfer.ring import PAGE
from vst.transfer.wire import aligned

NONCE_BYTES = 16
COUNT = struct.Struct("<q")


@dataclass(frozen=True)
class Address:
    """What a worker needs to find the memory: the file, what it begins with, and how it is divided."""

    path: str
    nonce: str
    workers: int
    tickets: int
    nbytes: int

    @property
    def row(self) -> int:
        """Bytes of the words of one worker."""
        return aligned(COUNT.size + self.tickets)

    @property
    def data(self) -> int:
        """Where the data begin."""
        return -(-(aligned(NONCE_BYTES) + self.workers * self.row) // PAGE) * PAGE

    def count_at(self, worker: int) -> int:
        return aligned(NONCE_BYTES) + worker * self.row

    def ticket_at(self, worker: int, ticket: int) -> int:
        return self.count_at(worker) + COUNT.size + ticket

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class SharedFile:
    """The mapping of one process, as bytes (``words``) and as a torch tensor of the data."""

    def __init__(self, address: Address, descriptor: int) -> None:
        self.address = address
        self.words = mmap.mmap(descriptor, address.data + address.nbytes, mmap.MAP_SHARED)
        # A kernel that has no huge pages for shared memory refuses; then ordinary ones do.
        with suppress(OSError, AttributeError):
            self.words.madvise(mmap.MADV_HUGEPAGE)

    def data(self) -> torch.Tensor:
        return torch.frombuffer(self.words, dtype=torch.uint8, offset=self.address.data)

    def count(self, worker: int) -> int:
        return int(COUNT.unpack_from(self.words, self.address.count_at(worker))[0])

    def set_count(self, worker: int, count: int) -> None:
        COUNT.pack_into(self.words, self.address.count_at(worker), count)

    def given_back(self, worker: int, ticket: int) -> bool:
        return self.words[self.address.ticket_at(worker, ticket)] != 0

    def mark(self, worker: int, ticket: int, given_back: bool) -> None:
        self.words[self.address.ticket_at(worker, ticket)] = int(given_back)


def create(workers: int, tickets: int, nbytes: int) -> SharedFile:
    """A new file for ``workers`` workers, with ``nbytes`` bytes of data. It cannot be made shorter or longer."""
    descriptor = os.memfd_create("vst-push", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    nonce = secrets.token_bytes(NONCE_BYTES)
    address = Address(f"/proc/{os.getpid()}/fd/{descriptor}", nonce.hex(), workers, tickets, nbytes)
    os.ftruncate(descriptor, address.data + nbytes)
    # Whoever maps it could otherwise be killed by a look at pages that are gone.
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    made = SharedFile(address, descriptor)
    made.words[:NONCE_BYTES] = nonce
    return made


def opened(address: Address) -> SharedFile:
    """The publisher's file in a worker; ValueError if it cannot be opened or is another one."""
    needs = "transfer=shm needs publisher and server on one machine and of one user; use transfer=gloo"
    try:
        descriptor = os.open(address.path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise ValueError(f"the publisher's shared memory {address.path}: {error.strerror}; {needs}") from error
    try:
        size, expected = os.fstat(descriptor).st_size, address.data + address.nbytes
        begin = os.pread(descriptor, NONCE_BYTES, 0) if size == expected else b""
        if begin.hex() != address.nonce:
            raise ValueError(f"{address.path} is not the publisher's shared memory of {expected} bytes; {needs}")
        return SharedFile(address, descriptor)
    finally:
        os.close(descriptor)
