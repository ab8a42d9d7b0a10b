"""The publisher process: joins the server's transfer group and sends checkpoints, as told by its parent.

Commands come as JSON lines on standard input (``join``, ``push``, ``leave``), reports go as JSON lines to what was
standard output; everything that libraries print goes to the log. The parent holds all deadlines. Any failure is final:
it is reported and the process ends at once, without a finish, because a collective that hangs cannot be cancelled in
any other way.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from functools import partial
from typing import Any, NoReturn, TextIO

from vst.checkpoint.manifest import Manifest
from vst.errors import TransportError, VerificationError, VstError
from vst.lifeline import die_with_parent
from vst.provenance.imports import library_facts
from vst.server.client import ControlPlane, Exchange, HttpFailure, Unreachable
from vst.transfer import adapter
from vst.transfer.affinity import bind_near, pci_address
from vst.transfer.control import GroupControl
from vst.transfer.dtypes import torch_dtype
from vst.transfer.outgoing import Memory, Outgoing, expect_layout
from vst.transfer.packing import Described, misplaced, packable
from vst.transfer.parts import load_manifest, mixed, part_of
from vst.transfer.pipeline import Filled
from vst.transfer.plan import JoinPlan, PushPlan, Sent


class Reports:
    """The one writer of the report pipe; threads of vLLM's engine report too."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()

    def say(self, event: str, **fields: Any) -> None:
        with self._lock:
            self._out.write(json.dumps({"event": event, **fields}) + "\n")
            self._out.flush()

    def exchange(self, exchange: Exchange, server: str = "") -> None:
        self.say("http", **exchange.to_json(), **({"server": server} if server else {}))

    def give_up(self, error: BaseException) -> NoReturn:
        """Report the failure and end the process, with whatever its threads are blocked in."""
        if not isinstance(error, VstError):
            traceback.print_exception(error)
        self.say("failed", kind=_kind(error), error=str(error) or type(error).__name__, type=type(error).__name__)
        sys.stderr.flush()
        os._exit(1)


def _kind(error: BaseException) -> str:
    kinds = {
        HttpFailure: "answer",
        Unreachable: "unreachable",
        VerificationError: "stream",
        TransportError: "transport",
    }
    for cls, kind in kinds.items():
        if isinstance(error, cls):
            return kind
    return "error"


class WeightSyncClient:
    """vLLM's four-method client protocol for the servers of a group; the only place from which ``finish`` can be
    sent.
    """

    def __init__(self, control: GroupControl, session: Session) -> None:
        self._control = control
        self._session = session

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._control.join(init_info)

    def start_weight_update(self) -> None:
        self._session.phase("start")
        self._control.post("/start_draft_weight_update" if self._session.drafting else "/start_weight_update")
        self._session.phase("broadcast")

    def update_weights(self, update_info: Any) -> None:
        begun = time.monotonic()
        self._control.post("/update_weights", {"update_info": update_info})
        self._session.updated(begun)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        label = self._session.complete()
        self._session.phase("finish")
        self._control.post("/finish_weight_update", {"weight_version": label})


class Session:
    """One membership in one transfer group, and the pushes made through it."""

    def __init__(self, reports: Reports) -> None:
        self.reports = reports
        self._engine: Any = None
        self._draft: tuple[str, Any] | None = None
        self._layout: Manifest | None = None
        self._where: JoinPlan | None = None
        self._memory = Memory()
        self._packed = True
        self._plan: PushPlan | None = None
        self._outgoing: Outgoing | None = None
        self._sent: Sent | None = None

    @property
    def drafting(self) -> bool:
        """Whether the push that goes on is one for the draft."""
        return self._plan is not None and self._plan.draft

    def phase(self, name: str) -> None:
        self.reports.say("phase", phase=name)

    def join(self, plan: JoinPlan) -> None:
        self.phase("join")
        layout = load_manifest(plan.layout)
        self._layout, self._where = layout, plan
        if plan.device != "cpu":
            import torch

            torch.cuda.set_device(plan.device)
            # The reading threads and the ring's pages come after this, and with it.
            self.reports.say("numa", node=bind_near(pci_address(plan.device)))
        self._packed = plan.backend != "nccl" or packable(
            described(layout), plan.bucket_bytes, adapter.packs_scalars(adapter.installed_version())
        )
        if plan.backend == "nccl":
            self.reports.say("packing", packed=self._packed)
        address, bucket = (plan.master_address, plan.port), plan.bucket_bytes
        where = adapter.Rendezvous(plan.backend, *address, plan.world_size, bucket, plan.timeout_s, self._packed)
        client = WeightSyncClient(self._control(plan), self)
        self._engine, self._draft = adapter.join(where, client, self._source(layout)), None
        self.reports.say("joined")

    def _control(self, plan: JoinPlan) -> GroupControl:
        key = os.environ.get(plan.api_key_env) if plan.api_key_env else None

        def call(base_url: str, title: str) -> ControlPlane:
            return ControlPlane(base_url, key, plan.http_timeout_s, partial(self.reports.exchange, server=title))

        planes = [call(member.base_url, member.title) for member in plan.members]
        return GroupControl(plan, planes, self.reports.give_up)

    def push(self, plan: PushPlan) -> None:
        if self._engine is None:
            raise VerificationError("push before join")
        self._plan, self._outgoing = plan, self._prepare(plan)
        (self._draft_engine(plan) if plan.draft or plan.only else self._engine).send_weights()
        if self._sent is None:
            raise VerificationError("vLLM's sender returned without asking for the finish; nothing was finished")
        self.reports.say("done", **self._sent.to_json())
        self._plan = self._outgoing = self._sent = None

    def _source(self, layout: Manifest) -> Any:
        meta = [adapter.Declared(t.name, torch_dtype(t.dtype), t.shape) for t in layout.tensors]
        return adapter.make_source(meta, self._stream, self._frames)

    def _draft_engine(self, plan: PushPlan) -> Any:
        """The sender of the draft's tensors, or of a part of the model's: another layout over the same group."""
        layout = part_of(load_manifest(plan.manifest), plan.only)
        if self._draft is None or self._draft[0] != layout.layout_digest:
            self._draft = layout.layout_digest, adapter.beside(self._engine, self._source(layout))
        return self._draft[1]

    def complete(self) -> str | None:
        """Close the ledger and give the label; raises when the stream was not sent whole."""
        if self._plan is None or self._outgoing is None:
            raise VerificationError("finish was asked for before anything was sent")
        self._sent = self._outgoing.close()
        return self._plan.label

    def updated(self, begun: float) -> None:
        """The servers have answered the update that was called at ``begun``: all is received and loaded there."""
        if self._outgoing is not None:
            watch, nbytes = self._outgoing.watch, self._outgoing.ledger.bytes
            watch.add("server_update", begun, time.monotonic() - begun, nbytes)

    def _prepare(self, plan: PushPlan) -> Outgoing:
        """Everything that can be refused is refused here, before a server has been told to begin."""
        if self._layout is None or self._where is None:
            raise VerificationError("push before join")
        whole = load_manifest(plan.manifest)
        manifest = part_of(whole, plan.only)
        self._expect_packing(manifest)
        expect_layout(whole, self._layout, plan.draft)
        parts = mixed(manifest, load_manifest(plan.other) if plan.other else None, plan.from_other)

        def tell(done: int, total: int) -> None:
            self.reports.say("progress", bytes=done, total=total)

        return Outgoing(plan, self._where, parts, manifest, self._memory, tell)

    def _expect_packing(self, manifest: Manifest) -> None:
        """A draft travels as the group was joined for the model's layout."""
        where = self._where
        if where is None or where.backend != "nccl" or not self._packed:
            return
        scalars = adapter.packs_scalars(adapter.installed_version())
        first = misplaced(described(manifest), where.bucket_bytes, scalars)
        if first is not None:
            raise VerificationError(f"vLLM's NCCL engine cannot pack {first}, and this group was joined for packing")

    def _stream(self) -> Iterator[tuple[str, Any]]:
        return self._now().pairs()

    def _frames(self, bucket_bytes: int) -> Iterator[Filled]:
        return self._now().frames(bucket_bytes)

    def _now(self) -> Outgoing:
        if self._outgoing is None:
            raise VerificationError("vLLM's sender asked for tensors outside of a push")
        return self._outgoing


def described(layout: Manifest) -> list[Described]:
    """What packing needs of the tensors."""
    types = {dtype: torch_dtype(dtype) for dtype in {entry.dtype for entry in layout.tensors}}
    return [
        (one.name, str(types[one.dtype]).removeprefix("torch."), one.nbytes, types[one.dtype].itemsize, len(one.shape))
        for one in layout.tensors
    ]


def claim_stdout() -> TextIO:
    """Keep standard output for reports and send everything that prints to the log instead."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return out


def main() -> int:
    die_with_parent(int(sys.argv[1]))
    # The parent asks for this before it kills: where each thread waited is all that a hang leaves behind.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    reports = Reports(claim_stdout())
    try:
        import torch

        versions = {"vllm": adapter.installed_version(), "torch": str(torch.__version__)}
        reports.say("ready", **versions, pid=os.getpid(), libraries=library_facts())
        serve(Session(reports))
    except BaseException as error:  # noqa: B036 - the parent must hear of every end, and nothing may run after it
        reports.give_up(error)
    os._exit(0)


def serve(session: Session) -> None:
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "join":
            session.join(JoinPlan.from_json(command["plan"]))
        elif command["do"] == "push":
            session.push(PushPlan.from_json(command["plan"]))
        else:
            return


if __name__ == "__main__":
    main()
