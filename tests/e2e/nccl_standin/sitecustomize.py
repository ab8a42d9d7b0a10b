"""Lets vLLM's own NCCL engines run without a GPU: only the communicator and the stream calls are replaced.

Put on PYTHONPATH of the server and of the publisher. The rendezvous, the packing, the metadata and the loading stay
vLLM's; the bytes travel by gloo instead of NCCL.
"""

import contextlib
import importlib.abc
import importlib.util
import sys
from datetime import timedelta

TARGET = "vllm.distributed.device_communicators.pynccl"


class Stream:
    """A stream on which everything has already happened."""

    def __init__(self, *args, **kwargs):
        pass

    def synchronize(self):
        pass


def make_communicator():
    import torch.distributed as dist

    class GlooCommunicator:
        def __init__(self, group, device):
            store = dist.PrefixStore("standin", group.store)
            self._group = dist.ProcessGroupGloo(store, group.rank, group.world_size, timedelta(seconds=60))

        def broadcast(self, tensor, src, stream=None):
            options = dist.BroadcastOptions()
            options.rootRank = src
            self._group.broadcast([tensor], options).wait()

        def destroy(self):
            self._group = None

    return GlooCommunicator


def replace(module):
    import torch

    module.PyNcclCommunicator = make_communicator()
    torch.cuda.Stream = Stream
    torch.cuda.stream = lambda stream: contextlib.nullcontext()
    torch.cuda.current_stream = lambda *args: Stream()
    torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.synchronize = lambda *args: None


class Finder(importlib.abc.MetaPathFinder):
    """Finds the communicator's module as it is and replaces its class right after it was executed."""

    def find_spec(self, name, path=None, target=None):
        if name != TARGET:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            replace(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
