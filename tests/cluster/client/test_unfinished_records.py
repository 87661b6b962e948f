"""The records of a producer without an outcome, and which flush waits for which of them."""

from __future__ import annotations

import pytest

from cluster.core.client.effects import Flushed
from cluster.core.client.unfinished_records import UnfinishedRecords


def test_records_and_their_bytes_are_counted_until_they_have_their_outcome() -> None:
    unfinished = UnfinishedRecords()
    for size_bytes in (10, 20, 30):
        unfinished.add(size_bytes)
    assert (unfinished.count, unfinished.size_bytes, unfinished.is_empty) == (3, 60, False)
    unfinished.end(0, 2, 30)
    assert (unfinished.count, unfinished.size_bytes, unfinished.is_empty) == (1, 30, False)
    unfinished.end(0, 1, 30)
    assert (unfinished.count, unfinished.size_bytes, unfinished.is_empty) == (0, 0, True)


def test_a_flush_without_records_ends_at_once() -> None:
    unfinished = UnfinishedRecords()
    unfinished.begin_flush(7)
    assert unfinished.is_flushing
    assert unfinished.end_flushes() == [Flushed(ticket=7)]
    assert not unfinished.is_flushing
    assert unfinished.end_flushes() == []


def test_a_flush_waits_for_the_records_before_it_and_for_no_later_one() -> None:
    unfinished = UnfinishedRecords()
    unfinished.add(10)
    unfinished.begin_flush(1)
    unfinished.add(20)
    assert unfinished.end_flushes() == []
    unfinished.end(0, 1, 10)
    assert unfinished.end_flushes() == [Flushed(ticket=1)]
    assert (unfinished.count, unfinished.size_bytes) == (1, 20)


def test_a_later_flush_waits_for_the_records_before_the_earlier_one_too() -> None:
    unfinished = UnfinishedRecords()
    unfinished.add(10)
    unfinished.begin_flush(1)
    unfinished.add(20)
    unfinished.begin_flush(2)
    unfinished.end(1, 1, 20)
    assert unfinished.end_flushes() == []
    unfinished.end(0, 1, 10)
    assert unfinished.end_flushes() == [Flushed(ticket=1), Flushed(ticket=2)]


def test_flushes_in_turn_each_begin_a_generation() -> None:
    unfinished = UnfinishedRecords()
    for ticket in (1, 2, 3):
        assert unfinished.generation == ticket - 1
        unfinished.begin_flush(ticket)
    assert [each.ticket for each in unfinished.end_flushes()] == [1, 2, 3]


def test_more_records_or_bytes_than_were_sent_cannot_end() -> None:
    unfinished = UnfinishedRecords()
    unfinished.add(10)
    with pytest.raises(AssertionError):
        unfinished.end(0, 2, 10)
    unfinished = UnfinishedRecords()
    unfinished.add(10)
    with pytest.raises(AssertionError):
        unfinished.end(0, 1, 11)
