"""``sleep.memory``: the bytes that each sleep gave back and each wake brought, read where the run can read them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from vst.errors import VerificationError
from vst.lanes.servers import split
from vst.lanes.session import Server, Session
from vst.server.memory import Source, devices, metric, resident
from vst.verdict import Check, Outcome

AT_REST = 4
PAUSE_S = 0.1
PATIENCE_S = 2.0
SHARE = 0.5
"""Of the checkpoint's bytes that must be freed, and of what was freed that must come back: the rest is not weights."""


@dataclass(frozen=True)
class Nap:
    """One sleep and the wake after it: bytes at rest before, asleep, and awake again; ``noise`` is what moves without
    a sleep, ``device`` whether they are bytes of a device, ``brought`` how many bytes came with the wake of each tag.

    ``awake`` is None where the server did not come to serve again.
    """

    level: int
    rest: int
    asleep: int
    awake: int | None
    noise: int
    device: bool
    brought: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class MemoryWatch:
    """Reads the server's memory around sleeps; ``why_not`` says why it cannot, where it cannot.

    ``noise`` is how far readings lie apart over a pause without a sleep: what moves by itself.
    """

    source: Source | None
    why_not: str = ""
    noise: int = 0
    naps: list[Nap] = field(default_factory=list)

    def to_json(self, weights: int) -> dict[str, Any]:
        """What was read, for whoever judges it; ``weights`` are the bytes of the checkpoint."""
        source = self.source.name if self.source else None
        naps = [nap.to_json() for nap in self.naps]
        return {"source": source, "why_not": self.why_not, "noise": self.noise, "weights": weights, "naps": naps}

    def rest(self) -> list[int]:
        """Repeated readings of a server that nothing is asked of; none without a source."""
        seen = []
        for _ in range(AT_REST if self.source is not None else 0):
            seen.append(self.source.read() if self.source else 0)
            time.sleep(PAUSE_S)
        return seen

    def falls_asleep(self, level: int, rest: Sequence[int], least: int) -> None:
        """Wait until the sleep has freed ``least`` bytes, or did not in time, and begin a nap."""
        if self.source is not None:
            asleep = self.until(lambda found: min(rest) - found >= least)
            self.naps.append(Nap(level, min(rest), asleep, None, self.noise, self.source.device))

    def brings(self, tag: str, before: int, least: int) -> None:
        """Wait for a tag to bring ``least`` bytes; what never went is not waited for."""
        if self.naps:
            freed = self.naps[-1].rest - self.naps[-1].asleep
            came = self.until(lambda found: found - before >= least or freed < least) - before
            self.naps[-1] = replace(self.naps[-1], brought={**self.naps[-1].brought, tag: came})

    def serves_again(self) -> None:
        """The server that slept serves: the nap ends."""
        if self.naps:
            nap = self.naps[-1]
            awake = self.until(lambda found: found - nap.asleep >= (nap.rest - nap.asleep) // 2)
            self.naps[-1] = replace(nap, awake=awake)

    def until(self, enough: Callable[[int], bool]) -> int:
        """The first reading that is enough, or the last one before patience ends: memory is given back in time."""
        if self.source is None:
            return 0
        end = time.monotonic() + PATIENCE_S
        while not enough(found := self.source.read()) and time.monotonic() < end:
            time.sleep(PAUSE_S)
        return found


def watch(session: Session) -> MemoryWatch:
    """A watch on the memory of the session's server, from ``server.memory`` or from what we started ourselves."""
    declared = session.conf.server.capabilities.sleep
    if declared != "memory":
        return MemoryWatch(None, f"not looked at: declared by server.capabilities.sleep={declared}")
    try:
        return MemoryWatch(source_of(session, session.need("server")))
    except VerificationError as error:
        return MemoryWatch(None, str(error))


def source_of(session: Session, server: Server) -> Source:
    """Where the memory of one server is read; VerificationError where nothing says so."""
    conf = session.conf.server
    kind, _, name = (conf.memory or "").partition(":")
    if kind == "metric":
        return metric(server.control, name)
    if kind == "pid":
        return resident(int(name))
    if kind == "device" or (not kind and conf.kind == "gpu"):
        return devices(split(session).server or ())
    if server.process is not None:
        return resident(server.process.pid)
    raise VerificationError(
        "where the memory of a server that we did not start can be read is not declared: set server.memory to "
        "metric:NAME, pid:N or device (with server.devices)"
    )


def wanted(level: int, device: bool, weights: int, noise: int) -> int:
    """The bytes that a sleep must free: half the weights, where it does not keep them in the memory that is read.

    Level 1 keeps the weights on the host: in resident memory only what the cache held can be seen to go, and to come
    back only what is touched again.
    """
    least = int(weights * SHARE) if device or level == 2 else 0
    return max(least, 2 * noise + 1)


def memory_check(
    naps: Sequence[Nap], source: str | None, why_not: str, weights: int, declared: str, reason: str | None
) -> Check:
    """``sleep.memory``: each sleep freed what it must and each wake brought it back.

    A server that is declared to free nothing is not judged; one that is not declared, and frees nothing, fails.
    """
    observed: dict[str, Any] = {"source": source, "naps": [nap.to_json() for nap in naps], "weights": weights}
    expected = "each sleep frees bytes beyond the noise, half the weights or more, and each wake brings them back"
    if declared != "memory":
        why = f"declared by server.capabilities.sleep={declared}: {reason or 'no reason given'}"
        return Check("sleep.memory", Outcome.NOT_APPLICABLE, observed, expected, reason=why)
    if source is None:
        return Check("sleep.memory", Outcome.INCONCLUSIVE, observed, expected, reason=why_not)
    for nap in naps:
        if problem := _problem(nap, weights):
            return Check("sleep.memory", Outcome.FAIL, observed, expected, reason=f"{problem} ({source})")
    if {nap.level for nap in naps if nap.awake is not None} != {1, 2}:
        why = "not both sleep levels were reached: an earlier step did not hold"
        return Check("sleep.memory", Outcome.INCONCLUSIVE, observed, expected, reason=why)
    return Check("sleep.memory", Outcome.PASS, observed, expected)


def _problem(nap: Nap, weights: int) -> str | None:
    freed, least = nap.rest - nap.asleep, wanted(nap.level, nap.device, weights, nap.noise)
    if freed < least:
        return (
            f"sleep({nap.level}) freed {freed} bytes of {nap.rest}, expected {least} or more (noise {nap.noise}): a "
            "sleep without effect; a GPU server needs --enable-sleep-mode, and one that frees nothing is declared by "
            "server.capabilities.sleep=flags"
        )
    for tag, came in nap.brought.items() if nap.device else ():
        due = least if tag == "weights" else 2 * nap.noise + 1
        if came < due:
            return (
                f"wake({tag}) after sleep({nap.level}) brought {came} bytes, expected {due} or more: they were not "
                "freed, or did not come back"
            )
    if nap.awake is None:
        return None
    back, due = nap.awake - nap.asleep, int(freed * SHARE) if nap.device else least
    if back < due:
        return f"the wake after sleep({nap.level}) brought back {back} of {freed} bytes, expected {due} or more"
    return None


def nap_of(data: Mapping[str, Any]) -> Nap:
    """A stored nap."""
    numbers = {name: int(data[name]) for name in ("level", "rest", "asleep", "noise")}
    awake = None if data["awake"] is None else int(data["awake"])
    brought = {str(tag): int(count) for tag, count in data["brought"].items()}
    return Nap(device=data["device"] is True, awake=awake, brought=brought, **numbers)
