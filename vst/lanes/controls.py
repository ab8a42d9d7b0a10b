"""Negative controls: for every tensor family a push of B in which only that family keeps A's bytes must be noticed.

What was noticed is what the oracle can see. The share of tensors and bytes in noticed families is the covered share of
the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vst.checkpoint.config_file import try_config
from vst.checkpoint.families import MTP, families
from vst.checkpoint.manifest import TensorEntry
from vst.lanes import expert_search
from vst.lanes.asking import take
from vst.lanes.drafts import COLD, counted, push_with_draft, tells_apart
from vst.lanes.session import Session
from vst.lanes.transaction import Push
from vst.oracle.compare import Difference, difference
from vst.oracle.record import Record
from vst.transfer.plan import Sent
from vst.verdict import Check, Outcome


def groups(session: Session) -> dict[str, tuple[TensorEntry, ...]]:
    """The tensor families of checkpoint B, by name."""
    manifest = session.manifests["checkpoint"]
    return families(manifest, try_config(manifest.path))


def wanted(session: Session) -> list[str]:
    """The families that ``lane.controls`` asks for."""
    chosen = session.conf.lane.controls
    if chosen == "none":
        return []
    have = list(groups(session))
    return have if chosen == "all" else [name for name in have if name in {part.strip() for part in chosen.split(",")}]


def changed(session: Session, entries: tuple[TensorEntry, ...]) -> tuple[str, ...]:
    """The names of the family's tensors whose bytes differ between A and B: only these can tell."""
    model = session.manifests["model"].by_name
    return tuple(entry.name for entry in entries if model[entry.name].digest != entry.digest)


def run_controls(session: Session, cold_b: Record, sent: list[Sent]) -> list[Check]:
    """Push one control for each family and judge whether it was noticed; fills the session's covered share."""
    checks: list[Check] = []
    noticed: list[str] = []
    unseen: dict[str, list[Record]] = {}
    asked = wanted(session)
    for number, name in enumerate(asked, 1):
        names = changed(session, groups(session)[name])
        if not names:
            checks.append(
                _unobservable(session, name, {"tensors": 0}, "A and B have the same bytes in all its tensors")
            )
            continue
        session.progress.say(f"control {number} of {len(asked)}: B with {name} kept at A ({len(names)} tensors)")
        sent += push_with_draft(session, Push("checkpoint", "model", names, purpose=f"control.{name}"))
        record = take(session, session.need("seat"), f"B with {name} of A", f"control-{name}")
        checks.append(control_check(session, name, names, record, cold_b))
        if checks[-1].outcome is Outcome.PASS:
            noticed += names
        elif name.startswith(expert_search.PREFIX) and session.conf.oracle.search:
            unseen[name] = expert_search.ask(session, f"control-{name}")
    if unseen:
        noticed += _search(session, cold_b, unseen, sent, checks)
    checks += [_unknown(name) for name in unknown(session)]
    checks += [left_out(name) for name in groups(session) if name not in asked]
    session.covered = share(session, noticed)
    return checks


def _search(
    session: Session, cold_b: Record, unseen: dict[str, list[Record]], sent: list[Sent], checks: list[Check]
) -> list[str]:
    """Look for experts with further probes; puts their checks in place and returns the tensors that were noticed."""
    session.progress.say(f"further probes for {len(unseen)} expert families")
    found = expert_search.search(session, cold_b, unseen, sent)
    names: list[str] = []
    for at, check in enumerate(checks):
        name = check.id.removeprefix("control.")
        if name in found:
            checks[at] = found_check(check, name, found[name].number, found[name].apart, session.need("floor"))
            names += changed(session, groups(session)[name])
    return names


def found_check(check: Check, name: str, number: int, apart: Difference, floor: float) -> Check:
    """The control of an expert that only a further probe set noticed."""
    observed = {"tensors": check.observed["tensors"], "noticed": True, **apart.to_json(), "more": number}
    evidence = f"record-{expert_search.file_of(f'control-{name}', number)}.json"
    return Check(check.id, Outcome.PASS, observed, "noticed", floor, evidence=evidence)


def unknown(session: Session) -> list[str]:
    """The names in ``lane.controls`` that are no family of checkpoint B."""
    chosen = session.conf.lane.controls
    if chosen in ("none", "all"):
        return []
    have = groups(session)
    return sorted({part.strip() for part in chosen.split(",")} - set(have) - {""})


def left_out(name: str) -> Check:
    """A family that ``lane.controls`` does not name: not tested, and said so."""
    why = "declared by lane.controls: this family was not asked for, what the probes can see of it was not tested"
    return Check(f"control.{name}", Outcome.NOT_APPLICABLE, None, "noticed", reason=why)


def _unknown(name: str) -> Check:
    reason = f"lane.controls names {name}, and no tensor of B belongs to such a family"
    return Check(f"control.{name}", Outcome.INCONCLUSIVE, None, "noticed", reason=reason)


def is_noticed(apart: Difference, drafted: Mapping[str, Any] | None) -> bool:
    """Whether a control showed itself, in the answers or in what was drafted; an answer without numbers shows nothing.
    """
    return apart.noticed or (tells_apart(drafted) and not apart.non_finite)


def control_check(session: Session, name: str, names: tuple[str, ...], record: Record, cold_b: Record) -> Check:
    """One control from its record; what only drafts is noticed by what the server accepted of its draft."""
    floor = session.need("floor")
    apart = difference(record, cold_b, floor)
    drafted = counted(session, f"control-{name}", COLD) if name == MTP else None
    noticed = is_noticed(apart, drafted)
    observed = {"tensors": len(names), "noticed": noticed, **apart.to_json()}
    observed |= {"drafted": drafted} if drafted is not None else {}
    if not noticed:
        broke = "the server computed no numbers with it at A's values, which says nothing about the probes"
        return _unobservable(
            session, name, observed, broke if apart.non_finite else "the probes answered as if B were whole"
        )
    evidence = f"record-control-{name}.json"
    return Check(f"control.{name}", Outcome.PASS, observed, "noticed", floor, evidence=evidence)


def _unobservable(session: Session, name: str, observed: dict[str, Any], why: str) -> Check:
    reason = f"{name} cannot be observed: {why}"
    if name in session.conf.lane.unobservable:
        declared = f"declared by lane.unobservable; {reason}"
        return Check(f"control.{name}", Outcome.NOT_APPLICABLE, observed, "noticed", session.floor, declared)
    return Check(f"control.{name}", Outcome.INCONCLUSIVE, observed, "noticed", session.floor, reason)


def not_run(session: Session, good: bool) -> list[Check]:
    """What stands for the controls when none was pushed: declared away, or not reached."""
    if session.conf.lane.controls == "none" and good:
        why = "declared by lane.controls=none: what the probes can see was not tested"
        return [Check("control.all", Outcome.NOT_APPLICABLE, None, "every family noticed", reason=why)]
    why = "no control was pushed: an earlier step did not hold"
    return [Check("control.all", Outcome.INCONCLUSIVE, None, "every family noticed", reason=why)]


def share(session: Session, noticed: list[str]) -> dict[str, Any]:
    """The share of tensors and bytes whose change was shown to be visible."""
    manifest = session.manifests["checkpoint"]
    seen = set(noticed)
    count = sum(entry.nbytes for entry in manifest.tensors if entry.name in seen)
    total = manifest.total_bytes
    experts = [names for name, names in groups(session).items() if name.startswith(expert_search.PREFIX)]
    routed = sum(all(entry.name in seen for entry in names) for names in experts)
    return {
        **({"experts": f"{routed} of {len(experts)}"} if experts else {}),
        "tensors": f"{len(seen)} of {len(manifest.tensors)}",
        "tensor_share": round(len(seen) / len(manifest.tensors), 6),
        "bytes": f"{count} of {total}",
        "byte_share": round(count / total, 6) if total else 0.0,
    }
