"""The worker's side of the transfer: every rank joins the publisher's gloo group and loads what is broadcast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from vst.selftest.replica import Broken, Replica
from vst.transfer.gloo_group import Group, open_store, receive, sizes, views
from vst.transfer.route import address_towards
from vst.transfer.wire import cut

OnBucket = Callable[[int], None]


@dataclass(frozen=True)
class Info:
    """Names, torch dtype names and shapes of one update, as the publisher announces them."""

    names: Sequence[str]
    dtype_names: Sequence[str]
    shapes: Sequence[Sequence[int]]


class Receiver:
    """The memberships of all ranks of all replicas in one group."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._places = [(replica, rank.rank) for replica in replicas for rank in replica.ranks]
        self._groups: list[Group] = []
        self._bucket_bytes = 0
        self._pool = ThreadPoolExecutor(max_workers=2 * len(self._places))

    def join(self, info: Mapping[str, Any]) -> None:
        """Meet the publisher; returns when the whole group stands."""
        self._bucket_bytes = int(info["bucket_bytes"])
        joins = [self._pool.submit(self._member, info, place) for place in range(len(self._places))]
        self._groups = [join.result() for join in joins]

    def _member(self, info: Mapping[str, Any], place: int) -> Group:
        host, port, wait_s = str(info["master_address"]), int(info["master_port"]), float(info["timeout_s"])
        size = int(info["world_size"])
        store = open_store(host, port, size, master=False, timeout_s=wait_s)
        rank = int(info["rank_offset"]) + place
        return Group(store, rank, size, address_towards(host, port), wait_s)

    def receive(self, update: Mapping[str, Any], on_bucket: OnBucket) -> None:
        """Take every bucket on every rank; ``on_bucket`` hears its number, from 1, before it is loaded."""
        if not self._groups:
            raise Broken("no transfer group: call /init_weight_transfer_engine first")
        info = Info(update["names"], update["dtype_names"], update["shapes"])
        ranks = [self._pool.submit(self._follow, place, info, on_bucket) for place in range(len(self._places))]
        for rank in ranks:
            rank.result()

    def _follow(self, place: int, info: Info, on_bucket: OnBucket) -> None:
        replica, rank = self._places[place]
        for number, bucket in enumerate(cut(sizes(info), self._bucket_bytes), 1):
            buffer = torch.empty(bucket.nbytes, dtype=torch.uint8)
            receive(self._groups[place], buffer, bucket, self._bucket_bytes)
            if place == 0:
                on_bucket(number)
            for name, value in views(buffer, bucket, info):
                replica.load(rank, name, value)

    def leave(self) -> None:
        self._groups = []
