"""A broker flushes a log as flush.messages or flush.ms says, on the clock of the broker."""

from __future__ import annotations

from dataclasses import replace
from typing import final

import pytest

from cluster.core.messages import TopicPartition
from cluster.core.metadata.records import PartitionRecord, TopicRecord
from cluster.core.replica.replica import Replica
from sim.checkers.base import Jury
from sim.checkers.due_flushes import DueFlushes
from sim.checkers.ghost import Ghost
from storage.batch import Record, build_batch
from tests.cluster.broker.setup import BrokerSetup

T0 = TopicPartition("t", 0)
LIFE = (1, 1)


@final
class Watched:
    """A log that nobody flushes unless the test does, and the looks at it."""

    def __init__(self, **configs: str) -> None:
        self.setup = BrokerSetup()
        dotted = tuple((key.replace("_", "."), value) for key, value in configs.items())
        self.setup.boot(
            TopicRecord(name="t", topic_id="1f" * 16, configs=dotted),
            PartitionRecord(topic="t", partition=0, replicas=(1,), isr=(1,), leader=1),
        )
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self._checker = DueFlushes(self.jury)
        self.now_ms = 1_000

    @property
    def replica(self) -> Replica:
        return self.setup.broker.replicas()[T0]

    def append(self, count: int = 1) -> None:
        records = [Record(number, self.setup.now_ms, b"k", b"v") for number in range(count)]
        self.replica.log.appends.as_leader(build_batch(records), leader_epoch=0, now_ms=self.setup.now_ms)

    def look(self, after_ms: int = 0, *, is_timer: bool = False) -> list[str]:
        """Returns what is wrong with the log after so much time."""
        self.now_ms += after_ms
        before = len(self.jury.violations)
        self._checker.look(LIFE, self.setup.broker.replicas(), self.now_ms, is_timer=is_timer)
        assert all(each.checker == "flush-due" for each in self.jury.violations)
        return [each.what for each in self.jury.violations[before:]]


def test_fl1_a_log_with_as_many_records_as_flush_messages_is_flushed() -> None:
    log = Watched(flush_messages="3")
    log.append()
    assert not log.look()
    log.append()
    assert not log.look()
    log.append()
    assert log.look() == [
        "t-0: broker 1 does not flush its log; 3 records are not on its disk, flush.messages is 3"
    ]
    log.replica.log.flushes.flush()
    assert not log.look()


def test_fl1_a_log_that_is_being_flushed_is_not_due() -> None:
    log = Watched(flush_messages="2")
    log.append()
    assert not log.look()
    log.append()
    log.replica.is_flushing = True
    assert not log.look()


def test_fl1_the_records_before_the_property_was_set_wait_for_an_append() -> None:
    log = Watched()
    log.append(5)
    assert not log.look()
    local = log.replica.log.local
    local.config = replace(local.config, flush_messages=2)
    assert not log.look() and not log.look()
    log.append()
    assert log.look()


def test_fl1_the_same_record_does_not_stay_for_flush_ms() -> None:
    log = Watched(flush_ms="100")
    log.append()
    assert not log.look(is_timer=True)
    # The timer that looks at it has not gone off.
    assert not log.look(100)
    log.append()
    assert log.look(is_timer=True) == [
        "t-0: broker 1 does not flush its log; offset 0 is not on its disk for 100 ms, flush.ms is 100"
    ]


@pytest.mark.parametrize(("after_ms", "is_due"), [(99, False), (100, True)])
def test_fl1_flush_ms_counts_from_the_last_flush(after_ms: int, *, is_due: bool) -> None:
    log = Watched(flush_ms="100")
    log.append()
    assert not log.look()
    log.replica.log.flushes.flush()
    log.append()
    assert not log.look(50)
    assert bool(log.look(after_ms, is_timer=True)) == is_due


def test_fl1_a_clock_that_is_set_back_makes_nothing_due() -> None:
    """The last flush was at a time that comes again."""
    log = Watched(flush_ms="100")
    log.append()
    assert not log.look()
    log.replica.log.flushes.flush()
    assert not log.look()
    log.append()
    assert not log.look(-500, is_timer=True)
    assert not log.look(599, is_timer=True)
    assert log.look(1, is_timer=True)
