"""Takes the digest out of a publisher for the benchmark: what is left is what it costs. No run is made this way."""

import importlib.abc
import importlib.util
import sys

NAME = "vst.transfer.pipeline"


class Nothing:
    def update(self, data):
        pass

    def hexdigest(self):
        return "0" * 64


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            module.tensor_hasher = Nothing

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
