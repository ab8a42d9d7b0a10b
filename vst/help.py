"""The page that ``python -m vst --help`` prints; it needs neither Hydra nor anything else that takes time to import."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

TEXT = """\
vst: push a checkpoint into a live vLLM server and prove that the server now serves it.

usage: python -m vst [group=option …] [key=value …] [hydra flags]

  Each run leaves a directory with its verdict, its evidence and report.html; the exit code says how it ended.

commands
{commands}
lanes: each runs those below it first and stops at the first that does not pass
{lanes}
operations, beside the ladder
{operations}
groups and their options
{groups}
any key can be set: python -m vst server.tensor_parallel_size=2; the whole configuration: --cfg job --resolve
live progress: console=auto, plain or json (one JSON object a line). Ctrl-C ends a run in order, a second one at once;
both leave a verdict. Completion for bash: eval "$(python -m vst --shell-completion install=bash)"

exit codes: 0 PASS; FAIL_CLOSED: 10 false, 11 refused, 12 inconclusive, 20 infrastructure; 2 configuration;
130/143 interrupted, terminated. More: --hydra-help for Hydra's own flags, README.md for everything else.
"""

COMMANDS = (
    ("python -m vst", "the embedded default: a tiny pair on a CPU server, L0 to L3"),
    ("python -m vst lane=L0 model=local model.path=/a checkpoint.path=/b", "audit two checkpoints, start nothing"),
    ("python -m vst lane=L3 model=local model.path=/a checkpoint.path=/b", "prove A -> B -> A on a CPU server"),
    (
        "python -m vst lane=L3 model=local model.path=/a checkpoint.path=/b server=gpu transfer=nccl publisher=gpu"
        " 'server.devices=[\"0\"]' publisher.device=cuda:1",
        "the same over NCCL, on GPUs",
    ),
    (
        "python -m vst lane=L3 model=local model.path=/a checkpoint.path=/b server=attach"
        " server.base_url=http://host:8000",
        "the same on a server that runs already",
    ),
    (
        "python -m vst lane=publish model=local model.path=/a checkpoint.path=/b server=attach"
        " server.base_url=http://host:8000",
        "one transaction into it, nothing else",
    ),
    ("python -m vst lane=record model=local model.path=/a", "take a reference of A and keep it"),
    ("python -m vst lane=compare lane.left=x.json lane.right=y.json", "judge two stored records, offline"),
    (
        "python -m vst --config-dir DIR -m model=local model.path=/a checkpoint=step100,step200 lane=L3"
        " hydra/launcher=slurm",
        "a sweep as SLURM jobs (hydra/launcher=local: as processes)",
    ),
    (
        "python -m vst.status DIR --watch",
        "how a run or a sweep goes on; then vst.report DIR (its page), vst.checklist DIR…, vst.provenance verify DIR",
    ),
)
"""Ten commands that people use, and what each does."""

LANES = {
    "L0": ("files", "the checkpoints are what they claim to be, before a byte leaves the machine"),
    "L1": ("contract", "the server is the one that was declared, generates, and answers alike twice"),
    "L2": ("identity", "A pushed over A changes nothing"),
    "L3": ("transition", "A -> B equals a cold start of B, B -> A equals A, every tensor family is observable"),
    "L4": ("lifecycle", "pausing with work in flight, sleeping and waking around an update, in every order"),
    "L5": ("quality", "GSM8K before and after, question by question, with paired statistics"),
    "L6": ("endurance", "many cycles under load, and failures on purpose that must leave it not serving"),
}

OPERATIONS = {
    "publish": "one transaction into a running server and nothing else",
    "lifecycle": "one chain of pauses, sleeps and pushes, each step observed",
    "record": "take a reference of A and keep it",
    "compare": "judge two stored records offline",
    "eval": "ask a question set and keep the answers",
    "diagnose": "narrow down what a server that fails does wrong",
    "selftest": "the tool against servers with known faults: every one must be caught",
}

WIDTH = 116


def page(conf: Path) -> str:
    """The help page with the lanes, operations and groups found under ``conf``."""
    return TEXT.format(
        commands="".join(_commands()),
        lanes="".join(_lanes(conf)),
        operations="".join(_operations(conf)),
        groups="".join(_groups(conf)),
    )


def _commands() -> Iterator[str]:
    for command, meaning in COMMANDS:
        lines = _wrapped(command)
        yield " \\\n".join([f"  {lines[0]}", *(f"      {line}" for line in lines[1:])]) + "\n"
        yield f"        {meaning}\n"


def _wrapped(command: str) -> list[str]:
    """A command in pieces of bearable length, cut between words."""
    lines = [""]
    for word in command.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) > WIDTH - 8:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _lanes(conf: Path) -> Iterator[str]:
    for name, (title, meaning) in LANES.items():
        if (conf / "lane" / f"{name}.yaml").exists():
            yield f"  {name}  {title:<12}{meaning}\n"


def _operations(conf: Path) -> Iterator[str]:
    for name, meaning in OPERATIONS.items():
        if (conf / "lane" / f"{name}.yaml").exists():
            yield f"  {name:<16}{meaning}\n"


def _groups(conf: Path) -> Iterator[str]:
    for group in sorted(path for path in conf.iterdir() if path.is_dir() and path.name != "hydra"):
        options = ", ".join(sorted(path.stem for path in group.glob("*.yaml")))
        yield f"  {group.name:<15} {options}\n"
    launchers = ", ".join(sorted(path.stem for path in (conf / "hydra/launcher").glob("*.yaml")))
    yield f"  {'hydra/launcher':<15} {launchers}\n"
