"""The servers of a run as one: a move goes to all of them at once, and what one does not do none has done.

One server is a fleet of one. Several are members of one transfer group: they are paused, updated and resumed together,
and after a failure of one none of them serves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from vst.errors import VstError
from vst.server.client import ControlPlane
from vst.server.facts import ServerFacts
from vst.server.lifecycle import Lifecycle
from vst.server.process import ServerProcess
from vst.verdict import CAUSES, Check, Outcome

WORST_FIRST = ("dead", "tainted", "unknown", "updating", "asleep", "paused", "serving")


@dataclass(frozen=True)
class Server:
    """A server, or one rank of it, that can be asked: the control plane, the name of its model, and its own title.

    ``process`` is None where it was not started by this run; ``title`` is empty for the only one.
    """

    control: ControlPlane
    name: str
    process: ServerProcess | None = None
    title: str = ""


@dataclass(frozen=True)
class Replica:
    """One server that was examined: what it said of itself, and its state as this run knows it."""

    server: Server
    facts: ServerFacts
    lifecycle: Lifecycle


@dataclass(frozen=True)
class Fleet:
    """All servers of the run, in the order of their ranks in the transfer group."""

    replicas: tuple[Replica, ...]

    def each(self, move: Callable[[Lifecycle], Any]) -> None:
        """Make one move on every server at once; the first failure is raised when all have ended, with its server's
        title.
        """
        self.visit(lambda replica: move(replica.lifecycle))

    def visit(self, act: Callable[[Replica], Any]) -> None:
        """``each`` for what needs more of a server than its lifecycle."""
        if len(self.replicas) == 1:
            act(self.replicas[0])
            return
        with ThreadPoolExecutor(len(self.replicas)) as pool:
            failures = list(pool.map(lambda replica: _failure(act, replica), self.replicas))
        for failure in failures:
            if failure is not None:
                raise failure

    @property
    def state(self) -> str:
        """The worst state of any server."""
        return min((replica.lifecycle.state for replica in self.replicas), key=WORST_FIRST.index)

    @property
    def holds(self) -> str:
        return self._together([replica.lifecycle.holds for replica in self.replicas])

    @property
    def left(self) -> str:
        return self._together([replica.lifecycle.left for replica in self.replicas])

    @property
    def verified(self) -> bool:
        """Whether the content of every server was compared and is what was claimed."""
        return all(replica.lifecycle.verified for replica in self.replicas)

    @property
    def recovering(self) -> bool:
        return any(replica.lifecycle.recovering for replica in self.replicas)

    def taint(self, reason: str, restart: str | None = None) -> None:
        """Give all servers up: what one of them failed at, none of them can be said to have done."""
        self.each(lambda lifecycle: lifecycle.taint(reason, restart))

    def _together(self, said: Sequence[str]) -> str:
        if len(set(said)) == 1:
            return said[0]
        pairs = zip(self.replicas, said, strict=True)
        return "; ".join(f"{replica.server.title}: {one}" for replica, one in pairs)


def _failure(act: Callable[[Replica], Any], replica: Replica) -> VstError | None:
    try:
        act(replica)
    except VstError as error:
        return named(error, replica.server.title)
    return None


def named(error: VstError, title: str) -> VstError:
    """The error with the title of the server that it is about in front of its message."""
    if title:
        error.args = (f"{title}: {error}", *error.args[1:])
    return error


def over_all(found: Sequence[tuple[str, Check]]) -> Check:
    """One check from the same check on every server: the worst outcome, and each reason with the server's title."""
    if len(found) == 1:
        return found[0][1]
    order = (*CAUSES, Outcome.NOT_APPLICABLE, Outcome.PASS)
    worst = min((check for _, check in found), key=lambda check: order.index(check.outcome))
    reasons = [f"{title}: {check.reason}" for title, check in found if check.reason]
    warnings = tuple(f"{title}: {text}" for title, check in found for text in check.warnings)
    observed = {title: check.observed for title, check in found}
    return Check(
        worst.id,
        worst.outcome,
        observed,
        worst.expected,
        worst.tolerance,
        "; ".join(reasons),
        worst.evidence,
        warnings,
    )
