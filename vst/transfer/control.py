"""The control plane of a transfer group: one call goes to every server of it, at the same time.

The calls block until the other servers take part: ``/init_weight_transfer_engine`` until the whole group stands,
``/update_weights`` until the last bucket has reached every worker. So a server that refuses or dies ends the
transaction for all, at once, while the calls to the others are still open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any, NoReturn

from vst.errors import VstError
from vst.server.client import ControlPlane
from vst.transfer.plan import JoinPlan, Member


class GroupControl:
    """Calls every server of ``plan``, each through its own of ``planes``; ``give_up`` hears the first failure.

    ``give_up`` must not return: other threads may be inside the collective, waiting for a peer that will now never
    come.
    """

    def __init__(
        self, plan: JoinPlan, planes: Sequence[ControlPlane], give_up: Callable[[BaseException], NoReturn]
    ) -> None:
        self._members = list(zip(plan.members, planes, plan.offsets, strict=True))
        self._timeout_s = plan.http_timeout_s
        self._give_up = give_up

    def join(self, init_info: dict[str, Any]) -> None:
        """Ask every server to join, each with the rank of its own first worker."""
        bodies = [{"init_info": {**init_info, "rank_offset": offset}} for _, _, offset in self._members]
        self._all("/init_weight_transfer_engine", bodies)

    def post(self, path: str, body: Any = None) -> None:
        """The same call to every server; returns when all have answered with success."""
        self._all(path, [body] * len(self._members))

    def _all(self, path: str, bodies: list[Any]) -> None:
        if len(self._members) == 1:
            member, plane, _ = self._members[0]
            self._one(member, plane, path, bodies[0])
            return
        pool = ThreadPoolExecutor(len(self._members))
        calls: list[Future[None]] = [
            pool.submit(self._one, member, plane, path, body)
            for (member, plane, _), body in zip(self._members, bodies, strict=True)
        ]
        done, _ = wait(calls, return_when=FIRST_EXCEPTION)
        pool.shutdown(wait=False)
        for call in done:
            call.result()

    def _one(self, member: Member, plane: ControlPlane, path: str, body: Any) -> None:
        try:
            plane.post(path, body, timeout_s=self._timeout_s)
        except VstError as error:
            if member.title:
                error.args = (f"{member.title}: {error}", *error.args[1:])
            self._give_up(error)
