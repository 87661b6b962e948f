"""No produced set of 1 MB holds a step for longer than 50 ms, however it is made."""

from __future__ import annotations

import pytest

from tests.storage.hostile.produced_sets import MOST_BYTES, Hostile, hostile_sets, step_seconds

MOST_SECONDS = 0.05


@pytest.mark.parametrize("hostile", list(hostile_sets(700_000)), ids=lambda hostile: hostile.name)
def test_lv23_no_produced_set_holds_a_step_for_long(hostile: Hostile) -> None:
    assert len(hostile.records) <= MOST_BYTES
    seconds = step_seconds(hostile.records)
    print(f"{hostile.name}: {len(hostile.records)} bytes, {seconds * 1e3:.1f} ms in the step")
    assert seconds < MOST_SECONDS
