"""Judging a run again from its stored records, with the lanes' own functions: the same checks must come out.

Only the entry point of ``vst.provenance`` imports this: it stands above the lanes, as the application does. A check
whose observation lies in a record is judged from the record; one whose observation lies in ``verdict.json`` is judged
from that; what can be judged from neither is taken as stated, and counted as such.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import yaml

from vst.checkpoint.families import MTP
from vst.errors import VerificationError
from vst.lanes.contract import finite_check, repeatable_check
from vst.lanes.controls import is_noticed
from vst.lanes.diagnose.found import FILE as DIAGNOSIS
from vst.lanes.expert_search import BEFORE, KEEPS_B, file_of
from vst.lanes.fleet import over_all
from vst.lanes.identity import record_check
from vst.lanes.lifecycle_checks import FILE, IDS, LaneJudge, Settings
from vst.lanes.seats import EACH, each_check, judge_seats
from vst.lanes.transition import arrival_check, cold_check, distinct_check, label_check
from vst.oracle.compare import difference, looks_like, spread
from vst.oracle.record import Record
from vst.provenance.bundle import Bundle
from vst.provenance.composed import RESOLVED
from vst.provenance.links import REFERENCE
from vst.provenance.rejudge_diagnosis import diagnosis_checks
from vst.provenance.rejudge_endurance import EnduranceJudge
from vst.provenance.rejudge_evaluations import EvaluationJudge
from vst.provenance.report import Report
from vst.provenance.rundir import VERDICT
from vst.selftest import verdicts as selftest
from vst.server.plan import parse_all
from vst.server.seats import seat_name, seat_titles, server_titles
from vst.verdict import Check, Outcome

Stored = Mapping[str, Any]
COMPARED = ("outcome", "observed", "tolerance", "reason")


def rejudge(bundle: Bundle, report: Report) -> None:
    """Judge every check that can be judged offline, and compare with what ``verdict.json`` says of it."""
    verdict = bundle.json(VERDICT)
    if verdict is None:
        report.wrong(VERDICT, "is missing: there is nothing to judge again")
        return
    try:
        stored = {(lane["lane"], check["id"]): check for lane in verdict["lanes"] for check in lane["checks"]}
        judge = Judge(bundle)
    except (VerificationError, yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        report.wrong(VERDICT, f"cannot be judged again: {error}")
        return
    for (lane, name), check in stored.items():
        try:
            again = judge.again(lane, name, check)
        except (VerificationError, OSError) as error:
            report.wrong(name, f"cannot be judged again: {error}")
            continue
        except (KeyError, TypeError, ValueError, IndexError) as error:
            report.wrong(name, f"cannot be judged again: what is stored is malformed: {type(error).__name__}: {error}")
            continue
        if again is not None:
            report.rejudged += 1
            _compare(name, check, again, report)
    if judge.floor != verdict.get("noise_floor"):
        report.wrong(VERDICT, f"noise_floor is {verdict.get('noise_floor')}, the records of A give {judge.floor}")
    report.notes.append(
        f"{len(stored) - report.rejudged} of {len(stored)} checks are not about records: taken as stated"
    )


def _compare(name: str, stored: Stored, again: Check, report: Report) -> None:
    found = json.loads(json.dumps(again.to_json()))
    for key in COMPARED:
        if found[key] != stored.get(key):
            said, now = str(stored.get(key))[:200], str(found[key])[:200]
            report.wrong(name, f"{key} is {said!r} in {VERDICT}, judged again from the records it is {now!r}")
            return


class Judge:
    """The records of one run, read when they are needed, and the configuration that it was judged by."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._conf: Mapping[str, Any] = yaml.safe_load(bundle.read(RESOLVED) or b"{}")
        content = self._conf
        self._lane: Mapping[str, Any] = content.get("lane") or {}
        server = content.get("server") or {}
        self._capabilities: Mapping[str, Any] = server.get("capabilities") or {}
        self._evaluations = EvaluationJudge(bundle, content)
        self._titles, self._servers = seat_titles(server), len(server_titles(server))
        self._seats = [self._first_records(seat) for seat in range(len(self._titles))]
        self._firsts = self._seats[0]
        self._spreads = [spread(records) for records in self._seats] if len(self._firsts) > 1 else []
        sure = self._spreads and not any(found.non_finite or found.token_changes for found in self._spreads)
        self.floor = max(found.largest for found in self._spreads) if sure else None

    def again(self, lane: str, name: str, stored: Stored) -> Check | None:
        """The check as it comes out now; None for one that no record speaks of."""
        if name.startswith(("eval.", "draft.", "compare.")) and self._evaluations.judges(name):
            return self._evaluations.again(lane, name, stored)
        if name.startswith("control.") and name != "control.all":
            return self._control(name.removeprefix("control."), stored)
        if lane == "L4" and name in IDS:
            return self._lifecycle[name]
        if name == EACH and lane == "L5":
            return self._evaluations.again(lane, name, stored)
        if name == EACH and stored["observed"] is not None:
            return self._each(lane, stored)
        if lane == "selftest":
            return self._selftest.get(name)
        if lane == "diagnose" and name.startswith("diagnose."):
            return self._diagnosis.get(name)
        if lane == "L6":
            return self._endurance.again(name, stored, self._verdict)
        judges = {
            "oracle.repeatable": self._repeatable,
            "oracle.finite": self._finite,
            "identity.record": self._identity,
            "reference.distinct": self._distinct,
            "transition.to_b": self._to_b,
            "transition.back": self._back,
            "transition.final": self._final,
            "transition.label": self._label,
            "cache.cold": self._cold,
        }
        return judges[name](stored) if name in judges and stored["observed"] is not None else None

    @cached_property
    def _selftest(self) -> Mapping[str, Check]:
        content = self._bundle.json(selftest.FILE)
        if content is None:
            raise VerificationError(f"{selftest.FILE} is missing or damaged")
        return {check.id: check for check in selftest.checks(content)}

    @cached_property
    def _diagnosis(self) -> Mapping[str, Check]:
        return diagnosis_checks(self._bundle.json(DIAGNOSIS), self.record, self._need_floor())

    @cached_property
    def _endurance(self) -> EnduranceJudge:
        states = {"A": self._first, "B": self.record(REFERENCE)}
        return EnduranceJudge(self._bundle, self._conf, self.record, states, self._need_floor())

    @cached_property
    def _verdict(self) -> Mapping[str, Any]:
        return self._bundle.json(VERDICT) or {}

    def record(self, name: str) -> Record:
        content = self._bundle.json(name)
        if content is None:
            raise VerificationError(f"{name} is missing or damaged")
        return Record.from_json(content)

    def _numbered(self, prefix: str) -> list[str]:
        names = [name for name in self._bundle.files if name.startswith(prefix) and name.endswith(".json")]
        numbers = [number for name in names if (number := name[len(prefix) : -len(".json")]).isdigit()]
        return [f"{prefix}{number}.json" for number in sorted(numbers, key=int)]

    def _first_records(self, seat: int) -> list[Record]:
        names = [name.removeprefix("record-").removesuffix(".json") for name in self._numbered("record-model-")]
        return [self.record(f"record-{seat_name(name, seat)}.json") for name in names]

    def _need_floor(self) -> float:
        if self.floor is None:
            raise VerificationError("the records of A give no noise floor")
        return self.floor

    @property
    def _first(self) -> Record:
        if not self._firsts:
            raise VerificationError("record-model-1.json is missing")
        return self._firsts[0]

    def _repeatable(self, stored: Stored) -> Check:
        if not self._spreads:
            raise VerificationError("record-model-1.json or record-model-2.json is missing")
        found = zip(self._titles, self._spreads, strict=True)
        return over_all([(title, repeatable_check(one)) for title, one in found])

    def _finite(self, stored: Stored) -> Check:
        if not self._firsts:
            raise VerificationError("record-model-1.json is missing")
        seats = zip(self._titles, self._seats, strict=True)
        return over_all([(title, finite_check(records)) for title, records in seats])

    def _each(self, lane: str, stored: Stored) -> Check | None:
        """Every seat after every arrival of a lane, from its records."""
        results: list[dict[str, Any]] = []
        arrivals = self._arrivals_of(lane)
        for name, expected, previous in arrivals:
            if len(results) < len(stored["observed"]):
                names = [f"record-{seat_name(name, seat)}.json" for seat in range(len(self._titles))]
                records = [self.record(file) for file in names]
                results += judge_seats(self._titles, records, name, expected, previous, self._need_floor())
        return each_check(results, len(arrivals) * len(self._titles), self.floor)

    def _arrivals_of(self, lane: str) -> list[tuple[str, Record, Record]]:
        """The arrivals of a lane in order, each with what it must equal and what was there before."""
        first = self._first
        if lane == "L1":
            return [("model-1", first, first)]
        if lane == "L2":
            return [(f"identity-{number}", first, first) for number in range(1, int(self._lane["identities"]) + 1)]
        cold = self.record(REFERENCE)
        states = {"checkpoint": (cold, first), "model": (first, cold)}
        cycles = range(1, int(self._lane["cycles"]) + 1)
        names = [(role, f"{role}-cycle-{cycle}") for cycle in cycles for role in ("checkpoint", "model")]
        names.append((str(self._lane["final"]), f"{self._lane['final']}-final"))
        if lane == "L6":
            names = self._endurance.names(str(self._lane["final"]))
        return [(name, *states[role]) for role, name in names]

    def _identity(self, stored: Stored) -> Check:
        count = len(stored["observed"])
        records = [self.record(f"record-identity-{number}.json") for number in range(1, count + 1)]
        moved = [difference(record, self._first, self._need_floor()) for record in records]
        return record_check(moved, int(self._lane["identities"]), self.floor)

    def _distinct(self, stored: Stored) -> Check:
        return distinct_check(self._first, self.record(REFERENCE), self._need_floor())

    def _arrivals(self, stored: Stored, names: list[str], expected: Record, previous: Record) -> list[dict[str, Any]]:
        floor, results = self._need_floor(), []
        for name in names[: len(stored["observed"])]:
            record = self.record(name)
            apart = difference(record, expected, floor)
            like = "" if apart.equal else looks_like(record, expected, previous, floor)
            results.append({**apart.to_json(), "record": name, "looks_like": like})
        return results

    def _cycles(self, role: str) -> list[str]:
        return [f"record-{role}-cycle-{cycle}.json" for cycle in range(1, int(self._lane["cycles"]) + 1)]

    def _to_b(self, stored: Stored) -> Check:
        found = self._arrivals(stored, self._cycles("checkpoint"), self.record(REFERENCE), self._first)
        return arrival_check("transition.to_b", found, int(self._lane["cycles"]), stored["expected"], self.floor)

    def _back(self, stored: Stored) -> Check:
        found = self._arrivals(stored, self._cycles("model"), self._first, self.record(REFERENCE))
        return arrival_check("transition.back", found, int(self._lane["cycles"]), stored["expected"], self.floor)

    def _final(self, stored: Stored) -> Check:
        role, states = str(self._lane["final"]), (self.record(REFERENCE), self._first)
        expected, previous = states if role == "checkpoint" else states[::-1]
        found = self._arrivals(stored, [f"record-{role}-final.json"], expected, previous)
        return arrival_check("transition.final", found, 1, stored["expected"], self.floor)

    def _label(self, stored: Stored) -> Check:
        for flag, equal in zip((one["content"] for one in stored["observed"]), self._flags(), strict=False):
            if flag is not equal:
                raise VerificationError(f"a label is said to stand for its content: {flag}, the records say {equal}")
        return label_check(list(stored["observed"]))

    def _flags(self) -> Iterator[bool]:
        """Whether each arrival in order, to B and back in every cycle and then the last, was the right content: of
        every server, all of whose seats have it.
        """
        ranks = len(self._titles) // self._servers
        for name, expected, _ in self._arrivals_of("L3"):
            if f"record-{name}.json" not in self._bundle.files:
                continue
            names = [f"record-{seat_name(name, seat)}.json" for seat in range(len(self._titles))]
            equal = [difference(self.record(file), expected, self._need_floor()).equal for file in names]
            yield from (all(equal[at : at + ranks]) for at in range(0, len(equal), ranks))

    def _cold(self, stored: Stored) -> Check:
        declared, reason = bool(self._capabilities["cached_tokens"]), self._capabilities.get("reason")
        return cold_check(list(stored["observed"]), declared, reason)

    @cached_property
    def _lifecycle(self) -> dict[str, Check]:
        """The checks of L4 from its files, with the answers compared anew from their records."""
        found = dict(self._bundle.json(FILE) or {})
        found["answers"] = {name: self._answer(one) for name, one in found["answers"].items()}
        lifecycle, capabilities = self._conf["lifecycle"], self._capabilities
        settings = Settings(
            settle_s=float(self._conf["load"]["settle_s"]),
            admission=lifecycle["admission"],
            sleep=capabilities["sleep"],
            sleep_reason=capabilities.get("sleep_reason"),
            chain=parse_all(lifecycle["chain"]),
            floor=self.floor,
        )
        return {check.id: check for check in LaneJudge(found, settings, self._bytes).checks()}

    def _bytes(self, name: str) -> bytes | None:
        return self._bundle.read(name) if name in self._bundle.files else None

    def _answer(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        states = {"checkpoint": self.record(REFERENCE), "model": self._first}
        wanted, record, floor = states.pop(stored["holds"]), self.record(stored["record"]), self._need_floor()
        apart = difference(record, wanted, floor)
        like = "" if apart.equal else looks_like(record, wanted, next(iter(states.values())), floor)
        return {**apart.to_json(), "record": stored["record"], "holds": stored["holds"], "looks_like": like}

    def _control(self, family: str, stored: Stored) -> Check | None:
        name, whole, more = f"record-control-{family}.json", REFERENCE, (stored["observed"] or {}).get("more")
        if more is not None:
            name = f"record-{file_of(f'control-{family}', more)}.json"
            whole = f"record-{file_of(KEEPS_B, more)}.json"
            # B's own answers to further probes stand for a cold server's only where it was seen to equal one.
            if not difference(self.record(f"record-{BEFORE}.json"), self.record(REFERENCE), self._need_floor()).equal:
                raise VerificationError(f"record-{BEFORE}.json is not {REFERENCE}: nothing follows from further probes")
        if name not in self._bundle.files and stored["evidence"] is None:
            return None
        apart = difference(self.record(name), self.record(whole), self._need_floor())
        # What was drafted is in no other file: counted when the record was taken, and told by the check.
        drafted = stored["observed"].get("drafted") if family == MTP else None
        noticed = is_noticed(apart, drafted)
        observed = {"tensors": stored["observed"]["tensors"], "noticed": noticed, **apart.to_json()}
        observed |= {"more": more} if more is not None else {}
        observed |= {"drafted": drafted} if drafted is not None else {}
        unseen = Outcome.NOT_APPLICABLE if family in (self._lane.get("unobservable") or ()) else Outcome.INCONCLUSIVE
        outcome = Outcome.PASS if noticed else unseen
        return Check(f"control.{family}", outcome, observed, stored["expected"], self.floor, stored["reason"])
