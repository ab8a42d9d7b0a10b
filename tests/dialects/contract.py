"""What the adapter and the gloo backend use of vLLM's Python side, compared with its sources: nothing is imported.

``drifts`` names everything that is not where it was, so that a new vLLM fails with what moved and not somewhere behind.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Read = Callable[[str], str]
"""The text of a file of the package by its path below site-packages; KeyError or OSError if there is none."""

WEIGHTS = "vllm/distributed/weight_transfer/"
RELOAD = "vllm/model_executor/model_loader/reload/layerwise.py"
NCCL = "vllm/distributed/device_communicators/"


@dataclass(frozen=True)
class Method:
    """A function, or a method where ``owner`` is a class, that must take these parameters, whatever else it takes."""

    file: str
    owner: str
    name: str
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fields:
    """A class that must have these annotated fields."""

    file: str
    owner: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Name:
    """A module's name that must be assigned, imported or defined."""

    file: str
    name: str


WORKER = ("init_transfer_engine", "receive_weights", "start_weight_update", "finish_weight_update", "shutdown")
COMMON: tuple[Method | Fields | Name, ...] = (
    Fields(WEIGHTS + "base.py", "ParamMeta", ("name", "dtype", "shape")),
    Fields(WEIGHTS + "base.py", "TrainerInitInfo", ("rank", "backend")),
    Method(WEIGHTS + "base.py", "TrainerInitInfo", "is_sender"),
    Name(WEIGHTS + "base.py", "WeightTransferInitInfo"),
    Name(WEIGHTS + "base.py", "WeightTransferUpdateInfo"),
    Method(WEIGHTS + "base.py", "TrainerWeightTransferEngine", "send_weights"),
    Method(WEIGHTS + "base.py", "WeightTransferEngine", "__init__", ("config", "vllm_config", "device", "model")),
    Method(WEIGHTS + "base.py", "WeightTransferEngine", "parse_init_info", ("init_dict",)),
    Method(WEIGHTS + "base.py", "WeightTransferEngine", "parse_update_info", ("update_dict",)),
    *(
        Method(WEIGHTS + "base.py", "VLLMWeightSyncClient", name, parameters)
        for name, parameters in (
            ("init_weight_transfer_engine", ("init_info",)),
            ("start_weight_update", ()),
            ("update_weights", ("update_info",)),
            ("finish_weight_update", ("weight_version",)),
        )
    ),
    Method(WEIGHTS + "factory.py", "WeightTransferTrainerFactory", "trainer_init", ("init_info", "client", "source")),
    *(
        Method(WEIGHTS + "factory.py", owner, "register_engine", ("name", "module_path_or_cls", "class_name"))
        for owner in ("WeightTransferEngineFactory", "WeightTransferTrainerFactory")
    ),
    *(Method(WEIGHTS + "nccl_engine.py", "NCCLWeightTransferEngine", name) for name in WORKER),
    Method(WEIGHTS + "nccl_engine.py", "NCCLTrainerWeightTransferEngine", "send_weights"),
    Fields(
        WEIGHTS + "nccl_engine.py",
        "NCCLTrainerInitInfo",
        ("master_address", "master_port", "world_size", "packed", "packed_buffer_size_bytes"),
    ),
    Name(WEIGHTS + "nccl_engine.py", "DEFAULT_PACKED_BUFFER_SIZE_BYTES"),
    Method(WEIGHTS + "packed_tensor.py", "", "unpack_tensor", ("packed_tensor", "names", "shapes", "tensor_sizes")),
    Method(WEIGHTS + "packed_tensor.py", "", "pack_tensors", ("iterator", "post_iter_func", "buffer_size_bytes")),
    Name(NCCL + "pynccl.py", "PyNcclCommunicator"),
    Method(NCCL + "pynccl_wrapper.py", "ncclDataTypeEnum", "from_torch", ("dtype",)),
    Method(RELOAD, "", "initialize_layerwise_reload", ("model",)),
    Method(RELOAD, "", "finalize_layerwise_reload"),
)
SOURCES: dict[str, tuple[Method | Fields | Name, ...]] = {
    "methods": tuple(Method(WEIGHTS + "base.py", "WeightSource", name) for name in ("metadata", "__iter__")),
    "cached": (
        Method(WEIGHTS + "base.py", "WeightSource", "iter_full"),
        Method(WEIGHTS + "base.py", "WeightSource", "__init_subclass__"),
    ),
}


def drifts(read: Read, dialect: str) -> list[str]:
    """One line for everything of the contract that the sources do not keep; none when they keep it all."""
    return [line for need in (*COMMON, *SOURCES[dialect]) for line in _drift(read, need)]


def _drift(read: Read, need: Method | Fields | Name) -> Iterator[str]:
    try:
        tree = ast.parse(read(need.file))
    except (KeyError, OSError):
        yield f"{need.file} is gone"
        return
    if isinstance(need, Name):
        if need.name not in _names(tree):
            yield f"{need.file}: {need.name} is gone"
        return
    owner = _class(tree, need.owner) if need.owner else tree
    if owner is None:
        yield f"{need.file}: class {need.owner} is gone"
    elif isinstance(need, Fields):
        for name in sorted(set(need.names) - _fields(owner)):
            yield f"{need.file}: {need.owner}.{name} is gone"
    else:
        yield from _method_drift(owner, need)


def _method_drift(owner: ast.AST, need: Method) -> Iterator[str]:
    title = f"{need.file}: {f'{need.owner}.' if need.owner else ''}{need.name}"
    found = [node for node in _body(owner) if isinstance(node, ast.FunctionDef) and node.name == need.name]
    if not found:
        yield f"{title} is gone"
        return
    arguments = found[-1].args
    names = {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    for name in need.parameters:
        if name not in names:
            yield f"{title} takes no {name} any more: it takes {', '.join(sorted(names - {'self', 'cls'}))}"


def _body(owner: ast.AST) -> list[ast.stmt]:
    return list(getattr(owner, "body", []))


def _class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    return next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)


def _fields(owner: ast.AST) -> set[str]:
    return {
        node.target.id
        for node in _body(owner)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _names(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found.add(node.name)
        elif isinstance(node, (ast.ImportFrom, ast.Import)):
            found.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


ROUTES = (
    *("/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/finish_weight_update", "/pause"),
    *("/resume", "/is_paused", "/is_sleeping", "/sleep", "/wake_up", "/get_world_size", "/weight_info", "/server_info"),
    *("/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache", "/abort_requests"),
)
"""What a run cannot do without."""

OPTIONAL = ("/start_draft_weight_update", "/weight_checker", "/shutdown_weight_transfer_engine")


def routes(texts: Iterator[str]) -> set[str]:
    """Which of the routes that we call the sources of the entry points name."""
    whole = "\n".join(texts)
    return {route for route in (*ROUTES, *OPTIONAL) if f'"{route}"' in whole}
