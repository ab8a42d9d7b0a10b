"""Lets vLLM's own NCCL engines run without a GPU: only the communicator and the stream calls are replaced.

Put on PYTHONPATH of the server and of the publisher. The rendezvous, the packing, the metadata and the loading stay
vLLM's; the bytes travel by gloo instead of NCCL.
"""

import contextlib
import importlib.abc
import importlib.util
import sys
from datetime import timedelta


class Stream:
    """A stream on which everything has already happened."""

    def __init__(self, *args, **kwargs):
        pass

    def synchronize(self):
        pass


def make_communicator():
    import torch
    import torch.distributed as dist

    class GlooCommunicator:
        def __init__(self, group, device):
            store = dist.PrefixStore("standin", group.store)
            self._group = dist.ProcessGroupGloo(store, group.rank, group.world_size, timedelta(seconds=60))

        def broadcast(self, tensor, src, stream=None):
            options = dist.BroadcastOptions()
            options.rootRank = src
            # NCCL knows a few types and no shapes; gloo knows fewer, so both are given bytes.
            if tensor.numel():
                flat = tensor.view(-1).view(torch.uint8)
                self._group.broadcast([flat], options).wait()

        def destroy(self):
            self._group = None

    return GlooCommunicator


def replace_communicator(module):
    module.PyNcclCommunicator = make_communicator()


def replace_streams(module):
    torch = module.torch
    torch.cuda.Stream = Stream
    torch.cuda.stream = lambda stream: contextlib.nullcontext()
    torch.cuda.current_stream = lambda *args: Stream()
    torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.synchronize = lambda *args: None


REPLACE = {
    "vllm.distributed.device_communicators.pynccl": replace_communicator,
    "vllm.distributed.weight_transfer.packed_tensor": replace_streams,
}


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules as they are and replaces what they need of a GPU right after they were executed."""

    def find_spec(self, name, path=None, target=None):
        change = REPLACE.pop(name, None)
        if change is None:
            return None
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
