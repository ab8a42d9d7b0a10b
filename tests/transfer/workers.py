"""The receiving end of a transfer without a vLLM server: the real worker engine, a model that keeps all."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import torch
import vllm.model_executor.model_loader.mtp_validation  # noqa: F401 - a server has loaded it long before it receives
from http_server import Call, HttpServer

from vst.transfer.gloo import GlooWeightTransferEngine


class Kept:
    """Stores the very tensors that it is given, as a layerwise reload may."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.batches: list[list[str]] = []

    def load_weights(self, pairs: list[tuple[str, torch.Tensor]]) -> None:
        self.batches.append([name for name, _ in pairs])
        self.tensors.update(pairs)


class Worker:
    """One worker of a server with ``size`` of them."""

    def __init__(self, rank: int = 0, size: int = 1, data_parallel_index: int = 0) -> None:
        parallel = SimpleNamespace(data_parallel_index=data_parallel_index, world_size=size, rank=rank)
        config = SimpleNamespace(parallel_config=parallel, model_config=None)
        self.model = Kept()
        self.engine = GlooWeightTransferEngine(None, config, torch.device("cpu"), self.model)

    def join(self, info: dict[str, Any]) -> None:
        self.engine.init_transfer_engine(self.engine.parse_init_info(info))

    def receive(self, info: dict[str, Any]) -> None:
        self.engine.update_weights(info)


class Direct:
    """vLLM's client protocol straight into workers, each in a thread of its own as in processes of their own."""

    def __init__(self, *workers: Worker) -> None:
        self.workers = workers
        self.calls: list[str] = []

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self.calls.append("init")
        self._all(lambda worker: worker.join(json.loads(json.dumps(init_info))))

    def start_weight_update(self) -> None:
        self.calls.append("start")

    def update_weights(self, update_info: Any) -> None:
        self.calls.append("update")
        self._all(lambda worker: worker.receive(json.loads(json.dumps(update_info))))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self.calls.append("finish")

    def _all(self, act: Callable[[Worker], None]) -> None:
        with ThreadPoolExecutor(len(self.workers)) as pool:
            list(pool.map(act, self.workers))


class WorkerServer(HttpServer):
    """The weight-transfer routes of a server with one worker; ``ended`` tells how its last update ended."""

    def __init__(self, **routes: Any) -> None:
        super().__init__()
        self.worker = Worker()
        self.ended: BaseException | None = None
        self.received = threading.Event()
        self.routes = {
            "POST /init_weight_transfer_engine": self._init,
            "POST /start_weight_update": {"message": "started"},
            "POST /update_weights": self.update,
            "POST /finish_weight_update": {"message": "finished"},
            **{f"POST /{name}": route for name, route in routes.items()},
        }

    def _init(self, call: Call) -> Any:
        self.worker.join(call.body["init_info"])
        return {"message": "joined"}

    def update(self, call: Call) -> Any:
        self.ended = None
        try:
            self.worker.receive(call.body["update_info"])
        except BaseException as error:
            self.ended = error
            raise
        finally:
            self.received.set()
        return {"message": "updated"}
