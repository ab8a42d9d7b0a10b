from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vst.oracle.probes import ProbeSet, cache_probe, covered, lengths, make_probes

SCRIPT = "from vst.oracle.probes import make_probes; print(make_probes(500, 4, 4, 100, 8, 5, 7).digest)"


@given(st.integers(1, 12), st.integers(2, 20), st.integers(0, 300))
def test_lengths_go_from_the_shortest_to_the_longest_in_order(count: int, shortest: int, more: int) -> None:
    found = lengths(count, shortest, shortest + more)
    assert len(found) == count and found == sorted(found)
    assert found[-1] == shortest + more
    assert count == 1 or found[0] == shortest


@given(st.integers(1, 400), st.integers(1, 8), st.integers(2, 10), st.integers(0, 60), st.integers(0, 2**32))
def test_probes_have_their_lengths_and_only_tokens_of_the_vocabulary(
    vocab: int, count: int, shortest: int, more: int, seed: int
) -> None:
    probes = make_probes(vocab, count, shortest, shortest + more, 8, 5, seed)
    assert [len(prompt) for prompt in probes.prompts] == lengths(count, shortest, shortest + more)
    assert all(0 <= token < vocab for prompt in probes.prompts for token in prompt)


@given(st.integers(1, 500), st.integers(0, 2**32))
def test_no_token_is_asked_twice_before_all_were_asked_once(vocab: int, seed: int) -> None:
    probes = make_probes(vocab, 5, 4, 100, 8, 5, seed)
    tokens = [token for prompt in probes.prompts for token in prompt]
    assert len(set(tokens)) == min(vocab, len(tokens))
    assert covered(probes, vocab) == min(vocab, len(tokens)) / vocab


def test_the_probes_of_a_seed_are_the_same_in_every_process() -> None:
    here = make_probes(500, 4, 4, 100, 8, 5, 7).digest
    for hash_seed in ("0", "1"):
        env = {"PYTHONHASHSEED": hash_seed}
        assert (
            subprocess.run(
                [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=env, check=True
            ).stdout.strip()
            == here
        )
    assert here == "sha256:a35b9a56d20d0d45aa6fe5c980da5864339f3c8a1e766387b383a77412192a48"


BASE = ProbeSet(((1, 2), (3, 4)), 8, 5, 7)


@pytest.mark.parametrize(
    "other",
    [
        ProbeSet(((1, 2), (3, 5)), 8, 5, 7),
        ProbeSet(((3, 4), (1, 2)), 8, 5, 7),
        ProbeSet(((1, 2, 3), (4,)), 8, 5, 7),
        ProbeSet(((1, 2), (3, 4)), 9, 5, 7),
        ProbeSet(((1, 2), (3, 4)), 8, 6, 7),
        ProbeSet(((1, 2), (3, 4)), 8, 5, 8),
    ],
)
def test_the_digest_covers_everything_that_decides_what_is_asked(other: ProbeSet) -> None:
    assert other.digest != BASE.digest
    assert ProbeSet(((1, 2), (3, 4)), 8, 5, 7).digest == BASE.digest


def test_the_cache_probe_is_repeatable_and_differs_from_the_probes_that_were_asked_before() -> None:
    first = list(cache_probe(500, 33, 7))
    assert first == list(cache_probe(500, 33, 7)) and len(first) == 33
    assert all(tuple(first[:16]) != prompt[:16] for prompt in make_probes(500, 8, 4, 100, 8, 5, 7).prompts)
