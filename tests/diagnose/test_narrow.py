from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from vst.lanes.diagnose.narrow import Narrowed, OutOfPushes, narrow

PARTS = tuple(f"part{number}" for number in range(12))


class Server:
    """Everything arrives if, and only if, all culprits are left out; counts what it is asked."""

    def __init__(self, culprits: Sequence[str], limit: int = 1000) -> None:
        self.culprits, self.limit = set(culprits), limit
        self.asked: list[tuple[str, ...]] = []

    def good(self, left_out: tuple[str, ...]) -> bool:
        if len(self.asked) >= self.limit:
            raise OutOfPushes
        self.asked.append(left_out)
        return self.culprits <= set(left_out)


@given(st.sets(st.sampled_from(PARTS), min_size=1), st.sets(st.sampled_from(PARTS)))
def test_exactly_the_culprits_are_found_whatever_was_suspected(culprits: set[str], first: set[str]) -> None:
    server = Server(sorted(culprits))
    found = narrow(PARTS, sorted(first), server.good)
    assert set(found.parts) == culprits and found.minimal
    assert len(set(found.parts)) == len(found.parts)


@given(st.sets(st.sampled_from(PARTS), min_size=1), st.integers(0, 8))
def test_a_search_that_is_cut_short_still_has_a_set_that_holds_and_says_so(culprits: set[str], limit: int) -> None:
    server = Server(sorted(culprits), limit)
    found = narrow(PARTS, (), server.good)
    assert culprits <= set(found.parts)
    assert found.minimal is (set(found.parts) == culprits and len(server.asked) < limit) or len(server.asked) == limit


def test_one_suspect_that_is_the_culprit_costs_one_test() -> None:
    server = Server(["part7"])
    assert narrow(PARTS, ["part7"], server.good) == Narrowed(("part7",), True)
    assert server.asked == [("part7",)]


def test_a_single_culprit_of_eight_costs_no_more_than_six_tests() -> None:
    for culprit in PARTS[:8]:
        server = Server([culprit])
        assert narrow(PARTS[:8], (), server.good).parts == (culprit,)
        assert len(server.asked) <= 6
