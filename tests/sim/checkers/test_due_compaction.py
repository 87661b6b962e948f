"""The cleaner begins a round when its timer goes off and a log is dirty enough."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from cluster.core.broker.maintenance import CLEANER_TIMER
from cluster.core.effects import Effect, Observe, RunJob
from cluster.core.events import JobDone, TimerFired
from cluster.core.messages import ProducePartition, ProduceRequest, TopicPartition
from cluster.core.metadata.records import PartitionRecord, TopicRecord
from sim.checkers.base import Jury
from sim.checkers.due_compaction import DueCompaction
from sim.checkers.ghost import Ghost
from storage.batch import Record, build_batch
from storage.directory.cleaners import key_of
from tests.cluster.broker.setup import BrokerSetup
from tests.cluster.replica.setup import of

T0 = TopicPartition("t", 0)


def dirty(isr: tuple[int, ...] = (1,), /, **configs: str) -> BrokerSetup:
    """Returns a broker with four segments of one batch each, all with one key, of which the last is active."""
    setup = BrokerSetup()
    all_configs = {"cleanup_policy": "compact", "segment_bytes": "100"} | configs
    dotted = tuple((key.replace("_", "."), value) for key, value in all_configs.items())
    setup.boot(
        TopicRecord(name="t", topic_id="1f" * 16, configs=dotted),
        PartitionRecord(topic="t", partition=0, replicas=isr, isr=isr, leader=1),
    )
    for value in (b"a", b"b", b"c", b"d"):
        records = build_batch([Record(0, setup.now_ms, b"k", value)])
        asked = ProducePartition(topic_partition=T0, records=records)
        setup.ask(ProduceRequest(acks=1, timeout_ms=1_000, partitions=(asked,)))
    return setup


def found(setup: BrokerSetup, effects: list[Effect], timer: str = CLEANER_TIMER) -> list[str]:
    """Returns what is wrong with a step of the timer that has these effects."""
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    DueCompaction(jury).on_step((1, 1), setup.broker, setup.now_ms, (TimerFired(key=timer),), effects)
    assert all(each.checker == "compaction-due" for each in jury.violations)
    return [each.what for each in jury.violations]


def test_cl4_a_log_that_is_dirty_enough_is_cleaned() -> None:
    setup = dirty()
    (what,) = found(setup, [])
    assert what == (
        "t-0: broker 1 begins no round of compaction; 1.00 of its bytes are dirty, min.cleanable.dirty.ratio is 0.5"
    )
    effects = list(setup.fire(CLEANER_TIMER, 15_000))
    assert of(effects, RunJob) and not found(setup, effects)
    # Other timers begin none.
    assert not found(setup, [], "logs.retention")


@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup_policy": "delete"},
        # All segments are as young as that.
        {"min_compaction_lag_ms": "1"},
        {"min_cleanable_dirty_ratio": "1", "max_compaction_lag_ms": "100"},
        # More than all bytes is no share.
        {"min_cleanable_dirty_ratio": "1"},
    ],
)
def test_cl4_a_log_that_need_not_be_cleaned_is_not_due(configs: dict[str, str]) -> None:
    assert not found(dirty(**configs), [])


def test_cl1_what_is_not_committed_is_not_due() -> None:
    assert not found(dirty((1, 2)), [])


@pytest.mark.parametrize(("first_dirty", "is_due"), [(1, True), (2, False), (3, False)])
def test_cl4_what_is_clean_counts_against_what_is_not(first_dirty: int, *, is_due: bool) -> None:
    """Two of three segments are dirty, or one, or none; half of the bytes have to be exceeded."""
    setup = dirty()
    log = setup.broker.replicas()[T0].log
    cleaner = setup.broker.maintenance.cleaner_of(log)
    cleaner._update(key_of(log), first_dirty)
    assert bool(found(setup, [])) == is_due


def test_cl6_what_cannot_be_cleaned_is_not_due() -> None:
    setup = dirty()
    log = setup.broker.replicas()[T0].log
    setup.broker.maintenance.cleaner_of(log).mark_uncleanable(key_of(log), OSError("rot"))
    assert not found(setup, [])


def test_a_round_that_has_failed_at_once_was_begun() -> None:
    setup = dirty()
    assert not found(setup, [Observe(kind="log.uncleanable", fields=(), metadata_offset=0)])


def test_cl2_what_is_older_than_the_least_lag_is_due() -> None:
    setup = dirty(min_compaction_lag_ms="100")
    setup.now_ms += 99
    assert not found(setup, [])
    setup.now_ms += 1
    assert found(setup, [])


def test_cl5_what_is_older_than_the_greatest_lag_is_due() -> None:
    setup = dirty(min_cleanable_dirty_ratio="1", max_compaction_lag_ms="100")
    setup.now_ms += 100
    assert not found(setup, [])
    setup.now_ms += 1
    (what,) = found(setup, [])
    assert what.endswith("a dirty segment is 101 ms old, max.compaction.lag.ms is 100")


def compacted_to(end: int, *, is_unseen: bool = False, **configs: str) -> list[str]:
    """Returns what is wrong with a round that says it has compacted up to `end` a log whose third segment is active."""
    setup = dirty(**configs)
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    judge = DueCompaction(jury)
    timer = (TimerFired(key=CLEANER_TIMER),)
    under_way = (setup.broker.replicas()[T0].log, setup.now_ms)
    with patch("cluster.core.broker.maintenance.LogMaintenance.round_under_way", under_way):
        judge.on_step(
            (1, 1), setup.broker, setup.now_ms, timer, [RunJob(job=1, kind="compact", work=lambda: None)]
        )
    if is_unseen:
        judge.on_unseen((1, 1))
    fields = (("topic_partition", "t-0"), ("end_offset", end))
    told = Observe(kind="log.compacted", fields=fields, metadata_offset=0)
    judge.on_step((1, 1), setup.broker, setup.now_ms, (JobDone(job=1),), [told])
    return [each.what for each in jury.violations if each.checker == "compaction-range"]


def test_cl1_a_round_ends_before_the_active_segment() -> None:
    assert not compacted_to(3) and not compacted_to(2)
    assert compacted_to(4) == ["t-0: broker 1 compacts its log up to 4, and might up to 3"]


def test_cl1_a_round_whose_begin_nobody_may_have_seen_is_not_judged() -> None:
    assert not compacted_to(4, is_unseen=True)


def test_cl2_a_round_ends_before_what_is_younger_than_the_least_lag() -> None:
    assert compacted_to(1, min_compaction_lag_ms="1") == [
        "t-0: broker 1 compacts its log up to 1, and might up to 0"
    ]
