"""A blocking consumer whose caller is interrupted, as by Ctrl-C, loses nothing that it had fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cluster.core.client.effects import EndOfPartition, Fetched, PositionLost
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import TopicPartition
from cluster.shell.clients import Consumer, ConsumerEvent
from cluster.shell.clients.backlog import PAUSE_AT_RECORDS
from cluster.shell.clients.loop_thread import LoopThread
from storage.batch.record import Record

NOWHERE = "127.0.0.1:1"
PLACE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


def fetched(first: int, count: int = 2, place: TopicPartition = PLACE) -> Fetched:
    records = tuple(Record(offset=first + n, timestamp=0, key=None, value=b"v") for n in range(count))
    return Fetched(
        topic_partition=place, records=records, high_watermark=0, next_offset=first + count, leader_epoch=0
    )


@contextmanager
def consumer_with(*events: ConsumerEvent) -> Iterator[Consumer]:
    """A consumer that nobody answers, with events that wait for its user."""
    with Consumer(NOWHERE) as consumer:
        consumer.assign([(PLACE, 0), (OTHER, 0)])
        for event in events:
            bring(consumer, event)
        yield consumer


def bring(consumer: Consumer, event: ConsumerEvent) -> None:
    consumer._do(lambda: consumer._consumer._on_notice(event))


def interrupt(consumer: Consumer, read: Callable[[Consumer], object], patch: pytest.MonkeyPatch) -> None:
    """Call `read`, whose caller is interrupted as soon as the loop's thread has taken what it returns."""
    call = LoopThread.call

    def interrupted(self: LoopThread, coroutine: Any) -> None:
        call(self, coroutine)
        raise KeyboardInterrupt

    with patch.context() as patched:
        patched.setattr(LoopThread, "call", interrupted)
        with pytest.raises(KeyboardInterrupt):
            read(consumer)


def next_event(consumer: Consumer) -> ConsumerEvent | None:
    return consumer.next_event(10)


def offsets(consumer: Consumer) -> list[int]:
    return [record.offset for _, record in consumer.poll(0)]


@pytest.mark.parametrize(
    "event", [fetched(5), EndOfPartition(topic_partition=PLACE, offset=3)], ids=["records", "end"]
)
def test_an_event_whose_caller_was_interrupted_is_the_next_one_again(
    event: ConsumerEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = fetched(9)
    with consumer_with(event, later) as consumer:
        interrupt(consumer, next_event, monkeypatch)
        interrupt(consumer, next_event, monkeypatch)
        assert [consumer.next_event(10) for _ in range(2)] == [event, later]
        assert consumer.next_event(0) is None


def test_poll_and_iteration_return_it_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    with consumer_with(fetched(5, 3), fetched(8)) as consumer:
        assert [record.offset for _, record in consumer.poll(0, max_records=1)] == [5]
        interrupt(consumer, next_event, monkeypatch)
        # The first three are of an event that `poll` has begun.
        assert offsets(consumer) == [6, 7]
        assert offsets(consumer) == [8, 9]
    with consumer_with(fetched(5)) as consumer:
        interrupt(consumer, next_event, monkeypatch)
        assert next(iter(consumer))[1].offset == 5


def test_a_lost_position_is_told_by_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = PositionLost(topic_partition=PLACE, offset=7, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    with consumer_with(lost) as consumer:
        interrupt(consumer, next_event, monkeypatch)
        with pytest.raises(ClusterError, match="OFFSET_OUT_OF_RANGE: orders-0 at offset 7"):
            consumer.poll(0)


def test_the_position_is_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with consumer_with(fetched(5)) as consumer:
        interrupt(consumer, next_event, monkeypatch)
        assert consumer.positions()[PLACE] == 5


def test_what_a_seek_or_an_assignment_drops_it_drops_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with consumer_with(fetched(5)) as consumer:
        interrupt(consumer, next_event, monkeypatch)
        consumer.seek(OTHER, 0)
        assert consumer.positions()[PLACE] == 5
        consumer.seek(PLACE, 1)
        assert consumer.next_event(0) is None
    with consumer_with(fetched(5)) as consumer:
        interrupt(consumer, next_event, monkeypatch)
        consumer.assign([(OTHER, 0)])
        assert consumer.next_event(0) is None


def test_it_counts_among_the_records_that_wait_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with consumer_with(fetched(0, PAUSE_AT_RECORDS + 1)) as consumer:
        positions = consumer._consumer.core._positions
        assert positions[PLACE].is_paused
        interrupt(consumer, next_event, monkeypatch)
        assert not positions[PLACE].is_paused
        consumer.positions()
        assert positions[PLACE].is_paused
        assert consumer.next_event(10) is not None
        assert not positions[PLACE].is_paused
