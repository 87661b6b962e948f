"""Compaction leaves the last batch of each producer that the broker knows (CL14)."""

from __future__ import annotations

import pytest

from sim.run import Verdict, run_scenario
from sim.witness.kept_producers import KeptProducers
from storage.batch import Record, RecordBatch, build_batch


def batch(offset: int, producer_id: int) -> RecordBatch:
    record = Record(offset, 5, b"k", b"v")
    data = build_batch(
        [record], base_offset=offset, partition_leader_epoch=0, producer_id=producer_id, producer_epoch=0,
        base_sequence=0,
    )  # fmt: skip
    return RecordBatch(data, 0, len(data))


FIRST, SECOND, THIRD = batch(0, 7), batch(1, 8), batch(2, 7)


def test_cl14_the_last_batch_of_a_producer_stays() -> None:
    kept = KeptProducers()
    assert kept.judge(1, [SECOND, THIRD], {7: 2, 8: 1}, 0) == ""
    assert (
        kept.judge(1, [THIRD], {7: 2, 8: 1}, 0) == "the last batch of producer 8, up to offset 1, was deleted"
    )
    # It is told once.
    assert kept.judge(1, [THIRD], {7: 2, 8: 1}, 0) == ""


def test_cl14_a_batch_that_was_appended_since_the_last_look_stays_too() -> None:
    kept = KeptProducers()
    kept.look(1, [FIRST])
    assert kept.judge(1, [FIRST, SECOND], {7: 2, 8: 1}, 0) != ""


def test_what_is_below_the_start_of_the_log_may_go() -> None:
    kept = KeptProducers()
    kept.look(1, [SECOND, THIRD])
    assert kept.judge(1, [THIRD], {7: 2, 8: 1}, 2) == ""


def test_a_producer_that_is_known_by_an_earlier_batch_after_a_cut_may_lack_it() -> None:
    """Its later batch had followed when the earlier one was compacted away."""
    kept = KeptProducers()
    kept.look(1, [SECOND, THIRD])
    kept.on_cut(1)
    assert kept.judge(1, [SECOND], {7: 0, 8: 1}, 0) == ""
    assert kept.judge(1, [], {7: 0, 8: 1}, 0) == "the last batch of producer 8, up to offset 1, was deleted"


def test_a_start_finds_what_is_there() -> None:
    kept = KeptProducers()
    kept.look(1, [SECOND, THIRD])
    kept.look(1, [SECOND])
    assert kept.judge(1, [SECOND], {7: 0, 8: 1}, 0) == ""


@pytest.mark.slow
def test_kafka_5490_a_run_shows_a_compaction_that_forgets_producers() -> None:
    results = [
        run_scenario("compaction-crashes", seed, bug="compaction-forgets-producers", stops_early=True)
        for seed in range(1, 6)
    ]
    violations = [each for result in results for each in result.violations]
    assert {each.checker for each in violations} == {"compaction"}
    assert any("last batch of producer" in str(each) for each in violations)
    assert run_scenario("compaction-crashes", 1).verdict is Verdict.HELD
