"""``python -m vst.report matrix DIR…``: many runs over many models as one table, as JSON and as a page.

Every row follows from the files of its runs by the rules here: the ladder's verdict, and, where there is one, the
diagnosis of the same model with as many workers. A bundle that does not hold makes no row.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vst.errors import ConfigError
from vst.lanes.diagnose.found import FILE, Diagnosis
from vst.lanes.diagnose.judge import named
from vst.provenance.machine import cpu_facts
from vst.provenance.rundir import RUN
from vst.provenance.verify import verify
from vst.report.material import Material, read_material, read_object

FORMAT = "vst-matrix/1"
LANES = ("L0", "L1", "L2", "L3", "L4")
FEATURES = ("avx", "amx", "neon", "asimd", "bf16", "sve")
"""How the names of those processor features begin that decide which kernels a CPU build takes."""

VARIABLES = ("OMP_", "KMP_", "MKL_", "TORCH", "VLLM_")
"""How the names of those variables begin that change how a server computes."""

LONGEST = 200
LOG_BYTES = 8 << 20
WORKER_ERROR = re.compile(r"^\(Worker[^\n]*\] (\w+(?:Error|Exception): [^\n]*)", re.MULTILINE)
PLACE = re.compile(r"(?<![\w.])/(?:[\w.-]+/){2,}")
"""A directory of the machine, which means nothing to a reader."""


def matrix(roots: Sequence[Path]) -> dict[str, Any]:
    """The table of all runs in and below ``roots``; ConfigError for a bundle that does not hold, or for none at all."""
    ladders: dict[tuple[str, int], Material] = {}
    diagnoses: dict[tuple[str, int], Material] = {}
    for path in sorted({run.parent for root in roots for run in root.rglob(RUN)}):
        material = _held(path)
        kind = diagnoses if material.verdict.get("lane") == "diagnose" else ladders
        key = _key(material)
        if key in kind:
            raise ConfigError(f"{path} and {kind[key].path} are runs of one kind over {key[0]}, TP {key[1]}: name one")
        kind[key] = material
    if not ladders:
        raise ConfigError("there is no run of the ladder to make a row of")
    if lonely := sorted(set(diagnoses) - set(ladders)):
        raise ConfigError(f"{lonely[0][0]}, TP {lonely[0][1]} was diagnosed and has no run of the ladder")
    rows = [row(ladders[key], diagnoses.get(key)) for key in sorted(ladders, key=lambda key: (key[1], key[0]))]
    return {"format": FORMAT, "environment": _environment(list(ladders.values())), "rows": rows}


def _held(path: Path) -> Material:
    found = verify(path)
    if found.findings or found.incomplete:
        raise ConfigError(f"{path} does not hold: {(*found.findings, found.incomplete)[0]}")
    return read_material(path)


def _key(material: Material) -> tuple[str, int]:
    return str(material.block("inputs", "model").get("declared_name")), workers(material)


def workers(material: Material) -> int:
    """The tensor parallel size of the run's first server."""
    for server in material.block("runtime").get("servers") or ():
        words = list(server.get("argv") or ())
        if "--tensor-parallel-size" in words:
            return int(words[words.index("--tensor-parallel-size") + 1])
    return 1


def _arguments(material: Material) -> list[str]:
    """What the servers were started with beside what every run gives them: ``server.args``."""
    for server in material.block("runtime").get("servers") or ():
        words = [str(word) for word in server.get("argv") or ()]
        if "--max-model-len" in words:
            return words[words.index("--max-model-len") + 2 :]
    return []


def _variables(material: Material) -> dict[str, str]:
    """The variables of ``VARIABLES`` that the first server was started with."""
    for server in material.block("runtime").get("servers") or ():
        found = server.get("environment") or {}
        return {str(key): str(value) for key, value in sorted(found.items()) if key.startswith(VARIABLES)}
    return {}


def row(ladder: Material, diagnosis: Material | None) -> dict[str, Any]:
    """One model with one number of workers."""
    lanes = {str(lane["lane"]): str(lane["cause"] or "pass") for lane in ladder.lanes()}
    failing = _failing(ladder)
    return {
        "model": _key(ladder)[0].removeprefix("zoo-"),
        "tensor_parallel_size": _key(ladder)[1],
        "result": result(ladder),
        "lanes": {name: lanes.get(name, "not reached") for name in LANES},
        "upto": _upto(ladder),
        "server_args": _arguments(ladder),
        "server_env": _variables(ladder),
        "exit_code": ladder.verdict.get("exit_code"),
        "failing": [{"lane": lane, "check": str(check["id"]), "outcome": check["outcome"]} for lane, check in failing],
        "cause": _cause(ladder, str(failing[0][1]["reason"])) if failing else "",
        "covered": ladder.verdict.get("covered"),
        "noise_floor": ladder.verdict.get("noise_floor"),
        "diagnosis": _diagnosed(diagnosis),
        "content": {name: ladder.block("inputs", name).get("content_digest") for name in ("model", "checkpoint")},
        "evidence": {one.path.name: _digests(one) for one in (ladder, diagnosis) if one is not None},
    }


def result(ladder: Material) -> str:
    """``pass``, ``fault`` (the transition), ``infrastructure``, ``error``, ``refused`` or ``inconclusive``.

    A server that could not be started, or that dies or is mute before anything was pushed, is no fault of a transition;
    what breaks after a push is an error whose cause has to be looked for.
    """
    cause = ladder.verdict.get("cause")
    before = {lane for lane, _ in _failing(ladder)} <= {"L0", "L1", "run"}
    if cause in ("error", "fail"):
        return "infrastructure" if before else "fault" if cause == "fail" else "error"
    return "pass" if cause is None else str(cause)


def _failing(material: Material) -> list[tuple[str, Mapping[str, Any]]]:
    """The checks that did not hold, those of the verdict's own cause first."""
    order = ("fail", "error", "refused", "inconclusive")
    found = [(lane, check) for lane, check in material.checks() if check["outcome"] in order]
    return sorted(found, key=lambda one: order.index(str(one[1]["outcome"])))


def _upto(material: Material) -> str:
    reached = [str(lane["lane"]) for lane in material.lanes()]
    return reached[-1] if reached else "none"


def _cause(material: Material, reason: str) -> str:
    """The reason in a few words; where a server went down, the first error that its worker wrote instead."""
    if result(material) != "infrastructure":
        return _short(reason)
    for log in sorted(material.path.glob("server-*.log")):
        with log.open("rb") as file:
            text = file.read(LOG_BYTES).decode("utf-8", "replace")
        if found := WORKER_ERROR.search(text):
            return _short(found.group(1))
    return _short(reason)


def _short(reason: str) -> str:
    line = PLACE.sub("…/", " ".join(reason.split()))
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


def _diagnosed(material: Material | None) -> dict[str, Any] | None:
    stored = read_object(material.path / FILE) if material is not None else None
    if material is None or stored is None:
        return None
    found = Diagnosis.from_json(stored)
    return {
        "mode": found.mode,
        "said": named(found) if found.tensors else str((material.check("diagnose.tensors") or {}).get("reason")),
        "why": list(found.why),
        "parts": list(found.parts),
        "tensors": len(found.tensors),
        "minimal": found.minimal,
        "pushes": found.pushes,
        "reload": _reload(found),
    }


def _reload(found: Diagnosis) -> str:
    look = found.last("reload")
    if look is None:
        return "not tried"
    return "arrives" if look.equal else "the same wrong answers" if found.same_wrong else "other wrong answers"


def _digests(material: Material) -> dict[str, str]:
    digests = {file.name: file.sha256 for file in material.files}
    return {name: digests[name] for name in ("verdict.json", FILE) if name in digests}


def _environment(ladders: Iterable[Material]) -> dict[str, Any]:
    """What all runs have in common; ConfigError where they do not, because a table has one environment."""
    found = [_one_environment(material) for material in ladders]
    for one in found[1:]:
        for key, value in one.items():
            if value not in (None, found[0][key]) and found[0][key] is not None:
                raise ConfigError(f"the runs differ in {key}: {found[0][key]} and {value}; make a table of each")
    known = {key: next((one[key] for one in found if one[key] is not None), None) for key in found[0]}
    dates = sorted(str(material.started)[:10] for material in ladders if material.started)
    if known["cpu"] is None:
        return {**known, "features": None, "machine": None, "dates": sorted(set(dates))}
    # The bundles do not hold the features: they are this machine's, which must be one as the runs had.
    here = ", ".join(cpu_facts()["models"] or ()) or None
    if here != known["cpu"]:
        raise ConfigError(f"the runs were made on {known['cpu']}, this is {here}: make the table on one as theirs")
    return {**known, "features": features(), "machine": platform.machine(), "dates": sorted(set(dates))}


def _one_environment(material: Material) -> dict[str, Any]:
    publisher = material.block("runtime", "publisher")
    return {
        "vllm": publisher.get("vllm"),
        "torch": publisher.get("torch"),
        "python": publisher.get("python"),
        "cpu": ", ".join(material.block("machine", "cpu").get("models") or ()) or None,
        "cores": material.block("machine", "cpu").get("usable"),
    }


def features(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """The vector features of this machine's processor, by the kernel's names."""
    lines = cpuinfo.read_text(errors="replace").splitlines()
    words = {word for line in lines if line.startswith(("flags", "Features")) for word in line.split(":")[-1].split()}
    return sorted(word for word in words if word.startswith(FEATURES))
