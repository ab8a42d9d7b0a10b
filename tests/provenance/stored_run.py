"""A ladder up to L3 as it lies in a run directory, made by the lanes' own judging functions from made-up records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from vst.lanes.contract import finite_check, repeatable_check
from vst.lanes.identity import record_check
from vst.lanes.transition import arrival_check, cold_check, label_check
from vst.oracle.compare import difference, looks_like, spread
from vst.oracle.record import Answer, Record
from vst.provenance.composed import RESOLVED, resolved_digest
from vst.provenance.links import use_reference
from vst.provenance.rundir import Draw, RunDir
from vst.provenance.sidecar import Request
from vst.verdict import Check, LaneVerdict, Outcome, Verdict

PROBES = "sha256:" + "1" * 64
CYCLES, IDENTITIES = 2, 2
FAMILIES = ("embedding", "norm", "head")


def answer(value: float) -> Answer:
    """One answer whose log-probabilities follow from ``value``."""
    top = (((7, value), (8, value - 1.0)), ((9, value), (3, value - 1.0)))
    return Answer((5, 6, 7), (value, value - 0.5), (7, 9), (value, value), top, 0)


def record(claim: str, value: float) -> Record:
    return Record(claim, PROBES, (answer(value), answer(value - 0.25)))


class StoredRun:
    """Builds the files; ``spoilt`` are record files whose server answered something else."""

    def __init__(self, path: Path, spoilt: dict[str, float] | None = None, noise: float = 0.0) -> None:
        self.spoilt = spoilt or {}
        lane = {"name": "ladder", "upto": "L3", "final": "checkpoint", "identities": IDENTITIES, "cycles": CYCLES}
        capabilities = {"cached_tokens": True, "weight_digests": False}
        kept = OmegaConf.create({"lane": lane, "server": {"capabilities": capabilities}})
        self.run = RunDir(path, Request(("vst",), (), resolved_digest(kept)))
        self.run.evidence.source = self.run.evidence.machine = {"unknown": {}}
        self.run.write_bytes(RESOLVED, OmegaConf.to_yaml(kept, sort_keys=True).encode())
        self.a, self.b = record("A", -1.0), record("B", -3.0)
        self.floor: float | None = None
        self.noise = noise

    def keep(self, name: str, found: Record) -> Record:
        found = record(found.claim, self.spoilt[name]) if name in self.spoilt else found
        self.run.write(f"record-{name}.json", {**found.to_json(), "noise_floor": self.floor})
        return found

    def arrive(self, name: str, expected: Record, previous: Record) -> dict[str, Any]:
        found = self.keep(name, expected)
        apart = difference(found, expected, self.floor or 0.0)
        like = "" if apart.equal else looks_like(found, expected, previous, self.floor or 0.0)
        return {**apart.to_json(), "record": f"record-{name}.json", "looks_like": like}

    def lanes(self) -> list[LaneVerdict]:
        noisy = replace(self.a, answers=tuple(answer(v + self.noise) for v in (-1.0, -1.25)))
        firsts = [self.keep("model-1", self.a), self.keep("model-2", noisy)]
        found = spread(firsts)
        self.floor = found.largest
        l1 = LaneVerdict("L1", (repeatable_check(found), finite_check(firsts)))
        moved = [
            difference(self.keep(f"identity-{number}", self.a), self.a, self.floor)
            for number in range(1, IDENTITIES + 1)
        ]
        return [l1, LaneVerdict("L2", (record_check(moved, IDENTITIES, self.floor),)), self._transition()]

    def _transition(self) -> LaneVerdict:
        use_reference(self.run, {**self.b.to_json(), "noise_floor": None}, None)
        distinct = difference(self.a, self.b, self.floor or 0.0)
        to_b, back, labels = [], [], []
        for cycle in range(1, CYCLES + 1):
            to_b.append(self.arrive(f"checkpoint-cycle-{cycle}", self.b, self.a))
            back.append(self.arrive(f"model-cycle-{cycle}", self.a, self.b))
        final = [self.arrive("checkpoint-final", self.b, self.a)]
        for number, one in enumerate([*(x for pair in zip(to_b, back, strict=True) for x in pair), *final], 1):
            labels.append({"expected": f"vst-{number}", "observed": f"vst-{number}", "content": one["equal"]})
        cold = [{"before": 16, "after": 0, "prefix_caching": True}]
        return LaneVerdict(
            "L3",
            (
                Check("reference.distinct", Outcome.PASS, distinct.to_json(), "A and B differ", self.floor),
                arrival_check("transition.to_b", to_b, CYCLES, "equals the cold reference of B", self.floor),
                arrival_check("transition.back", back, CYCLES, "equals the first record of A", self.floor),
                label_check(labels),
                cold_check(cold, True, None),
                *(self._control(family) for family in FAMILIES),
                arrival_check("transition.final", final, 1, "ends at checkpoint", self.floor),
            ),
        )

    def _control(self, family: str) -> Check:
        name = f"control-{family}"
        apart = difference(self.keep(name, record(f"B with {family} of A", -2.0)), self.b, self.floor or 0.0)
        observed = {"tensors": 3, "noticed": not apart.equal, **apart.to_json()}
        outcome = Outcome.INCONCLUSIVE if apart.equal else Outcome.PASS
        reason = f"{family} cannot be observed: the probes answered as if B were whole" if apart.equal else ""
        evidence = None if apart.equal else f"record-{name}.json"
        return Check(f"control.{family}", outcome, observed, "noticed", self.floor, reason, evidence)

    def finish(self, change: Any = None, draw: Draw | None = None) -> Path:
        """Write everything; ``change`` may edit the verdict before it is sealed, as a lying tool would."""
        verdict = Verdict("ladder", self.lanes())
        server = {"state": "serving", "holds": "checkpoint", "left": "stopped"}
        content = {
            "format": "vst-verdict/1", "lane": "ladder", "verdict": verdict.word,
            "cause": verdict.cause.value if verdict.cause else None, "interrupted": False,
            "exit_code": verdict.exit_code, "noise_floor": self.floor, "covered": None, "server": server,
            "lanes": [lane.to_json() for lane in verdict.lanes],
        }  # fmt: skip
        if change is not None:
            change(content)
        outcome = {key: content[key] for key in ("verdict", "exit_code", "server")}
        self.run.finish(content, {**outcome, "attempt": 1, "error": None}, draw)
        return self.run.path
