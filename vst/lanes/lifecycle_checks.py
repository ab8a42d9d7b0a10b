"""The checks of lane L4, judged from the files of its run alone: by the lane itself, and again by whoever verifies it.

``lifecycle-found.json`` says what was seen, the loads and chains lie beside it. Pure functions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vst.lanes import pause_checks, sleep_checks
from vst.lanes.memory import memory_check, nap_of
from vst.load.expected import Expected
from vst.load.findings import Policy
from vst.load.judge import judge, load_check
from vst.load.log import LoadLog, read_log
from vst.server.plan import Step, parse_all
from vst.verdict import Check, Outcome

FORMAT = "vst-lifecycle-found/1"
FILE = "lifecycle-found.json"
PAUSES: Mapping[str, Step] = {
    "keep": Step("pause", ("keep",)),
    "keep-cache": Step("pause", ("keep", "keep_cache")),
    "abort": Step("pause", ("abort",)),
    "wait": Step("pause", ("wait",)),
}
"""The pauses by the name of their load. Where keep empties the caches, the work that it froze is computed again."""

ORDERS: Mapping[str, tuple[Step, ...]] = {
    "weights-first": (Step("wake", ("weights",)), Step("wake", ("kv_cache",))),
    "cache-first": (Step("wake", ("kv_cache",)), Step("wake", ("weights",))),
    "at-once": (Step("wake"),),
}
"""The wake orders after a sleep of level 1."""

TOO_EARLY = parse_all(["wake", "wake(kv_cache)", "resume", "ask", "push"])
"""What must be refused after a sleep of level 2."""

STILL_TOO_EARLY = parse_all(["wake", "wake(kv_cache)", "resume", "ask"])
"""What must be refused when the weights are awake and were not pushed."""

REPEATED = ("pause(keep)", "reset", "resume")
REPEATED_ASLEEP = ("sleep(1)", "wake")
SLEEPS = ("sleep.state", "sleep.memory", "wake.orders", "wake.level2_needs_push", "update.asleep_refused")
IDS = ("pause.keep", "pause.abort", "pause.wait", "pause.admission", *SLEEPS, "lifecycle.order", "lifecycle.idempotent")


@dataclass(frozen=True)
class Settings:
    """What the configuration declares, and the noise floor of the run."""

    settle_s: float
    admission: Mapping[str, str]
    sleep: str
    sleep_reason: str | None
    chain: tuple[Step, ...]
    floor: float | None

    @property
    def chain_is_possible(self) -> bool:
        """Whether a server that offers no sleep can run the chain."""
        return self.sleep != "none" or all(step.verb not in ("sleep", "wake") for step in self.chain)

    @property
    def chain_aborts(self) -> bool:
        return any(step.verb in ("abort", "sleep") or step.args[:1] == ("abort",) for step in self.chain)


class LaneJudge:
    """All checks of one L4, from ``found`` (the content of ``lifecycle-found.json``) and ``read``, which gives the
    bytes of a file of the run, None for one that is not there.
    """

    def __init__(self, found: Mapping[str, Any], settings: Settings, read: Callable[[str], bytes | None]) -> None:
        self._found, self._settings, self._read = found, settings, read
        self._answers: Mapping[str, Mapping[str, Any]] = found["answers"]

    def checks(self) -> list[Check]:
        """One check for each of ``IDS``; what was not reached names the one that did not hold."""
        judged = {**self._pauses(), **self._sleeps(), **self._chains()}
        return [self._blamed(id, judged.get(id)) for id in IDS]

    def _blamed(self, id: str, check: Check | None) -> Check:
        broken = self._found["broken"]
        if broken and broken["check"] == id and (check is None or check.outcome is not Outcome.FAIL):
            observed = check.observed if check else None
            return Check(id, Outcome(broken["outcome"]), observed, "every step held", reason=broken["reason"])
        if check is not None:
            return check
        name = broken["check"] if broken else "an earlier step"
        return Check(id, Outcome.INCONCLUSIVE, None, "looked at", reason=f"not reached: {name} did not hold")

    def _log(self, name: str) -> LoadLog | None:
        data = self._read(f"load-{name}.jsonl")
        return read_log(data) if data is not None else None

    @cached_property
    def _expected(self) -> dict[str, Expected]:
        """What each state answers under load, as far as it was learned."""
        files = {claim: self._read(f"load-known-{claim}-expected.json") for claim in ("A", "B")}
        return {claim: Expected.from_json(json.loads(data)) for claim, data in files.items() if data is not None}

    def _policy(self, mode: str, aborted: bool) -> Policy:
        return pause_checks.policy_of(self._settings.admission[mode], aborted, self._settings.settle_s)

    def _pauses(self) -> dict[str, Check]:
        """Each pause whose load ended in order is judged; of another the step that failed is the finding."""
        logs = {name: log for name in PAUSES if (log := self._log(f"pause-{name}")) is not None and log.sent}
        kept = {name: log for name, log in logs.items() if name.startswith("keep")}
        checks, expected = {}, self._expected
        if len(kept) == 2:
            checks["pause.keep"] = pause_checks.keep_check(kept, expected, self._policy("keep", False))
        if "abort" in logs:
            checks["pause.abort"] = pause_checks.abort_check(logs["abort"], expected, self._policy("abort", True))
        if "wait" in logs:
            checks["pause.wait"] = pause_checks.wait_check(logs["wait"], expected, self._policy("wait", False))
        if self._knocks:
            wanted = len(PAUSES) + (0 if self._settings.sleep == "none" else len(ORDERS) + 1)
            admission = pause_checks.admission_check(self._knocks, self._settings.admission, wanted)
            checks["pause.admission"] = admission
        return checks

    @cached_property
    def _knocks(self) -> dict[str, dict[str, Any]]:
        """What became of each request that knocked, where what it should be answered is known."""
        names = [*PAUSES, *(f"asleep-1-{order}" for order in ORDERS), "asleep-2"]
        logs = {name: log for name in names if (log := self._log(f"knock-{name}")) is not None}
        known = {name: log for name, log in logs.items() if log.sent and _claims(log) <= set(self._expected)}
        return {name: pause_checks.knock(log, self._expected, self._settings.settle_s) for name, log in known.items()}

    def _sleeps(self) -> dict[str, Check]:
        found, settings = self._found, self._settings
        if settings.sleep == "none":
            why = f"declared by server.capabilities.sleep=none: {settings.sleep_reason or 'no reason given'}"
            return {id: Check(id, Outcome.NOT_APPLICABLE, None, "a sleep", reason=why) for id in SLEEPS}
        memory = found["memory"]
        if memory is None:
            return {}
        naps = [nap_of(one) for one in memory["naps"]]
        chains = {name: self._chain(name) for name in found["chains"] if name.startswith("sleep-")}
        orders = {name: self._answers[name] for name in ORDERS if name in self._answers}
        return {
            "sleep.state": sleep_checks.state_check(chains, self._knocks),
            "sleep.memory": memory_check(
                naps, memory["source"], memory["why_not"], memory["weights"], settings.sleep, settings.sleep_reason
            ),
            "wake.orders": sleep_checks.orders_check(orders, tuple(ORDERS), settings.floor),
            "wake.level2_needs_push": self._refusals("wake.level2_needs_push", found["needs_push"]),
            "update.asleep_refused": self._refusals("update.asleep_refused", found["asleep_refused"]),
        }

    def _refusals(self, id: str, seen: Sequence[Mapping[str, Any]]) -> Check:
        wanted, expected = {
            "wake.level2_needs_push": (len(TOO_EARLY + STILL_TOO_EARLY), "only a push leads on"),
            "update.asleep_refused": (len(ORDERS), "no push into a sleeping server, and no start sent"),
        }[id]  # fmt: skip
        return sleep_checks.refusals_check(id, seen, wanted, expected)

    def _chain(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self._read(f"chain-{name}.json") or b"{}"))

    def _chains(self) -> dict[str, Check]:
        checks, settings = {}, self._settings
        if "order" in self._answers:
            checks["lifecycle.order"] = sleep_checks.order_check(
                self._chain("order"), self._answers["order"], self._order_load(), settings.floor
            )
        elif not settings.chain_is_possible:
            why = "declared by server.capabilities.sleep=none: the chain sleeps; lifecycle=keep does not"
            checks["lifecycle.order"] = Check("lifecycle.order", Outcome.NOT_APPLICABLE, None, "a chain", reason=why)
        if "idempotent" in self._answers:
            wanted = REPEATED + (() if settings.sleep == "none" else REPEATED_ASLEEP)
            checks["lifecycle.idempotent"] = sleep_checks.idempotent_check(
                self._chain("idempotent"), wanted, self._answers["idempotent"], settings.floor
            )
        return checks

    def _order_load(self) -> Check:
        policy = self._policy("asleep", self._settings.chain_aborts)
        log = self._log("order")
        if log is None:
            return Check("lifecycle.order", Outcome.INCONCLUSIVE, reason="the log of the load is not there")
        report = judge(log, self._expected, policy)
        return load_check("lifecycle.order", report, [str(self._found["ends_at"])], "load-order.jsonl")


def _claims(log: LoadLog) -> set[str]:
    """The states that the marks of a log speak of."""
    return {str(mark["claim"]) for mark in log.marks if "claim" in mark}
