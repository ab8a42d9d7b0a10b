"""The search on the bench: which of the two pushes breaks, and the smallest set of tensors that it breaks for."""

from __future__ import annotations

from collections.abc import Callable

from vst.checkpoint.config_file import try_config
from vst.errors import TransportError
from vst.lanes.diagnose.bench import COLD_B, FIRST, Bench
from vst.lanes.diagnose.found import Diagnosis
from vst.lanes.diagnose.narrow import Good, narrow
from vst.lanes.diagnose.parts import Parts, families_of, holding, kinds, modules, suspects, tensors
from vst.lanes.session import Session
from vst.lanes.transaction import Push
from vst.server.client import HttpFailure


def search(session: Session, bench: Bench, found: Diagnosis) -> None:
    """Push A over A, then B; narrow down the first that breaks, and see whether a reload from disk breaks too.

    A server that dies of the push of a part ends the search with its error; the reload is tried before.
    """
    model, checkpoint = session.manifests["model"], session.manifests["checkpoint"]
    if not bench.push("identity", Push("model", purpose="diagnose.identity"), FIRST, (), len(model.tensors)).equal:
        found.mode = "identity"
        dead = _narrowed(bench, found, lambda: _identity(session, bench, found))
        _reload(bench, found, "model", "identity", FIRST)
    elif not bench.push("to_b", Push("checkpoint", purpose="diagnose.to_b"), COLD_B, (), len(checkpoint.tensors)).equal:
        found.mode = "transition"
        dead = _narrowed(bench, found, lambda: _transition(session, bench, found))
        _reload(bench, found, "checkpoint", "to_b", COLD_B)
    else:
        return
    if dead is not None:
        raise dead


def _narrowed(bench: Bench, found: Diagnosis, narrowing: Callable[[], None]) -> TransportError | None:
    """What ended the narrowing before it was through: the server's death, after which a fresh one stands on A."""
    try:
        narrowing()
    except TransportError as error:
        found.stopped = f"the push of a part ended the search: {error}"
        bench.restart()
        return error
    return None


def _identity(session: Session, bench: Bench, found: Diagnosis) -> None:
    parts = modules(session.manifests["model"].by_name)
    _narrow(session, found, parts, _changes_nothing(bench, parts))


def _transition(session: Session, bench: Bench, found: Diagnosis) -> None:
    """Families first, then the same tensor of all layers within those that remained."""
    model, checkpoint = session.manifests["model"], session.manifests["checkpoint"]
    differing = [name for name, entry in checkpoint.by_name.items() if entry.digest != model.by_name[name].digest]
    by_family = families_of(differing, try_config(model.path) or {})
    _narrow(session, found, by_family, _arrives(bench, by_family))
    if found.minimal and len(within := kinds(found.tensors)) > 1:
        _narrow(session, found, within, _arrives(bench, within))


def _narrow(session: Session, found: Diagnosis, parts: Parts, good: Good) -> None:
    every = {name for each in parts.values() for name in each}
    doubted = suspects(session.manifests["model"].by_name, try_config(session.manifests["model"].path) or {})
    first = holding(parts, (name for each in doubted.values() for name in each))
    result = narrow(list(parts), first, good)
    found.parts, found.minimal = result.parts, result.minimal
    found.tensors = tensors(parts, result.parts)
    found.why = tuple(why for why, each in doubted.items() if every.intersection(each).intersection(found.tensors))
    if not result.minimal:
        found.stopped = f"stopped after lane.pushes={found.limit}"


def _changes_nothing(bench: Bench, parts: Parts) -> Good:
    """A over A without the parts that are left out: a partial push, which leaves these as the server has them."""

    def good(left_out: tuple[str, ...]) -> bool:
        if not bench.right:
            bench.restart()
        rest = tensors(parts, [part for part in parts if part not in left_out])
        push = Push("model", only=rest, purpose="diagnose.part")
        return not rest or bench.push("part", push, FIRST, left_out, len(rest)).equal

    return good


def _arrives(bench: Bench, parts: Parts) -> Good:
    """B with the parts that are left out at A's values, compared with a server that was started cold on just that."""

    def good(left_out: tuple[str, ...]) -> bool:
        kept = tensors(parts, left_out)
        bench.expect_room()
        if not bench.right:
            bench.to_a()
        expected = bench.cold_mixture(kept)
        push = Push("checkpoint", "model", kept, purpose="diagnose.kept")
        return bench.push("kept", push, expected, left_out, len(kept)).equal

    return good


def _reload(bench: Bench, found: Diagnosis, role: str, pushed: str, expected: str) -> None:
    """The same step by vLLM's own means, on a server that is at A and right."""
    try:
        # What a push left behind must not be what the reload is blamed for.
        bench.restart() if pushed == "identity" and not bench.right else bench.to_a() if pushed == "to_b" else None
        look = bench.reload(role, expected)
    except HttpFailure as failure:
        found.reload = f"the server does not reload from disk: {failure}"
        raise TransportError(found.reload) from failure
    push = found.last(pushed)
    found.same_wrong = push is not None and not look.equal and bench.taken(look).same_answers(bench.taken(push))
