"""The page that ``python -m vst --help`` prints; it needs neither Hydra nor anything else that takes time to import."""

from __future__ import annotations

from pathlib import Path

TEXT = """\
vst: push a checkpoint into a live vLLM server and prove that the server now serves it.

usage: python -m vst [group=option …] [key=value …] [hydra flags]

  python -m vst                                        the embedded default: tiny pair, CPU server, L0 to L3
  python -m vst lane=L0 model=local model.path=A checkpoint.path=B        audit two checkpoints, nothing is started
  python -m vst lane=L3 model=local model.path=A checkpoint.path=B        prove A -> B -> A on a CPU server of its own
  python -m vst lane=L3 server=gpu transfer=nccl publisher=gpu 'server.devices=["0"]' publisher.device=cuda:1 …
  python -m vst lane=L3 server=attach server.base_url=http://host:8000 …  the same on a server that runs already
  python -m vst lane=publish server=attach server.base_url=… checkpoint.path=B   one transaction, nothing else
  python -m vst lane=lifecycle lifecycle=keep server=attach …   the moves around it too, each step observed
  python -m vst lane=record model=local model.path=A   take a reference of A and keep it
  python -m vst lane=compare lane.left=record-x.json lane.right=record-y.json    judge two records offline
  python -m vst lane=selftest                          the tool against its own scripted servers with known faults
  python -m vst --config-dir DIR -m checkpoint=step100,step200 …    a sweep, one process after the other
  python -m vst -m checkpoint=step100,step200 hydra/launcher=slurm hydra.launcher.partition=gpu …   as SLURM jobs
  python -m vst.status SWEEP_DIR                       how a sweep goes on, from any machine
  python -m vst server.tensor_parallel_size=2          any key can be given on the command line
  python -m vst --cfg job --resolve                    show the whole configuration, run nothing

lanes (each runs those below it first and stops at the first that does not pass)
  L0 files        the checkpoints are what they claim to be, before a byte leaves the machine
  L1 contract     the server is the one that was declared, generates, and answers alike twice
  L2 identity     A pushed over A changes nothing
  L3 transition   A -> B equals a cold start of B, B -> A equals A, every tensor family is observable
  L4 lifecycle    pauses with streams in flight, sleeps and wakes in every order, a whole chain around an update

groups and their options
{groups}
exit codes: 0 PASS; FAIL_CLOSED: 10 false, 11 refused, 12 inconclusive, 20 infrastructure; 2 configuration;
130/143 interrupted, terminated. More: --hydra-help for Hydra's own flags, README.md for everything else.
"""


def page(conf: Path) -> str:
    """The help page with the groups found under ``conf``."""
    lines = []
    for group in sorted(path for path in conf.iterdir() if path.is_dir() and path.name != "hydra"):
        options = ", ".join(sorted(path.stem for path in group.glob("*.yaml")))
        lines.append(f"  {group.name:<12}{options}\n")
    launchers = ", ".join(sorted(path.stem for path in (conf / "hydra/launcher").glob("*.yaml")))
    lines.append(f"  {'hydra/launcher':<12} {launchers}\n")
    return TEXT.format(groups="".join(lines))
