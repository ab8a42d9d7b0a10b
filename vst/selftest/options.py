"""The double's command line: vLLM's flags as far as it has them, its own sizes, and the faults."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vst.errors import ConfigError
from vst.selftest.fault import Fault, parse

MIB = 1 << 20


@dataclass(frozen=True)
class Options:
    """How one double is started; memory in bytes, sizes as vLLM's flags of the same names."""

    model: Path
    name: str
    host: str
    port: int
    ranks: int
    replicas: int
    max_model_len: int
    backend: str
    cached_tokens: bool
    prefix_caching: bool
    text: bool
    vllm: str
    weights_bytes: int
    kv_bytes: int
    step_s: float
    faults: tuple[Fault, ...]


def read(argv: Sequence[str]) -> Options:
    """The options of a command line; argparse ends the process for a flag that the double does not have."""
    args = _parser().parse_args(list(argv))
    transfer = json.loads(args.weight_transfer_config)
    return Options(
        model=args.model,
        name=args.served_model_name or str(args.model),
        host=args.host,
        port=args.port,
        ranks=args.tensor_parallel_size * args.pipeline_parallel_size,
        replicas=args.data_parallel_size,
        max_model_len=args.max_model_len,
        backend=str(transfer["backend"]),
        cached_tokens=args.enable_prompt_tokens_details,
        prefix_caching=not args.no_enable_prefix_caching,
        text=not args.skip_tokenizer_init,
        vllm=args.vllm_version,
        weights_bytes=round(args.weights_mib * MIB),
        kv_bytes=round(args.kv_mib * MIB),
        step_s=args.step_ms / 1000,
        faults=tuple(parse(text) for text in args.fault),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m vst.selftest", description="the scripted server: no vLLM at all")
    parser.add_argument("--model", type=Path, required=True, help="the checkpoint to load")
    parser.add_argument("--served-model-name")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    for size in ("tensor", "pipeline", "data"):
        parser.add_argument(f"--{size}-parallel-size", type=int, default=1)
    parser.add_argument("--max-model-len", type=int, default=512)
    parser.add_argument("--weight-transfer-config", default='{"backend": "vst_gloo"}')
    parser.add_argument("--enable-prompt-tokens-details", action="store_true")
    parser.add_argument("--skip-tokenizer-init", action="store_true", help="prompts are token ids only")
    parser.add_argument("--no-enable-prefix-caching", action="store_true")
    parser.add_argument("--vllm-version", default="0.32.0", help="the version whose double this is")
    parser.add_argument("--weights-mib", type=float, default=32, help="what each rank's weights take at least")
    parser.add_argument("--kv-mib", type=float, default=32, help="what each replica's KV cache takes")
    parser.add_argument("--step-ms", type=float, default=0, help="what each token of all requests takes at least")
    parser.add_argument("--fault", action="append", default=[], help="a fault as a JSON object; may be repeated")
    return parser


def check_backend(options: Options) -> None:
    """ConfigError for a backend that the double does not speak."""
    if options.backend != "vst_gloo":
        raise ConfigError(f"the scripted server speaks vst_gloo only, not {options.backend}")
