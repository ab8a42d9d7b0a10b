"""References: records of a checkpoint taken from a fresh process, stored with everything that makes them comparable.

A reference is keyed by the checkpoint's content, the serving flags and environment, the versions, the machine and the
probes. Two servers are comparable when their own accounts of configuration and environment agree in everything but what
must differ.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vst.errors import VerificationError
from vst.oracle.record import Record
from vst.provenance.atomic import write_atomic
from vst.server.facts import ServerFacts
from vst.server.speculation import Drafted

FORMAT = "vst-reference/2"
WITHOUT_CONTENT = "vst-reference/1"
"""How earlier versions wrote one; it may be of any checkpoint."""

VOLATILE = (
    "instance_id",
    "model_config.model",
    "model_config.tokenizer",
    "model_config.served_model_name",
    "model_config.revision",
    "model_config.tokenizer_revision",
    "parallel_config.data_parallel_master_port",
    "parallel_config.data_parallel_rpc_port",
    "parallel_config.master_port",
    "parallel_config._data_parallel_master_port_list",
    "parallel_config._coord_store_port",
    "cache_config.num_gpu_blocks",
    "cache_config.num_cpu_blocks",
    "cache_config.kv_cache_size_tokens",
    "cache_config.kv_cache_max_concurrency",
    "compilation_config.cache_dir",
    "compilation_config.local_cache_dir",
    "compilation_config.debug_dump_path",
    "env.VLLM_PORT",
    "env.VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME",
    "env.VLLM_HOST_IP",
    "env.VLLM_RPC_BASE_PATH",
    "env.VLLM_CACHE_ROOT",
    "env.VLLM_CONFIG_ROOT",
    "env.VLLM_ASSETS_CACHE",
    "env.VLLM_XLA_CACHE_PATH",
    "env.VLLM_API_KEY",
    "env.CUDA_VISIBLE_DEVICES",
    "speculative_config.model",
    "speculative_config.revision",
    "speculative_config.target_model_config.model",
    "speculative_config.target_model_config.tokenizer",
    "speculative_config.target_model_config.served_model_name",
    "speculative_config.target_model_config.revision",
    "speculative_config.target_model_config.tokenizer_revision",
    "speculative_config.draft_model_config.model",
    "speculative_config.draft_model_config.tokenizer",
    "speculative_config.draft_model_config.served_model_name",
    "speculative_config.draft_model_config.revision",
    "speculative_config.draft_model_config.tokenizer_revision",
    *(
        f"speculative_config.{whose}_parallel_config.{name}"
        for whose in ("target", "draft")
        for name in (
            "data_parallel_master_port",
            "data_parallel_rpc_port",
            "master_port",
            "_data_parallel_master_port_list",
            "_coord_store_port",
        )
    ),
)
"""What may differ between two servers that still have to answer alike: names, ports, places, amounts of memory."""

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+>")

SECRET_WORDS = ("TOKEN", "API_KEY", "APIKEY", "ACCESS_KEY", "SECRET", "PASSWORD", "CREDENTIAL")


def comparable_facts(facts: ServerFacts) -> dict[str, Any]:
    """A server's account of itself as flat ``key: value`` pairs, without secrets."""
    flat: dict[str, Any] = {"version": facts.version}
    _flatten("", facts.config, flat)
    _flatten("env.", facts.env, flat)
    for key in ("torch_version", "cuda_runtime_version", "nvidia_driver_version", "nvidia_gpu_models", "cpu_info"):
        flat[f"system.{key}"] = _short(facts.system.get(key))
    return flat


def _flatten(prefix: str, values: Mapping[str, Any], out: dict[str, Any]) -> None:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            _flatten(f"{name}.", value, out)
        elif not _secret(name):
            out[name] = value


def _secret(name: str) -> bool:
    upper = name.upper()
    return any(word in upper for word in SECRET_WORDS) and not upper.endswith("_TOKENS")


def _short(value: Any) -> Any:
    """Long machine descriptions by digest; the clock speed in them changes from one moment to the next."""
    if not isinstance(value, str) or len(value) < 200:
        return value
    lines = [line for line in value.splitlines() if "MHz" not in line and "BogoMIPS" not in line]
    return "sha256:" + hashlib.sha256("\n".join(lines).encode()).hexdigest()


def stable_facts(facts: ServerFacts) -> dict[str, Any]:
    """A server's account of itself without what may differ between two servers that have to answer alike."""
    return {key: _placeless(value) for key, value in comparable_facts(facts).items() if not _volatile(key)}


def differing(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The keys in which two servers' accounts differ and must not, with both values."""
    keys = sorted(key for key in set(left) | set(right) if not _volatile(key))
    both = {key: (left.get(key), right.get(key)) for key in keys}
    return {key: sides for key, sides in both.items() if _placeless(sides[0]) != _placeless(sides[1])}


def _placeless(value: Any) -> Any:
    """A value without the places in memory that Python names in the text of an object.

    vLLM's ``hf_overrides`` of a draft is a function, and a server tells it as ``<function … at 0x7f…>``.
    """
    if isinstance(value, str):
        return ADDRESS.sub(" at (a place in memory)>", value)
    if isinstance(value, Mapping):
        return {key: _placeless(one) for key, one in value.items()}
    return [_placeless(one) for one in value] if isinstance(value, list | tuple) else value


def _volatile(key: str) -> bool:
    """A name of ``VOLATILE`` or a part of what has that name; ``model_config.model_impl`` is no part of ``….model``."""
    return any(key == name or key.startswith(f"{name}.") for name in VOLATILE)


@dataclass(frozen=True)
class ReferenceKey:
    """Everything that decides which reference may be used; compared as a whole."""

    content_digest: str
    files: Mapping[str, str]
    flags: tuple[str, ...]
    env: Mapping[str, str]
    versions: Mapping[str, str]
    probes: str
    draft: str | None = None

    def to_json(self) -> dict[str, Any]:
        # A key without a draft is spelled as it always was: references of earlier runs stay good.
        return {
            **({"draft": self.draft} if self.draft is not None else {}),
            "content_digest": self.content_digest,
            "files": dict(self.files),
            "flags": list(self.flags),
            "env": dict(self.env),
            "versions": dict(self.versions),
            "probes": self.probes,
            "machine": machine(),
        }

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()


def machine() -> dict[str, Any]:
    """What of this machine decides the last bits of an answer on a CPU: the processor and how many there are."""
    text = Path("/proc/cpuinfo").read_text(errors="replace")
    models = {
        line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(("model name", "CPU part"))
    }
    flags = {line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(("flags", "Features"))}
    return {
        "architecture": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "models": sorted(models),
        "features": hashlib.sha256("\n".join(sorted(flags)).encode()).hexdigest(),
    }


@dataclass(frozen=True)
class Reference:
    """A record from a fresh process, with that server's account of itself; ``source`` says where it came from.

    ``content_digest`` is that of the checkpoint which the process was started on. ``drafted`` are the tokens that its
    draft proposed and had accepted while the record was taken, if it has one.
    """

    record: Record
    content_digest: str
    facts: Mapping[str, Any]
    source: str
    drafted: Drafted | None = None

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "record": self.record.to_json(),
            "content_digest": self.content_digest,
            "facts": dict(self.facts),
        }
        if self.drafted is not None:
            body["drafted"] = self.drafted.to_json()
        return {"format": FORMAT, "sha256": _digest(body), **body}

    @staticmethod
    def from_json(data: Any, source: str) -> Reference:
        """Read a stored reference; VerificationError when it is damaged or something else."""
        found = data.get("format") if isinstance(data, Mapping) else None
        if found == WITHOUT_CONTENT:
            raise VerificationError(f"{source} does not say of which checkpoint it is: take it again with lane=record")
        if found != FORMAT:
            raise VerificationError(f"{source} is not a reference: expected format {FORMAT!r}")
        keys = ("record", "content_digest", "facts", "drafted")
        body = {key: data.get(key) for key in keys if key != "drafted" or key in data}
        if data.get("sha256") != _digest(body):
            raise VerificationError(f"{source} is damaged: its digest does not hold")
        drafted = Drafted.from_json(data["drafted"]) if "drafted" in data else None
        return Reference(Record.from_json(data["record"]), str(data["content_digest"]), data["facts"], source, drafted)


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def read_reference(path: Path) -> Reference:
    """The reference stored at ``path``; VerificationError says what is wrong with the file."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise VerificationError(f"reference {path} cannot be read: {error}") from error
    return Reference.from_json(data, str(path))


class ReferenceCache:
    """References of earlier runs under ``directory``; a damaged entry counts as none and is taken again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, key: ReferenceKey) -> Path:
        return self._directory / f"{key.digest}.json"

    def load(self, key: ReferenceKey) -> Reference | None:
        path = self.path(key)
        try:
            data = json.loads(path.read_text())
            reference = Reference.from_json(data, str(path))
        except (OSError, ValueError, VerificationError):
            return None
        # A file under another's name is no reference of this checkpoint.
        return reference if data.get("key") == key.to_json() else None

    def store(self, key: ReferenceKey, reference: Reference) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        content = {**reference.to_json(), "key": key.to_json()}
        write_atomic(self.path(key), json.dumps(content, sort_keys=True).encode())
