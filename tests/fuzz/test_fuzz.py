"""The harnesses under Hypothesis, briefly, and the whole corpus. `make fuzz` runs them for longer."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.harnesses import HARNESSES, Harness, corpus

SLOW = ("recoveries", "verifies", "dumps", "batches")
# Processor time for one input, whatever else the machine is doing.
LIMIT_S = 5


def mutated(harness: Harness) -> st.SearchStrategy[bytes]:
    """Draw sound bytes with a few changed, left out or put in, or bytes that mean nothing."""
    edits = st.lists(
        st.tuples(st.integers(0, 4096), st.sampled_from(("set", "cut", "insert")), st.binary(max_size=8)),
        max_size=6,
    )

    def edited(seed: bytes, changes: list[tuple[int, str, bytes]]) -> bytes:
        for place, kind, data in changes:
            at = place % (len(seed) + 1)
            if kind == "set":
                seed = seed[:at] + data + seed[at + len(data) :]
            else:
                seed = seed[:at] + data + (seed[at:] if kind == "insert" else b"")
        return seed

    return st.builds(edited, st.sampled_from(harness.seeds()), edits) | st.binary(max_size=200)


@pytest.mark.parametrize("name", HARNESSES)
def test_any_bytes_end_in_a_value_or_a_documented_error(name: str) -> None:
    assert_all_is_documented(name, 15 if name == "recoveries" else 30)


@pytest.mark.slow
@pytest.mark.parametrize("name", HARNESSES)
def test_any_bytes_end_in_a_value_or_a_documented_error_for_longer(name: str) -> None:
    assert_all_is_documented(name, 100 if name in SLOW else 400)


def assert_all_is_documented(name: str, examples: int) -> None:
    """Run the harness. It lets documented errors pass itself, so any error here is a bug."""
    harness = HARNESSES[name]

    @settings(derandomize=True, deadline=None, max_examples=examples, database=None)
    @given(data=mutated(harness))
    def check(data: bytes) -> None:
        started = process_time()
        harness.run(data)
        assert process_time() - started < LIMIT_S

    check()


@pytest.mark.parametrize("name", HARNESSES)
def test_what_was_found_once_is_not_found_again(name: str) -> None:
    for seed in HARNESSES[name].seeds():
        HARNESSES[name].run(seed)
    for path in corpus(name):
        started = process_time()
        HARNESSES[name].run(path.read_bytes())
        assert process_time() - started < LIMIT_S, path
