"""The script of an issue: two fresh servers and a reload from disk, with vLLM and curl, compared by ``diff``."""

from __future__ import annotations

import pprint
from dataclasses import dataclass

from vst.checkpoint.zoo.catalogue import COMMON, Architecture

TOKENS = 24
"""How many tokens of a prompt are asked, unless the first that differs comes later."""


@dataclass(frozen=True)
class Reproduction:
    """What a script is made from.

    ``architecture`` is made by the script itself with transformers, which vLLM brings; None: the reader has the
    checkpoints, whose content ``digests`` name (A, B). ``identity``: A is reloaded over A, else B over A. ``prompt``
    are token ids; ``parallel`` is the tensor parallel size.
    """

    architecture: Architecture | None
    digests: tuple[str, str]
    identity: bool
    prompt: tuple[int, ...]
    parallel: int = 1


MAKE = """\
python - <<'MAKE'
import torch, transformers
config = transformers.{config}(**{options})
for seed, name in enumerate(("a", "b")):
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.15) if weight.dim() > 1 else None
    model.save_pretrained(name)
MAKE
A=$PWD/a B=$PWD/b
"""

GIVEN = """\
A=${{A:?the directory of checkpoint A, content {a}}}
"""

GIVEN_B = """\
B=${{B:?the directory of checkpoint B, content {b}}}
"""

BODY = """\
PORT=${{PORT:-8000}}
export VLLM_SERVER_DEV_MODE=1 HF_HUB_OFFLINE=1

serve() {{  # DIRECTORY: start a server on it and wait until it answers
  python -m vllm.entrypoints.openai.api_server --model "$1" --served-model-name m --host 127.0.0.1 --port "$PORT" \\
    --enforce-eager --max-model-len 512 --skip-tokenizer-init{parallel} > "server-$2.log" 2>&1 &
  SERVER=$!
  until curl -sf "http://127.0.0.1:$PORT/health"; do kill -0 "$SERVER"; sleep 1; done
}}

trap 'kill "$SERVER" 2> /dev/null || true' EXIT
stop() {{ kill "$SERVER"; wait "$SERVER" || true; }}

ask() {{  # FILE: the log-probabilities of the prompt's own tokens, or what the server says instead
  curl -s "http://127.0.0.1:$PORT/v1/completions" -H 'Content-Type: application/json' -d '{{
    "model": "m", "prompt": {prompt}, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0,
    "add_special_tokens": false}}' | grep -o -e '"logprob":[-0-9.e]*' -e '"message":"[^"]*"' > "$1"
}}

twice() {{  # what is expected, in numbers, and that it repeats
  ask expected.txt; ask again.txt
  grep -q logprob expected.txt
  diff expected.txt again.txt > /dev/null
}}

reload() {{  # DIRECTORY: vLLM's own reload from disk, while nothing runs
  curl -sf -X POST "http://127.0.0.1:$PORT/pause?mode=wait"
  curl -sf -X POST "http://127.0.0.1:$PORT/collective_rpc" -H 'Content-Type: application/json' \\
    -d "{{\\"method\\": \\"reload_weights\\", \\"kwargs\\": {{\\"weights_path\\": \\"$1\\"}}}}"
  curl -sf -X POST "http://127.0.0.1:$PORT/reset_prefix_cache"
  curl -sf -X POST "http://127.0.0.1:$PORT/resume"
}}
"""

IDENTITY = """
serve "$A" a; twice
reload "$A"; ask reloaded.txt; stop
"""

TRANSITION = """
serve "$B" b; twice; stop
serve "$A" a; reload "$B"; ask reloaded.txt; stop
"""

END = """
if diff expected.txt reloaded.txt > differences.txt; then echo "no fault: the reloaded server answers alike"; exit 1
elif grep message reloaded.txt; then echo "FAULT: the reloaded server does not answer with numbers"
else echo "FAULT: $(grep -c '^<' differences.txt) of $(wc -l < expected.txt) log-probabilities differ"; fi
"""


def script(made: Reproduction) -> str:
    """The bash script; it ends with 0 and a line that begins with FAULT where the fault is there, else with 1."""
    if made.architecture is not None:
        options = pprint.pformat({**COMMON, **made.architecture.options}, width=100, sort_dicts=False)
        begin = MAKE.format(config=made.architecture.config, options=options)
    else:
        begin = GIVEN.format(a=made.digests[0]) + ("" if made.identity else GIVEN_B.format(b=made.digests[1]))
    parallel = f" --tensor-parallel-size {made.parallel}" if made.parallel > 1 else ""
    body = BODY.format(prompt=list(made.prompt), parallel=parallel)
    return f"#!/bin/bash\nset -eu\n{begin}{body}{IDENTITY if made.identity else TRANSITION}{END}"
