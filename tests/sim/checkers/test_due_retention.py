"""A pass of retention leaves no segment that is due: each case with the pass, and with one that deletes nothing."""

from __future__ import annotations

from typing import final
from unittest.mock import patch

import pytest

from cluster.core.broker.maintenance import CLEANER_TIMER, RETENTION_TIMER
from cluster.core.effects import Effect, Observe, RunJob, SetTimer
from cluster.core.events import TimerFired
from cluster.core.messages import ProducePartition, ProduceRequest, TopicPartition
from cluster.core.metadata.records import PartitionRecord, TopicConfigRecord, TopicRecord
from sim.checkers.base import Jury
from sim.checkers.due_retention import DueRetention
from sim.checkers.ghost import Ghost
from storage.batch import Record, build_batch
from storage.directory.cleaners import key_of
from storage.log.retention import Retention
from storage.segment import LogSegment
from tests.cluster.broker.setup import BrokerSetup

T0 = TopicPartition("t", 0)
LIFE = (1, 1)


def leading(**configs: str) -> BrokerSetup:
    """Returns a broker with four segments of one batch each."""
    setup = BrokerSetup()
    dotted = tuple((key.replace("_", "."), value) for key, value in configs.items())
    setup.boot(
        TopicRecord(name="t", topic_id="1f" * 16, configs=(("segment.bytes", "100"), *dotted)),
        PartitionRecord(topic="t", partition=0, replicas=(1,), isr=(1,), leader=1),
    )
    for value in (b"a", b"b", b"c", b"d"):
        asked = ProducePartition(
            topic_partition=T0, records=build_batch([Record(0, setup.now_ms, b"k", value)])
        )
        setup.ask(ProduceRequest(acks=-1, timeout_ms=1_000, partitions=(asked,)))
    assert len(setup.broker.replicas()[T0].log.local.segments) == 4
    return setup


def uncommitted() -> BrokerSetup:
    """Returns a broker that leads with a follower which has fetched nothing."""
    setup = BrokerSetup()
    setup.boot(
        TopicRecord(
            name="t", topic_id="1f" * 16, configs=(("segment.bytes", "100"), ("retention.bytes", "0"))
        ),
        PartitionRecord(topic="t", partition=0, replicas=(1, 2), isr=(1, 2), leader=1),
    )
    for value in (b"a", b"b", b"c"):
        asked = ProducePartition(
            topic_partition=T0, records=build_batch([Record(0, setup.now_ms, b"k", value)])
        )
        setup.ask(ProduceRequest(acks=1, timeout_ms=1_000, partitions=(asked,)))
    return setup


def found(setup: BrokerSetup, after_ms: int, *, at_ms: int | None = None) -> list[str]:
    """Pass over the logs; returns what is wrong then. With `at_ms`, the timer is set so far ahead."""
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    effects = list(setup.fire(RETENTION_TIMER, after_ms))
    if at_ms is not None:
        effects = [SetTimer(key=RETENTION_TIMER, at_ms=setup.now_ms + at_ms)]
    DueRetention(jury).on_step(LIFE, setup.broker, setup.now_ms, (TimerFired(key=RETENTION_TIMER),), effects)
    assert all(each.checker == "retention-due" for each in jury.violations)
    return [each.what for each in jury.violations]


@pytest.mark.parametrize(
    ("configs", "after_ms", "why"),
    [
        ({"retention_bytes": "150"}, 0, "bytes are left, retention.bytes is 150"),
        ({"retention_ms": "1000"}, 1_001, "its last record is 1001 ms old, retention.ms is 1000"),
    ],
)
def test_rt5_rt6_a_segment_that_is_too_old_or_one_too_many_is_deleted(
    configs: dict[str, str], after_ms: int, why: str
) -> None:
    assert not found(leading(**configs), after_ms)
    with patch.object(Retention, "delete_old", lambda *_, **__: 0):
        (what,) = found(leading(**configs), after_ms)
    assert what.startswith("t-0: broker 1 keeps its oldest segment; ") and what.endswith(why)


@pytest.mark.parametrize(
    ("configs", "after_ms"),
    [
        # Exactly as old as it may be, and with a byte too few without it.
        ({"retention_ms": "1000"}, 1_000),
        ({"retention_bytes": "100000"}, 0),
        ({"retention_bytes": "-1", "retention_ms": "-1"}, 10**9),
        ({"retention_bytes": "0", "cleanup_policy": "compact"}, 0),
    ],
)
def test_rt5_rt6_what_may_stay_is_not_due(configs: dict[str, str], after_ms: int) -> None:
    with patch.object(Retention, "delete_old", lambda *_, **__: 0):
        assert not found(leading(**configs), after_ms)


def test_rt4_what_is_below_the_log_start_is_deleted() -> None:
    for deletes in (True, False):
        setup = leading(retention_ms="-1", cleanup_policy="delete")
        marks = setup.broker.replicas()[T0].log.marks
        assert not found(setup, 0)
        marks.maybe_increment_log_start_offset(1)
        original = Retention.delete_old
        with patch.object(Retention, "delete_old", original if deletes else lambda *_, **__: 0):
            assert len(found(setup, 0)) == (not deletes)


def test_rt2_what_is_not_committed_is_not_due() -> None:
    with patch.object(Retention, "delete_old", lambda *_, **__: 0):
        assert not found(uncommitted(), 0)


def test_a_pass_that_goes_on_in_another_step_is_not_judged() -> None:
    with patch.object(Retention, "delete_old", lambda *_, **__: 0):
        assert not found(leading(retention_bytes="0"), 0, at_ms=1)
        assert found(leading(retention_bytes="0"), 0, at_ms=2)


@final
class LongPass:
    """A pass of two steps over one log, of which the first deletes nothing."""

    def __init__(self, **configs: str) -> None:
        self.setup = leading(**configs)
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self._checker = DueRetention(self.jury)

    def step(self, at_ms: int, *, deletes: bool) -> list[str]:
        """Make a step whose next one is so far ahead; returns what is wrong then."""
        original = Retention.delete_old
        with patch.object(Retention, "delete_old", original if deletes else lambda *_, **__: 0):
            self.setup.fire(RETENTION_TIMER, 0)
        timer = SetTimer(key=RETENTION_TIMER, at_ms=self.setup.now_ms + at_ms)
        fired = (TimerFired(key=RETENTION_TIMER),)
        self._checker.on_step(LIFE, self.setup.broker, self.setup.now_ms, fired, (timer,))
        return [each.what for each in self.jury.violations]

    def cut(self, to_offset: int) -> None:
        self.setup.broker.replicas()[T0].log.truncate_to(to_offset, now_ms=self.setup.now_ms)
        self._checker.on_truncated(LIFE, T0)

    def produce(self, value: bytes) -> None:
        records = build_batch([Record(0, self.setup.now_ms, b"k", value)])
        asked = ProducePartition(topic_partition=T0, records=records)
        self.setup.ask(ProduceRequest(acks=-1, timeout_ms=1_000, partitions=(asked,)))


@pytest.mark.parametrize("deletes", [True, False])
def test_rt6_what_was_due_when_a_long_pass_began_is_gone_when_it_ends(deletes: bool) -> None:
    a_pass = LongPass(retention_bytes="150")
    assert not a_pass.step(1, deletes=False)
    assert bool(a_pass.step(1_000, deletes=deletes)) is not deletes


def test_rt6_what_becomes_due_in_the_midst_of_a_long_pass_waits_for_the_next() -> None:
    a_pass = LongPass(retention_bytes="300")
    assert not a_pass.step(1, deletes=False)
    size_bytes = a_pass.setup.broker.replicas()[T0].log.local.segments.size_bytes
    assert 230 < size_bytes < 375
    a_pass.produce(b"e")
    a_pass.produce(b"f")
    assert not a_pass.step(1_000, deletes=False)
    assert a_pass.step(1_000, deletes=False)


def test_rt6_a_long_pass_over_a_log_whose_properties_change_is_not_judged() -> None:
    a_pass = LongPass(retention_bytes="-1")
    assert not a_pass.step(1, deletes=False)
    changed = TopicConfigRecord(topic="t", configs=(("segment.bytes", "100"), ("retention.bytes", "0")))
    a_pass.setup.metadata(changed)
    assert not a_pass.step(1_000, deletes=False)
    assert a_pass.step(1_000, deletes=False)


def test_rt6_of_what_is_appended_in_the_midst_of_a_long_pass_nothing_counts() -> None:
    """Neither the bytes that the active segment has got, nor the segments that came after it."""
    a_pass = LongPass(retention_bytes="220")
    assert not a_pass.step(1, deletes=True)
    log = a_pass.setup.broker.replicas()[T0].log
    a_pass.produce(b"e")
    assert len(log.local.segments) == 5
    assert not a_pass.step(1_000, deletes=False)
    assert a_pass.step(1_000, deletes=False)


def test_rt6_a_log_that_is_cut_in_the_midst_of_a_long_pass_is_not_judged() -> None:
    a_pass = LongPass(retention_bytes="100")
    assert not a_pass.step(1, deletes=False)
    a_pass.cut(2)
    assert not a_pass.step(1_000, deletes=False)


def test_rt6_a_pass_of_an_earlier_life_says_nothing() -> None:
    a_pass = LongPass(retention_bytes="150")
    assert not a_pass.step(1, deletes=False)
    jury = a_pass.jury
    fired, timer = TimerFired(key=RETENTION_TIMER), SetTimer(key=RETENTION_TIMER, at_ms=10**15)
    a_pass._checker.on_step((1, 3), a_pass.setup.broker, a_pass.setup.now_ms, (fired,), (timer,))
    assert [each.checker for each in jury.violations] == ["retention-due"]


def test_rt2_a_long_pass_over_a_log_that_commits_less_in_its_midst_asks_for_no_more() -> None:
    """A follower takes over the high watermark of a new leader, which may have heard of less."""
    a_pass = LongPass(retention_bytes="150")
    marks = a_pass.setup.broker.replicas()[T0].log.marks
    assert not a_pass.step(1, deletes=False)
    marks.update_high_watermark(0)
    assert not a_pass.step(1, deletes=False)
    # It may have risen again when the pass ends, and had visited the log before.
    marks.update_high_watermark(4)
    assert not a_pass.step(1_000, deletes=False)
    assert a_pass.step(1_000, deletes=False)


def test_rt8_all_segments_are_deleted_where_all_are_too_old() -> None:
    """The log rolls before its active segment goes."""
    setup = leading(retention_ms="1000")
    log = setup.broker.replicas()[T0].log
    assert not found(setup, 1_001)
    assert log.log_start_offset == log.log_end_offset == 4
    setup = leading(retention_ms="1000")
    keep_active = Retention.deletable

    def deletable(self: Retention, *arguments: object) -> list[LogSegment]:
        return [each for each in keep_active(self, *arguments) if each.base_offset < 3]  # type: ignore[arg-type]

    with patch.object(Retention, "deletable", deletable):
        (what,) = found(setup, 1_001)
    assert what.endswith("its last record is 1001 ms old, retention.ms is 1000")


def found_by_cleaner(setup: BrokerSetup, effects: list[Effect]) -> list[str]:
    """Returns what is wrong with a step of the cleaner's timer that has these effects."""
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    timer = (TimerFired(key=CLEANER_TIMER),)
    DueRetention(jury).on_step(LIFE, setup.broker, setup.now_ms, timer, effects)
    return [each.what for each in jury.violations]


def test_cl6_a_compacted_log_is_shortened_by_the_cleaner() -> None:
    setup = leading(retention_ms="1000", cleanup_policy="compact,delete", min_cleanable_dirty_ratio="1")
    setup.now_ms += 1_001
    (what,) = found_by_cleaner(setup, [])
    assert what.endswith("its last record is 1001 ms old, retention.ms is 1000")
    # A round of compaction comes first, and a step that has no more room goes on at the next timer.
    assert not found_by_cleaner(setup, [RunJob(job=1, kind="compact", work=lambda: None)])
    many = setup.broker.config.steps.segments
    told = Observe(kind="log.segments_deleted", fields=(("segments", many),), metadata_offset=0)
    assert not found_by_cleaner(setup, [told])
    assert not found_by_cleaner(setup, list(setup.fire(CLEANER_TIMER, 0)))


def test_rt4_a_log_that_is_only_compacted_keeps_its_segments() -> None:
    assert not found_by_cleaner(leading(retention_bytes="0", cleanup_policy="compact"), [])


def test_cl6_a_log_that_cannot_be_cleaned_is_left_alone() -> None:
    setup = leading(retention_bytes="0", cleanup_policy="compact,delete")
    log = setup.broker.replicas()[T0].log
    assert found_by_cleaner(setup, [])
    setup.broker.maintenance.cleaner_of(log).mark_uncleanable(key_of(log), OSError("rot"))
    assert not found_by_cleaner(setup, [])


def test_the_end_of_a_pass_whose_begin_was_not_seen_is_not_judged() -> None:
    """A disk refused calls as it began, and does so no more: its last step looks like a whole pass."""
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    setup, checker = leading(retention_bytes="0"), DueRetention(jury)
    fired = (TimerFired(key=RETENTION_TIMER),)
    goes_on = SetTimer(key=RETENTION_TIMER, at_ms=setup.now_ms + 1)
    checker.on_unseen(LIFE)
    for effects in ((goes_on,), ()):
        checker.on_step(LIFE, setup.broker, setup.now_ms, fired, effects)
    assert not jury.violations
    checker.on_step(LIFE, setup.broker, setup.now_ms, fired, ())
    assert jury.violations
