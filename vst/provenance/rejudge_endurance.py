"""Judging lane L6 again from what it left: records, logs of loads, events, and ``endurance.json``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vst.errors import VerificationError
from vst.lanes.endurance.arrival import Arrival
from vst.lanes.endurance.checks import FILE, LEARNING, clean_check, cycles_check, final_check, memory_check, samples
from vst.lanes.endurance.recovery import Recovered, recovery_check
from vst.lanes.faults.aftermath import Aftermath, fault_check, posts
from vst.lanes.seats import judge_seats
from vst.load.expected import Expected
from vst.load.findings import Policy
from vst.load.judge import LoadReport, judge
from vst.load.log import read_log
from vst.oracle.record import Record
from vst.provenance.bundle import Bundle
from vst.provenance.rundir import EVENTS
from vst.server.seats import seat_name, seat_titles
from vst.verdict import Check, Outcome

Stored = Mapping[str, Any]


class EnduranceJudge:
    """One stored run of the lane; ``states`` are the records that A and B must equal, ``floor`` the noise floor."""

    def __init__(
        self,
        bundle: Bundle,
        conf: Mapping[str, Any],
        record: Callable[[str], Record],
        states: Mapping[str, Record],
        floor: float,
    ) -> None:
        self._bundle, self._conf, self._record = bundle, conf, record
        self._states, self._floor = states, floor
        self._titles = seat_titles(conf.get("server") or {})
        self._cycles = int(conf["endurance"]["cycles"])

    def again(self, name: str, stored: Stored, verdict: Mapping[str, Any]) -> Check | None:
        """The check as it comes out now; None for one that nothing but the verdict speaks of."""
        if name.startswith("fault."):
            return self._fault(name.removeprefix("fault."), stored)
        judges = {"cycles.all": self._all, "load.clean": self._load, "memory.trend": self._memory}
        if name in judges:
            return judges[name]()
        if name == "cycles.final":
            return self._final()
        return self._recovery(stored, verdict) if name == "recovery.full_push" else None

    def names(self, final: str) -> list[tuple[str, str]]:
        """Role and name of every change of the lane in order, the last one included."""
        steps = [self._step(place) for place in range(len(LEARNING) + 2 * self._cycles)]
        return [*((role, name) for _, role, name in steps), (final, "endurance-final")]

    @property
    def _written(self) -> Mapping[str, Any]:
        content = self._bundle.json(FILE)
        if content is None:
            raise VerificationError(f"{FILE} is missing or damaged")
        return content

    def _seats(self, name: str, role: str) -> tuple[dict[str, Any], ...]:
        expected, previous = (self._states[one] for one in ("BA" if role == "checkpoint" else "AB"))
        files = [f"record-{seat_name(name, seat)}.json" for seat in range(len(self._titles))]
        records = [self._record(file) for file in files]
        return tuple(judge_seats(self._titles, records, name, expected, previous, self._floor))

    def _arrivals(self, loads: bool = False) -> list[Arrival]:
        """The changes that were made, in order, as far as their records are there."""
        found = []
        for place, one in enumerate(self._written["arrivals"]):
            cycle, role, name = self._step(place)
            if (one["cycle"], one["role"], one["name"]) != (cycle, role, name):
                raise VerificationError(f"{FILE}: change {place + 1} is {one['name']!r}, expected {name!r}")
            reports = self._reports(name) if loads and cycle else ()
            found.append(Arrival(cycle, role, name, self._seats(name, role), reports, {}, one["memory"]))
        return found

    def _step(self, place: int) -> tuple[int, str, str]:
        if place < len(LEARNING):
            return 0, LEARNING[place], f"endurance-learn-{place + 1}"
        cycle, second = divmod(place - len(LEARNING), 2)
        role = "model" if second else "checkpoint"
        return cycle + 1, role, f"endurance-{cycle + 1}-{role}"

    def _reports(self, name: str) -> tuple[LoadReport, ...]:
        load = self._conf["load"]
        policy = Policy(
            tuple(load.get("refused") or ()), bool(load["aborted"]), bool(load["spanning"]), float(load["settle_s"])
        )
        expected = {claim: self._learned(claim) for claim in "AB"}
        files = [f"load-{seat_name(name, seat)}.jsonl" for seat in range(len(self._titles))]
        return tuple(judge(read_log(self._read(file)), expected, policy) for file in files)

    def _learned(self, claim: str) -> Expected:
        content = self._bundle.json(f"load-endurance-{claim.lower()}-expected.json")
        if content is None:
            raise VerificationError(f"load-endurance-{claim.lower()}-expected.json is missing or damaged")
        return Expected.from_json(content)

    def _read(self, file: str) -> bytes:
        data = self._bundle.read(file)
        if not data:
            raise VerificationError(f"{file} is missing")
        return data

    def _all(self) -> Check:
        return cycles_check(self._arrivals(), self._cycles, self._floor)

    def _load(self) -> Check:
        return clean_check(self._arrivals(loads=True), self._cycles)

    def _memory(self) -> Check:
        memory = self._written["memory"]
        found = samples(self._arrivals())
        if list(memory["bytes"]) != found:
            raise VerificationError(f"{FILE}: memory.bytes are not those of the changes")
        return memory_check(found, int(memory["allowed"]), str(memory["source"]))

    def _final(self) -> Check:
        final = str(self._conf["lane"]["final"])
        name = "endurance-final"
        there = f"record-{name}.json" in self._bundle.files
        return final_check(self._seats(name, final) if there else (), final, self._floor)

    def _fault(self, name: str, stored: Stored) -> Check | None:
        if stored["observed"] is None:
            return None
        seen = Aftermath.from_json(dict(stored["observed"]))
        calls = posts(self._read(EVENTS).decode().splitlines(), name)
        if calls != list(seen.posts):
            raise VerificationError(f"the calls of {name} in {EVENTS} are {calls}, stated are {list(seen.posts)}")
        if seen.file is not None and (self._bundle.json(seen.file) or {}).get("outcome") != "failed":
            raise VerificationError(f"{seen.file} does not tell of a failed transaction")
        return fault_check(name, seen)

    def _recovery(self, stored: Stored, verdict: Mapping[str, Any]) -> Check:
        found = [self._recovered(one) for one in stored["observed"] or ()]
        return recovery_check(found, made(verdict))

    def _recovered(self, one: Stored) -> Recovered:
        seats = self._seats(f"recovered-{one['fault']}", "model") if one["seats"] else ()
        return Recovered(str(one["fault"]), str(one["way"]), str(one["reason"]), seats)


def made(verdict: Mapping[str, Any]) -> int:
    """How many faults were to be made: those that are not declared away."""
    checks: Sequence[Stored] = [check for lane in verdict["lanes"] for check in lane["checks"]]
    faults = [check for check in checks if check["id"].startswith("fault.")]
    return sum(check["outcome"] != Outcome.NOT_APPLICABLE.value for check in faults)
