"""The states of a server and the legal moves between them: data that the driver, the plans and the README obey.

``python -m vst.server.states`` prints the tables as the README shows them. A server that was woken in part, or woken
whole, may run its scheduler or hold its work, depending on the version: such a move ends in one of several states, and
which of them is observed, never assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from vst.errors import VerificationError

STATES = ("serving", "paused", "asleep", "updating", "tainted", "dead", "unknown")
"""The names under which a state is reported."""

TAGS = ("weights", "kv_cache")
LEVELS = (1, 2)
PAUSE_MODES = ("abort", "wait", "keep")


class IllegalMove(VerificationError):
    """A move that the server's state does not allow; nothing was sent."""


class Situation(str, Enum):
    """What decides which moves are legal; ``name_of`` gives the state that it is reported as."""

    UNKNOWN = "unknown"
    SERVING = "serving"
    PAUSED = "paused"
    PAUSED_LOST = "paused, weights of no value"
    ASLEEP = "asleep, found so"
    ASLEEP_1 = "asleep(1)"
    ASLEEP_1_WEIGHTS = "asleep(1, weights)"
    ASLEEP_1_CACHE = "asleep(1, kv_cache)"
    ASLEEP_2 = "asleep(2)"
    ASLEEP_2_LOST = "asleep(2, kv_cache), weights lost"
    ASLEEP_2_CACHE = "asleep(2, kv_cache)"
    AWAKE_1_WEIGHTS = "asleep(1, weights), running"
    AWAKE_1_CACHE = "asleep(1, kv_cache), running"
    AWAKE_2_LOST = "asleep(2, kv_cache), weights lost, running"
    UPDATING = "updating"
    TAINTED = "tainted"
    DEAD = "dead"


S = Situation


@dataclass(frozen=True)
class Looks:
    """What a server must look like in a situation; None where it is not judged.

    ``paused`` and ``sleeping`` are the flags of ``/is_paused`` and ``/is_sleeping``, ``level`` what the sleep gauge of
    ``/metrics`` says (0 is awake). The texts say what the checks of lane L4 look at.
    """

    name: str
    paused: bool | None
    sleeping: bool | None
    level: int | None
    scheduler: str
    memory: str
    output: str
    asleep: tuple[str, ...] = ()


HELD = "holds or refuses requests, no token leaves"
RUNS = "answers"
RISK = "runs while memory is missing: the next request may crash it"
ALL, NONE = "all there", "weights and cache freed"
NO_CACHE, NO_WEIGHTS = "weights there, cache freed", "cache there, weights freed"

LOOKS: dict[Situation, Looks] = {
    # vLLM's /is_sleeping says true for a server that is only paused; the gauge tells the two apart.
    S.UNKNOWN: Looks("unknown", None, None, None, "not looked at", "not looked at", "none is trusted"),
    S.SERVING: Looks("serving", False, False, 0, RUNS, ALL, "equals the reference of what it holds"),
    S.PAUSED: Looks("paused", True, None, 0, HELD, ALL, "none"),
    S.PAUSED_LOST: Looks("paused", True, None, 0, HELD, ALL, "none"),
    S.ASLEEP: Looks("asleep", None, True, None, "not looked at", "not looked at", "none is trusted"),
    S.ASLEEP_1: Looks("asleep", True, True, 1, HELD, NONE, "none", TAGS),
    S.ASLEEP_1_WEIGHTS: Looks("asleep", True, True, 1, HELD, NO_WEIGHTS, "none", ("weights",)),
    S.ASLEEP_1_CACHE: Looks("asleep", True, True, 1, HELD, NO_CACHE, "none", ("kv_cache",)),
    S.ASLEEP_2: Looks("asleep", True, True, 2, HELD, NONE + ", nothing kept", "none", TAGS),
    S.ASLEEP_2_LOST: Looks("asleep", True, True, 2, HELD, NO_CACHE + ", weights of no value", "none", ("kv_cache",)),
    S.ASLEEP_2_CACHE: Looks("asleep", True, True, 2, HELD, NO_CACHE, "none", ("kv_cache",)),
    S.AWAKE_1_WEIGHTS: Looks("asleep", False, True, 1, RISK, NO_WEIGHTS, "none is trusted", ("weights",)),
    S.AWAKE_1_CACHE: Looks("asleep", False, True, 1, RISK, NO_CACHE, "none is trusted", ("kv_cache",)),
    S.AWAKE_2_LOST: Looks("asleep", False, True, 2, RISK, NO_CACHE, "none is trusted", ("kv_cache",)),
    S.UPDATING: Looks("updating", None, None, None, "not asked: the workers wait for the broadcast", ALL, "none"),
    S.TAINTED: Looks("tainted", True, None, None, "held, if the server could be paused", "not looked at", "none"),
    S.DEAD: Looks("dead", None, None, None, "no process", "no process", "none"),
}


@dataclass(frozen=True)
class Transition:
    """One kind of move: from where, what it demands, what is sent, and the situations it may end in.

    More than one in ``after``: which of them is observed. Empty ``after``: the situation stays.
    """

    move: str
    before: tuple[Situation, ...]
    after: tuple[Situation, ...]
    request: str
    demands: str
    observed: str


AWAKE = (S.SERVING, S.PAUSED)
UNHELD = {
    S.AWAKE_1_WEIGHTS: S.ASLEEP_1_WEIGHTS,
    S.AWAKE_1_CACHE: S.ASLEEP_1_CACHE,
    S.AWAKE_2_LOST: S.ASLEEP_2_LOST,
}
"""Partial wakes that left the scheduler running, and where a pause takes each."""

QUIET = (S.ASLEEP_1, S.ASLEEP_1_WEIGHTS, S.ASLEEP_1_CACHE, S.ASLEEP_2, S.ASLEEP_2_LOST, S.ASLEEP_2_CACHE)
WEIGHTS_THERE = (S.ASLEEP_1_CACHE, S.ASLEEP_2_LOST, S.ASLEEP_2_CACHE)

PAUSE, WAKE = "POST /pause?mode=…&clear_cache=…", "POST /wake_up"
UPDATE = "/start_weight_update, /update_weights beside the broadcast, /finish_weight_update"
FLAGS, FLAG, GAUGE = "both flags and the gauge", "/is_paused", "the gauge says awake; /is_paused says which"
PARTIAL = "/is_sleeping true, the gauge keeps its level; /is_paused says which"
RESET = "POST /reset_prefix_cache, /reset_mm_cache, /reset_encoder_cache"
SENT = "what was sent is what the manifest says"

TRANSITIONS: tuple[Transition, ...] = (
    Transition("pause", AWAKE, (S.PAUSED,), PAUSE, "nothing", FLAG + " true"),
    Transition("pause", (S.PAUSED_LOST, *QUIET), (), PAUSE, "nothing", FLAG + " true"),
    *(
        Transition("pause", (running,), (held,), PAUSE, "nothing", FLAG + " true")
        for running, held in UNHELD.items()
    ),
    Transition("abort", AWAKE, (), "POST /abort_requests", "nothing", FLAG + " as before; every stream has ended"),
    Transition("reset", (*AWAKE, S.PAUSED_LOST, *WEIGHTS_THERE), (), RESET,
               "no blocks held; while serving the requests that hold some are computed again",
               "the prefix cache says success: true"),
    Transition("sleep(1)", AWAKE, (S.ASLEEP_1,), "POST /sleep?level=1", "nothing", FLAGS),
    Transition("sleep(1)", (S.ASLEEP_1,), (), "POST /sleep?level=1", "nothing", FLAGS),
    Transition("sleep(2)", AWAKE, (S.ASLEEP_2,), "POST /sleep?level=2", "a full push will follow", FLAGS),
    Transition("sleep(2)", (S.ASLEEP_2,), (), "POST /sleep?level=2", "a full push will follow", FLAGS),
    Transition("wake(weights)", (S.ASLEEP_1,), (S.ASLEEP_1_CACHE, S.AWAKE_1_CACHE), WAKE + "?tags=weights",
               "nothing", PARTIAL),
    Transition("wake(weights)", (S.ASLEEP_2,), (S.ASLEEP_2_LOST, S.AWAKE_2_LOST), WAKE + "?tags=weights",
               "nothing", PARTIAL),
    Transition("wake(weights)", (S.ASLEEP_1_WEIGHTS, S.AWAKE_1_WEIGHTS), AWAKE, WAKE + "?tags=weights",
               "nothing", GAUGE),
    Transition("wake(kv_cache)", (S.ASLEEP_1,), (S.ASLEEP_1_WEIGHTS, S.AWAKE_1_WEIGHTS), WAKE + "?tags=kv_cache",
               "nothing", PARTIAL),
    Transition("wake(kv_cache)", (S.ASLEEP_1_CACHE, S.AWAKE_1_CACHE, S.ASLEEP_2_CACHE), AWAKE,
               WAKE + "?tags=kv_cache", "the weights are awake and whole", GAUGE),
    Transition("wake", (S.ASLEEP_1, S.ASLEEP_1_WEIGHTS, S.ASLEEP_1_CACHE, S.AWAKE_1_WEIGHTS, S.AWAKE_1_CACHE,
                        S.ASLEEP_2_CACHE), AWAKE, WAKE, "the weights are not lost", GAUGE),
    Transition("wake", (S.SERVING,), (), WAKE, "nothing", FLAGS),
    Transition("push", (S.PAUSED, S.PAUSED_LOST), (S.PAUSED,), UPDATE, "the publisher has joined", SENT),
    Transition("push", (S.ASLEEP_1_CACHE,), (), UPDATE, "the publisher has joined", SENT),
    Transition("push", (S.ASLEEP_2_LOST, S.ASLEEP_2_CACHE), (S.ASLEEP_2_CACHE,), UPDATE, "the publisher has joined",
               SENT),
    Transition("publish", AWAKE, (), UPDATE, "lane publish: the caller keeps requests away", SENT),
    Transition("resume", AWAKE, (S.SERVING,), "POST /resume", "nothing asleep", FLAG + " false"),
    Transition("ask", (S.SERVING,), (), "POST /v1/completions", "nothing", "the record"),
    Transition("recover", (S.TAINTED,), (S.PAUSED_LOST, S.ASLEEP_2_LOST), PAUSE,
               "no update was left open; it stays tainted until a full push has verified", FLAG + " true, the gauge"),
)  # fmt: skip

REFUSALS: dict[tuple[str, Situation], str] = {
    ("resume", S.ASLEEP_1_CACHE): "wake the cache first: to resume without it is a crash",
    ("resume", S.AWAKE_1_CACHE): "wake the cache first: to resume without it is a crash",
    ("resume", S.ASLEEP_2_CACHE): "wake the cache first: to resume without it is a crash",
    ("resume", S.ASLEEP_2_LOST): "the weights were discarded: only a full push leads on",
    ("resume", S.ASLEEP_1_WEIGHTS): "wake the weights first",
    ("resume", S.ASLEEP_1): "wake weights and cache first",
    ("resume", S.ASLEEP_2): "the weights were discarded: wake(weights), then a full push",
    ("resume", S.PAUSED_LOST): "a failed update left weights of no value: only a full push leads on",
    ("push", S.SERVING): "pause first: a request that meets an open update kills the engine",
    ("push", S.ASLEEP_1): "wake the weights first: there is no memory to receive into",
    ("push", S.ASLEEP_1_WEIGHTS): "wake the weights first: there is no memory to receive into",
    ("push", S.ASLEEP_2): "wake the weights first: there is no memory to receive into",
    ("push", S.AWAKE_1_CACHE): "pause first: the partial wake left the scheduler running",
    ("push", S.AWAKE_2_LOST): "pause first: the partial wake left the scheduler running",
    ("wake(kv_cache)", S.ASLEEP_2): "the weights come first: a server that is wholly awake may resume by itself",
    ("wake(kv_cache)", S.ASLEEP_2_LOST): "the weights were discarded: only a full push leads on",
    ("wake", S.ASLEEP_2): "the weights were discarded: wake(weights), then a full push",
    ("wake", S.ASLEEP_2_LOST): "the weights were discarded: only a full push leads on",
    ("wake", S.PAUSED): "nothing is asleep, and a server that is told to wake may resume by itself",
    ("reset", S.ASLEEP_1): "the caches are asleep, and were emptied when they were put to sleep",
    ("reset", S.ASLEEP_2): "the caches are asleep, and were emptied when they were put to sleep",
}  # fmt: skip
"""What to do instead, for the refusals that people run into."""

MOVES = tuple(dict.fromkeys(transition.move for transition in TRANSITIONS))


def legal(move: str, situation: Situation) -> Transition:
    """The transition that ``move`` makes from ``situation``; IllegalMove says from where it would be legal."""
    rows = [transition for transition in TRANSITIONS if transition.move == move]
    for transition in rows:
        if situation in transition.before:
            return transition
    if not rows:
        raise IllegalMove(f"{move} is no move: expected one of {', '.join(MOVES)}")
    hint = REFUSALS.get((move, situation))
    allowed = " or ".join(dict.fromkeys(one.value for row in rows for one in row.before))
    why = f"{hint}; " if hint else ""
    raise IllegalMove(f"{move} is refused: the server is {situation.value}; {why}it is legal from {allowed}")


def ends(move: str, situation: Situation) -> tuple[Situation, ...]:
    """Every situation that ``move`` may end in from here; IllegalMove when it is not legal here."""
    return legal(move, situation).after or (situation,)


def name_of(situation: Situation) -> str:
    """The state that a situation is reported as, one of ``STATES``."""
    return LOOKS[situation].name


def wake_name(tags: tuple[str, ...]) -> str:
    """The move that a wake of these tags is; both together are all there is."""
    return "wake" if not tags or set(tags) == set(TAGS) else f"wake({','.join(tags)})"


if __name__ == "__main__":
    from vst.server.state_tables import tables

    print(tables())
