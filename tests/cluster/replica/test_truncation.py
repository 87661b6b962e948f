"""The offset at which a follower cuts (EPC).

Its log is written as epochs and sizes; the leader's answers come by hand.
"""

from __future__ import annotations

import errno
from contextlib import AbstractContextManager, nullcontext
from typing import cast

import pytest

from cluster.core.bounds import StepBounds
from cluster.core.effects import Send
from cluster.core.errors import ErrorCode
from cluster.core.messages import NO_EPOCH, FetchRequest
from cluster.core.replica.follower import FetchState
from cluster.core.replica.truncation import InFetchTruncation
from storage.batch import Record, build_batch, stamp
from storage.disk.filesystem import FileSystem, OpenMode
from storage.errors import StorageError
from tests.cluster.replica.setup import T0, Setup, asked_of, diverging, observed, only_sent, sent, stamped

USUAL = StepBounds()
# What one step cuts off at most.
SEGMENTS = USUAL.segments


def following(
    *history: tuple[int, int],
    high_watermark: int = 0,
    steps: StepBounds = USUAL,
    more_directories: tuple[str, ...] = (),
) -> tuple[Setup, Send]:
    """Return a follower of leader epoch 9, with a fetch in flight.

    `history` is its log: pairs of an epoch and a number of batches of one record.
    """
    setup = Setup(*more_directories, steps=steps)
    send = only_sent(setup.place(leader=2, leader_epoch=9), FetchRequest)
    offset = 0
    for epoch, count in history:
        records = b"".join(stamped(offset + index, epoch, b"%d" % epoch) for index in range(count))
        offset += count
        effects = setup.answer_fetch(send, records=records, high_watermark=high_watermark)
        send = only_sent(effects, FetchRequest)
    return setup, send


def test_epc2_a_known_epoch_is_cut_to_the_lower_of_both_ends() -> None:
    setup, send = following((1, 5), (2, 5))
    effects = setup.answer_fetch(send, diverging=diverging(2, 7))
    assert setup.end == 7
    assert observed(effects, "replica.truncated") == [
        {"topic_partition": "t-0", "to_offset": 7, "from_log_end_offset": 10, "leader_epoch": 9}
    ]
    setup, send = following((1, 5), (2, 5))
    # The leader has more of epoch 1 than we have.
    setup.answer_fetch(send, diverging=diverging(1, 8))
    assert setup.end == 5


def with_many_segments(segments: int) -> tuple[Setup, Send]:
    """Return a follower with a segment for each of its records, all of epoch 2, and a fetch in flight."""
    setup, send = following()
    for offset in range(segments):
        send = only_sent(setup.answer_fetch(send, records=stamped(offset, 2, b"x")), FetchRequest)
        if offset < segments - 1:
            setup.replica.log.flushes.roll(now_ms=0)
    assert len(setup.replica.log.local.segments) == segments
    return setup, send


def test_epc2_a_cut_through_many_segments_takes_several_rounds() -> None:
    setup, send = with_many_segments(2 * SEGMENTS + 3)
    ends = []
    for _ in range(3):
        send = only_sent(setup.answer_fetch(send, diverging=diverging(2, 1)), FetchRequest)
        # What is left differs too, and is asked for.
        assert (asked_of(send).fetch_offset, asked_of(send).last_fetched_epoch) == (setup.end, 2)
        ends.append(setup.end)
    # The segment at the cut stays, empty, and is the first of the next round.
    assert ends == [SEGMENTS + 3, 4, 1]


def with_many_producers(producers: int) -> tuple[Setup, Send]:
    """Return a follower with a batch of each producer, all of epoch 2, and a fetch in flight.

    It replays three batches in a step.
    """
    setup, send = following()
    setup.replica.log.truncation.batches_a_slice = 3
    for offset in range(producers):
        batch = bytearray(
            build_batch([Record(0, 0, None, b"x")], producer_id=offset, producer_epoch=0, base_sequence=0)
        )
        stamp(batch, 0, base_offset=offset, partition_leader_epoch=2)
        send = only_sent(setup.answer_fetch(send, records=bytes(batch)), FetchRequest)
    return setup, send


def test_epc2_a_cut_that_replays_many_batches_of_producers_takes_several_rounds() -> None:
    setup, send = with_many_producers(10)
    ends = []
    # The load, then 3, 3 and 2 batches, then the cut.
    for _ in range(5):
        send = only_sent(setup.answer_fetch(send, diverging=diverging(2, 8)), FetchRequest)
        assert (asked_of(send).fetch_offset, asked_of(send).last_fetched_epoch) == (setup.end, 2)
        ends.append(setup.end)
    assert ends == [10, 10, 10, 10, 8]
    assert sorted(setup.replica.log.producers.producers) == list(range(8))


def test_epc2_a_replica_that_becomes_leader_forgets_the_cut_that_it_has_prepared() -> None:
    setup, send = with_many_producers(10)
    setup.answer_fetch(send, diverging=diverging(2, 8))
    truncation = setup.replica.log.truncation
    assert truncation.is_preparing
    setup.place(leader=1, leader_epoch=10)
    assert not truncation.is_preparing
    assert setup.end == 10


def without_epochs(setup: Setup, *, high_watermark: int) -> None:
    log = setup.replica.log
    log.epochs.clear_and_flush()
    log.marks.update_high_watermark(high_watermark)


def test_fet2_a_long_cut_of_a_log_without_epochs_takes_a_step_for_each_slice() -> None:
    setup, _ = with_many_producers(10)
    without_epochs(setup, high_watermark=8)
    effects = setup.place(leader=3, leader_epoch=10)
    # The load is done, then come 3, 3 and 2 batches, and the cut.
    for _ in range(4):
        assert (setup.end, sent(effects, FetchRequest)) == (10, [])
        effects = setup.wait(0, "replica.truncate:t-0")
    send = only_sent(effects, FetchRequest)
    assert (send.to, asked_of(send).fetch_offset, setup.end) == (3, 8, 8)
    assert sorted(setup.replica.log.producers.producers) == list(range(8))


def test_fet2_a_log_of_many_segments_without_epochs_is_cut_in_several_steps() -> None:
    setup, _ = with_many_segments(2 * SEGMENTS + 3)
    without_epochs(setup, high_watermark=1)
    setup.place(leader=3, leader_epoch=10)
    ends = [setup.end]
    while not (fetches := sent(setup.wait(0, "replica.truncate:t-0"), FetchRequest)):
        ends.append(setup.end)
    assert ends == [SEGMENTS + 3, 4]
    assert asked_of(fetches[0]).fetch_offset == setup.end == 1


def test_fet2_a_new_role_ends_a_cut_that_is_on_its_way() -> None:
    setup, _ = with_many_producers(10)
    without_epochs(setup, high_watermark=8)
    setup.place(leader=3, leader_epoch=10)
    setup.place(leader=1, leader_epoch=11)
    assert setup.wait(0, "replica.truncate:t-0") == []
    assert (setup.end, setup.replica.log.truncation.is_preparing) == (10, False)
    assert setup.replica.leader is not None


class LackingDescriptors:
    """A file system that has no descriptor left as long as it `lacks` any."""

    def __init__(self, below: FileSystem) -> None:
        self._below, self.lacks = below, True

    def reserved(self, count: int) -> AbstractContextManager[None]:
        if self.lacks:
            raise OSError(errno.EMFILE, f"{count} are wanted")
        return nullcontext()

    def __getattr__(self, name: str) -> object:
        return getattr(self._below, name)


def test_ap16_a_cut_before_the_first_fetch_that_finds_no_descriptor_is_tried_again() -> None:
    setup, _ = with_many_producers(10)
    without_epochs(setup, high_watermark=9)
    lacking = LackingDescriptors(setup.replica.log.local.file_system)
    setup.replica.log.local.file_system = cast(FileSystem, lacking)
    assert sent(setup.place(leader=3, leader_epoch=10), FetchRequest) == []
    assert sent(setup.wait(1_000, "replica.truncate:t-0"), FetchRequest) == []
    assert (setup.end, setup.replica.log.online.reason) == (10, None)
    lacking.lacks = False
    while not (fetches := sent(setup.wait(1_000, "replica.truncate:t-0"), FetchRequest)):
        assert setup.end == 10
    assert asked_of(fetches[0]).fetch_offset == setup.end == 9


def with_damaged_batch(setup: Setup, number: int) -> None:
    """Spoil the size field of one batch of the log."""
    segment = setup.replica.log.local.segments.active
    size_bytes = len(stamped(0, 1, b"1"))
    assert size_bytes * setup.end == segment.size_bytes
    file = setup.replica.log.local.file_system.open(segment.path, OpenMode.WRITE)
    file.write_at(number * size_bytes + 8, bytes(4))
    file.close()


def test_ap16_a_cut_that_meets_a_damaged_batch_fails_the_partition_and_no_directory() -> None:
    """Kafka: AbstractFetcherThread marks the partition failed. To ask the leader again would not help."""
    setup, send = following((1, 5), (2, 5))
    with_damaged_batch(setup, 3)
    effects = setup.answer_fetch(send, diverging=diverging(2, 7))
    assert len(observed(effects, "replica.failed")) == 1
    assert sent(effects, FetchRequest) == []
    follower = setup.replica.follower
    assert follower is not None and follower.state is FetchState.FAILED
    assert (setup.end, setup.replica.log.online.reason) == (10, None)


def test_ap16_a_cut_before_the_first_fetch_that_meets_a_damaged_batch_fails_the_partition() -> None:
    setup, _ = following((1, 5))
    without_epochs(setup, high_watermark=4)
    with_damaged_batch(setup, 2)
    effects = setup.place(leader=3, leader_epoch=10)
    assert len(observed(effects, "replica.failed")) == 1
    assert sent(effects, FetchRequest) == []
    follower = setup.replica.follower
    assert follower is not None and follower.state is FetchState.FAILED
    assert (setup.end, setup.replica.log.online.reason) == (5, None)
    assert setup.wait(0, "replica.truncate:t-0") == []


def test_pro9_a_disk_that_fails_in_the_cut_of_a_new_epoch_takes_the_replica_offline() -> None:
    setup, _ = following((1, 5), more_directories=("data2",))
    without_epochs(setup, high_watermark=4)
    replica = setup.replica
    setup.disk.fail(1, errno.EIO)
    effects = setup.place(leader=3, leader_epoch=10)
    assert replica.follower is None and replica.log.online.reason is not None
    assert list(setup.manager.context.offline) == [T0]
    assert sent(effects, FetchRequest) == []


def test_pro9_a_disk_that_fails_in_a_cut_of_several_steps_raises_if_it_is_the_last() -> None:
    setup, _ = with_many_segments(2 * SEGMENTS + 3)
    without_epochs(setup, high_watermark=1)
    setup.place(leader=3, leader_epoch=10)
    setup.disk.fail(1, errno.EIO)
    replica = setup.replica
    with pytest.raises(StorageError, match="truncate failed"):
        setup.wait(0, "replica.truncate:t-0")
    assert replica.log.online.reason is not None


def test_fet11_a_follower_far_above_the_leaders_end_is_cut_in_several_rounds() -> None:
    setup, send = with_many_segments(SEGMENTS + 9)
    for expected in (9, 2):
        fields = {"error": ErrorCode.OFFSET_OUT_OF_RANGE, "log_end_offset": 2}
        send = only_sent(setup.answer_fetch(send, **fields), FetchRequest)
        assert (setup.end, asked_of(send).fetch_offset) == (expected, expected)


def test_fet2_a_cut_of_two_segments_a_step_goes_on_below_an_empty_active_segment() -> None:
    setup, send = following(steps=StepBounds(segments=2))
    for offset in range(4):
        send = only_sent(setup.answer_fetch(send, records=stamped(offset, 2, b"x")), FetchRequest)
        setup.replica.log.flushes.roll(now_ms=0)
    assert setup.replica.log.local.segments.active.size_bytes == 0
    ends = []
    while setup.end > 1:
        send = only_sent(setup.answer_fetch(send, diverging=diverging(2, 1)), FetchRequest)
        ends.append(setup.end)
    assert ends == [3, 2, 1]


def test_fet11_a_follower_of_many_segments_starts_again_in_several_rounds() -> None:
    setup, send = with_many_segments(SEGMENTS + 9)
    fields = {"error": ErrorCode.OFFSET_OUT_OF_RANGE, "log_start_offset": 50, "log_end_offset": 60}
    for expected in (9, 50):
        send = only_sent(setup.answer_fetch(send, **fields), FetchRequest)
        assert (setup.end, asked_of(send).fetch_offset) == (expected, expected)
    log = setup.replica.log
    assert (log.log_start_offset, len(log.local.segments)) == (50, 1)


def test_epc9_a_cut_below_the_log_start_makes_the_follower_start_again_at_its_leaders_start() -> None:
    ends_below = {"error": ErrorCode.OFFSET_OUT_OF_RANGE, "log_start_offset": 1, "log_end_offset": 3}
    diverges_below = {"diverging": diverging(1, 3), "log_start_offset": 1, "log_end_offset": 6}
    for fields in (ends_below, diverges_below):
        setup, send = following((2, 5))
        send = only_sent(setup.answer_fetch(send, high_watermark=5, log_start_offset=5), FetchRequest)
        send = only_sent(setup.answer_fetch(send, **fields), FetchRequest)
        log = setup.replica.log
        # At 3 it would lack the records from 1 to 3, which nobody has deleted.
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (1, 1, 1), fields
        assert asked_of(send).fetch_offset == 1


def test_epc2_a_cut_at_or_above_the_log_start_keeps_it() -> None:
    for to_offset in (3, 4):
        setup, send = following((2, 5), high_watermark=3)
        send = only_sent(setup.answer_fetch(send, high_watermark=3, log_start_offset=3), FetchRequest)
        setup.answer_fetch(send, diverging=diverging(2, to_offset), log_start_offset=1)
        log = setup.replica.log
        assert (log.log_start_offset, log.log_end_offset) == (3, to_offset)


def test_epc2_an_unknown_epoch_is_cut_to_the_end_of_our_next_lower_one() -> None:
    setup, send = following((1, 5), (4, 5))
    effects = setup.answer_fetch(send, diverging=diverging(3, 8))
    assert setup.end == 5
    again = asked_of(only_sent(effects, FetchRequest))
    # The truncation is not finished: it asks again.
    assert (again.fetch_offset, again.last_fetched_epoch) == (5, 1)


def test_epc2_an_epoch_below_all_of_the_followers_empties_the_log() -> None:
    setup, send = following((3, 5))
    setup.answer_fetch(send, diverging=diverging(1, 4))
    assert setup.end == 0


def test_epc3_each_round_takes_one_epoch() -> None:
    """KIP-279's schedule: epoch 0 has 0 to 9 in common, then each side has epochs that the other lacks."""
    setup, send = following((0, 10), (2, 10))
    effects = setup.answer_fetch(send, diverging=diverging(1, 15))
    # An answer of "15" alone would have kept 10 to 14 of epoch 2.
    assert setup.end == 10
    again = only_sent(effects, FetchRequest)
    assert asked_of(again).last_fetched_epoch == 0
    setup.answer_fetch(again, records=stamped(10, 1, b"x"))
    assert setup.end == 11


def test_epc3_an_epoch_without_records_is_trimmed_too() -> None:
    setup, _ = following((1, 3))
    # It led, and wrote nothing.
    setup.place(leader=1, leader_epoch=10, partition_epoch=1)
    effects = setup.place(leader=2, leader_epoch=11, partition_epoch=2)
    send = only_sent(effects, FetchRequest)
    assert asked_of(send).last_fetched_epoch == 10
    effects = setup.answer_fetch(send, diverging=diverging(1, 3))
    # It asks with a lower epoch now: the same question would be repeated for ever (KAFKA-10706).
    again = asked_of(only_sent(effects, FetchRequest))
    assert (again.fetch_offset, again.last_fetched_epoch) == (3, 1)
    assert setup.end == 3


def test_epc5_a_new_leader_notes_where_its_epoch_begins() -> None:
    setup, _ = following((1, 3))
    setup.place(leader=1, leader_epoch=10, partition_epoch=1)
    log = setup.replica.log
    # The epoch is noted before anything is appended (KAFKA-7415).
    assert log.epochs.latest_epoch == 10
    assert log.reads.end_offset_for_epoch(10) == (10, 3)
    assert log.reads.end_offset_for_epoch(7) == (1, 3)


def test_epc6_each_leader_epoch_is_checked_be_the_leader_the_same() -> None:
    setup, _ = following((1, 3))
    # The leader is the same, but its epoch is new (KAFKA-7164).
    effects = setup.place(leader=2, leader_epoch=12, partition_epoch=1)
    asked = asked_of(only_sent(effects, FetchRequest))
    assert (asked.current_leader_epoch, asked.last_fetched_epoch) == (12, 1)


def test_epc7_truncation_below_the_own_high_watermark_is_legal() -> None:
    setup, send = following((1, 5), high_watermark=5)
    setup.answer_fetch(send, diverging=diverging(1, 2))
    # The high watermark comes back to the offset, too (EPC-8).
    assert (setup.end, setup.high_watermark) == (2, 2)


def test_follower_truncates_by_epoch_not_to_its_high_watermark() -> None:
    """B-01: the high watermark is one round trip late, so what is above it may be committed."""
    setup, _ = following((1, 5), high_watermark=2)
    setup.place(leader=3, leader_epoch=10, partition_epoch=1)
    assert setup.end == 5
    assert InFetchTruncation().on_new_epoch(setup.replica.log) is None


def test_a_log_that_agrees_is_not_cut() -> None:
    setup, send = following((1, 5))
    setup.answer_fetch(send, records=stamped(5, 9, b"9"), high_watermark=5)
    assert setup.end == 6


def test_an_empty_log_names_no_epoch() -> None:
    _, send = following()
    assert asked_of(send).last_fetched_epoch == NO_EPOCH
