"""What a broker remembers of producers is what its log says of them (R3)."""

from __future__ import annotations

from typing import Any

import pytest

from sim.bugs import Replacement, replaced
from sim.checkers.producer_state import LastBatch, last_batches, producer_state_findings
from sim.run import run_scenario
from storage.batch import Record, RecordBatch, build_batch

FIVE = LastBatch(0, 5, 5)


def findings(
    held: dict[int, LastBatch], logged: dict[int, LastBatch], *, log_start: int = 0, may_expire: bool = False
) -> list[str]:
    return list(producer_state_findings(held, logged, log_start, may_expire=may_expire))


def test_r3_a_producer_is_known_by_its_last_batch() -> None:
    assert findings({7: FIVE}, {7: FIVE}) == []
    for other in (LastBatch(1, 5, 5), LastBatch(0, 4, 5), LastBatch(0, 5, 4)):
        assert len(findings({7: other}, {7: FIVE})) == 1, other


def test_r3_a_producer_of_the_log_is_not_forgotten_unless_it_may_expire() -> None:
    assert findings({}, {7: FIVE}) == ["forgot producer 7, whose last batch is (0, 5, 5)"]
    assert findings({}, {7: FIVE}, may_expire=True) == []


def test_r3_what_a_cut_dropped_is_not_remembered() -> None:
    assert len(findings({7: FIVE}, {})) == 1
    # Its batch was deleted with the start of the log.
    assert findings({7: FIVE}, {}, log_start=6) == []


def test_the_last_batch_of_each_producer_counts_from_the_start_of_the_log_on() -> None:
    def batch(producer: int, offset: int) -> RecordBatch:
        data = build_batch(
            [Record(offset, 1, None, b"v")],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=offset,
            base_offset=offset,
        )
        return RecordBatch(data, 0, len(data))

    batches = [batch(7, 3), batch(8, 4), batch(7, 5)]
    assert last_batches(batches, 0) == {7: FIVE, 8: LastBatch(0, 4, 4)}
    assert last_batches(batches, 5) == {7: FIVE}


@pytest.mark.slow
def test_a_run_shows_a_follower_that_remembers_what_it_has_cut() -> None:
    def keeps(original: object) -> Any:
        return lambda *arguments: None

    target = "storage.log.truncation:Truncation._rebuild_producers"
    with replaced(Replacement(target=target, make=keeps)):
        results = [run_scenario("divergence-truncation", seed, stops_early=True) for seed in range(3)]
    assert "producer-state" in {each.checker for result in results for each in result.violations}
