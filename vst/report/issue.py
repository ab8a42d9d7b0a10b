"""``python -m vst.report issue RUN_DIR``: a fault of the server as a report for vLLM's developers, ready to paste.

It is written from a diagnosis alone, and only where vLLM's own ``reload_weights`` from disk showed the fault too: then
a reproduction needs vLLM and curl and nothing of ours. Nothing is sent anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vst.checkpoint.config_file import try_config
from vst.checkpoint.zoo.catalogue import CATALOGUE
from vst.errors import ConfigError
from vst.harmless import visible
from vst.lanes.diagnose.found import FILE, Diagnosis, Look
from vst.report.material import Material, read_material, read_object
from vst.report.matrix import workers
from vst.report.reproduction import TOKENS, Reproduction, script

if TYPE_CHECKING:
    from jinja2 import Template

ZOO_NAME = "zoo-"
SHOWN = 12


def issue(path: Path) -> str:
    """The report as Markdown; ConfigError for a run that shows no fault that vLLM alone can show."""
    material = read_material(path)
    found = _diagnosis(path)
    shown = found.last("identity" if found.mode == "identity" else "to_b")
    if shown is None:
        raise ConfigError(f"{path}: the diagnosis names a fault and has no push that shows it")
    made = reproduction(material, found)
    return _template().render(
        title=title(material, found),
        environment=_environment(material),
        script=Script(script(made)),
        identity=found.mode == "identity",
        found=found,
        tensors=found.tensors[:SHOWN],
        omitted=max(0, len(found.tensors) - SHOWN),
        push=shown,
        reload=found.last("reload"),
        looks=[_line(look) for look in found.looks],
        evidence=_evidence(material, path),
        inputs=[(name, material.block("inputs", role)) for name, role in (("A", "model"), ("B", "checkpoint"))],
    )


class Script(str):
    """Text that is put into the report as it stands: lines of ours, with nothing of a run's but numbers and digests."""


def _template() -> Template:
    """Markdown is not escaped; what comes from a run is made visible and kept to its line."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("vst.report"),
        autoescape=False,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, (Script, int, float)) else _one_line(value),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return made.get_template("issue.md.j2")


def _one_line(value: Any) -> str:
    """Text of a run in Markdown: it neither ends its line nor the code that it is set in."""
    return visible(value).replace("\n", "\\n").replace("`", "'")


def _diagnosis(path: Path) -> Diagnosis:
    stored = read_object(path / FILE)
    if stored is None:
        raise ConfigError(f"{path} holds no {FILE}: run lane=diagnose on this model first")
    try:
        found = Diagnosis.from_json(stored)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path / FILE} is no diagnosis: {error}") from error
    if found.mode is None:
        raise ConfigError(f"{path}: nothing was found to be wrong with this server, so there is nothing to report")
    reload = found.last("reload")
    if reload is None or reload.equal:
        why = "arrived" if reload is not None else f"was not judged ({found.reload or found.stopped})"
        raise ConfigError(f"{path}: reload_weights from disk {why}: vLLM and curl alone cannot show this fault")
    return found


def architecture(material: Material) -> str:
    """The class that vLLM serves, by checkpoint A's config.json; the declared name where the file is gone."""
    config = try_config(Path(str(material.block("inputs", "model").get("path")))) or {}
    names = config.get("architectures")
    declared = str(material.block("inputs", "model").get("declared_name"))
    return str(names[0]) if isinstance(names, list) and names else declared


def title(material: Material, found: Diagnosis) -> str:
    """What is wrong, in a line."""
    what = f"the {' and the '.join(found.why)}" if found.why else ", ".join(found.parts[:2])
    named = f" ({what})" if what else ""
    if found.mode == "identity":
        return f"[Bug]: {architecture(material)}: reload_weights of the same checkpoint changes the answers{named}"
    return f"[Bug]: {architecture(material)}: answers after reload_weights are not those of a fresh server{named}"


def reproduction(material: Material, found: Diagnosis) -> Reproduction:
    """What the script needs: how the checkpoints come to be, the serving flags, and a prompt that shows the fault."""
    name = str(material.block("inputs", "model").get("declared_name"))
    zoo = CATALOGUE.get(name.removeprefix(ZOO_NAME)) if name.startswith(ZOO_NAME) else None
    digests = {one: str(material.block("inputs", one).get("content_digest")) for one in ("model", "checkpoint")}
    reload = found.last("reload")
    return Reproduction(
        architecture=zoo if zoo is not None and zoo.quantised is None else None,
        digests=(digests["model"], digests["checkpoint"]),
        identity=found.mode == "identity",
        prompt=_prompt(material, reload, made=zoo is not None and zoo.quantised is None),
        parallel=workers(material),
    )


def _prompt(material: Material, reload: Look | None, made: bool) -> tuple[int, ...]:
    """The first probe at which the reload was wrong; the longest for a model that is ``made`` with other weights."""
    record = material.records.get(reload.record) if reload is not None else None
    first = (reload.apart.get("first") if reload is not None else None) or {}
    if record is None:
        raise ConfigError("the record of the reload is missing, so there is no prompt to show the fault with")
    if made:
        return tuple(max((answer.prompt for answer in record.answers), key=len)[:TOKENS])
    prompt = record.answers[int(first.get("probe", 0))].prompt
    return tuple(prompt[: max(TOKENS, int(first.get("position", 0)) + 1)])


def _environment(material: Material) -> Mapping[str, Any]:
    machine, publisher = material.block("machine"), material.block("runtime", "publisher")
    version = (material.check("server.dialect") or {}).get("observed")
    return {
        "vLLM": version,
        "torch": publisher.get("torch"),
        "Python": publisher.get("python"),
        "system": machine.get("system"),
        "CPU": ", ".join(material.block("machine", "cpu").get("models") or ()) or None,
        "GPUs": json.dumps(machine.get("gpus")) if machine.get("gpus") else "none",
        "tensor parallel size": workers(material),
    }


def _line(look: Look) -> str:
    words = {
        "identity": "A pushed over A",
        "to_b": "B pushed over A",
        "back": "A pushed back",
        "part": f"A pushed over A without {', '.join(look.left_out) or 'anything left out'}",
        "kept": f"B pushed with {', '.join(look.left_out)} kept at A, against a fresh server on just that",
        "restart": "a fresh server on A",
        "reload": "reload_weights from disk",
    }
    said = "equal" if look.equal else f"{look.apart['differing']} of {look.apart['positions']} positions differ"
    return f"{words[look.what]}: {said}"


def _evidence(material: Material, path: Path) -> list[tuple[str, str]]:
    wanted = ("verdict.json", FILE, "run.json")
    digests = {file.name: file.sha256 for file in material.files}
    return [(name, digests[name]) for name in wanted if name in digests]
