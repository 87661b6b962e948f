"""Appends as a leader and as a follower. Kafka: UnifiedLogTest; rules AP1 to AP12, FET-9."""

from __future__ import annotations

import pytest

from storage.batch import Compression, RecordBatch, iterate_batches, stamp
from storage.cleaner.rebuild import empty_batch
from storage.config import LogConfig
from storage.errors import (
    CorruptBatch,
    InvalidProducerEpoch,
    InvalidRecord,
    OffsetsExhausted,
    OffsetsOutOfOrder,
    OutOfOrderSequence,
    RecordBatchTooLarge,
    RecordTooLarge,
    SegmentOffsetOverflow,
    StorageError,
    UnexpectedAppendOffset,
)
from storage.log import AppendInfo, AppendOrigin
from storage.validation.analysis import analyze
from tests.storage.log.appends import INT_MAX, follow, lead
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    ROOMY,
    SIZE,
    all_bytes,
    append_each,
    batch,
    new_disk,
    new_file_system,
    open_log,
    produced,
    read_offsets,
)
from tests.storage.validation.produced_sets import sent


def stamped(data: bytes, epoch: int) -> bytes:
    changed = bytearray(data)
    stamp(changed, 0, partition_leader_epoch=epoch)
    return bytes(changed)


def flip(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :]


# As a leader


def test_ap7_a_leader_assigns_offsets_from_the_log_end_on_and_stamps_its_epoch() -> None:
    log = open_log(new_file_system())
    first = lead(log, produced(3), epoch=4)
    second = lead(log, produced(2), epoch=5)
    assert (first.first_offset, first.last_offset) == (0, 2)
    assert (second.first_offset, second.last_offset, second.batch_count) == (3, 4, 1)
    batches = list(iterate_batches(all_bytes(log)))
    assert [(each.base_offset, each.last_offset, each.partition_leader_epoch) for each in batches] == [
        (0, 2, 4),
        (3, 4, 5),
    ]
    assert all(each.is_valid() for each in batches)
    assert [tuple(entry) for entry in log.epochs.entries] == [(4, 0), (5, 3)]


def test_a_leader_does_not_touch_the_bytes_it_was_given() -> None:
    log = open_log(new_file_system())
    append_each(log, 2)
    data = produced(2)
    copy = bytes(data)
    lead(log, data)
    assert data == copy


def test_ap2_a_client_batch_must_begin_at_0() -> None:
    log = open_log(new_file_system())
    with pytest.raises(InvalidRecord):
        lead(log, batch(5))
    assert log.log_end_offset == 0 and log.local.segments.size_bytes == 0


def test_ap2_a_batch_above_max_message_bytes_is_refused_from_a_client_and_taken_from_a_leader() -> None:
    size = len(batch(0, value_bytes=100))
    log = open_log(new_file_system(), LogConfig(max_message_bytes=size - 1, segment_index_bytes=1200))
    with pytest.raises(RecordTooLarge):
        lead(log, produced(value_bytes=100))
    assert log.local.segments.size_bytes == 0 and log.log_end_offset == 0
    assert follow(log, batch(0, value_bytes=100)).last_offset == 0


@pytest.mark.parametrize("position", [21, 40, 61, 70])
def test_ap2_the_checksum_is_checked_before_anything_is_written(position: int) -> None:
    log = open_log(new_file_system())
    with pytest.raises(CorruptBatch):
        lead(log, flip(produced(), position))
    with pytest.raises(CorruptBatch):
        follow(log, batch(0) + flip(batch(1), position))
    assert log.local.segments.size_bytes == 0 and log.log_end_offset == 0 and log.epochs.latest_epoch is None


def test_ap10_a_set_above_segment_bytes_is_refused() -> None:
    log = open_log(new_file_system(), LogConfig(segment_bytes=200, segment_index_bytes=1200))
    with pytest.raises(RecordBatchTooLarge):
        lead(log, produced(value_bytes=200))
    with pytest.raises(RecordBatchTooLarge):
        follow(log, batch(0, value_bytes=200))
    assert log.local.segments.size_bytes == 0 and log.log_end_offset == 0


def test_nothing_whole_is_nothing_appended() -> None:
    log = open_log(new_file_system())
    assert lead(log, b"").is_empty and follow(log, b"").is_empty
    assert follow(log, batch(0)[:-1]).is_empty
    assert log.log_end_offset == 0


def test_a_compacted_topic_refuses_a_record_without_a_key() -> None:
    log = open_log(new_file_system(), LogConfig(cleanup_policy="compact", segment_index_bytes=1200))
    with pytest.raises(InvalidRecord):
        lead(log, produced())


def test_log_append_time_is_stamped_and_reported() -> None:
    log = open_log(
        new_file_system(), LogConfig(message_timestamp_type="LogAppendTime", segment_index_bytes=1200)
    )
    info = log.append_as_leader(produced(timestamp=5), leader_epoch=0, now_ms=NOW_MS + 9)
    assert info.log_append_time_ms == info.max_timestamp == NOW_MS + 9
    assert next(iterate_batches(all_bytes(log))).max_timestamp == NOW_MS + 9


def test_a_raft_leader_keeps_its_offsets_and_never_goes_back() -> None:
    log = open_log(new_file_system())

    def raft(data: bytes, epoch: int = 3) -> AppendInfo:
        return log.append_as_leader(data, leader_epoch=epoch, now_ms=NOW_MS, origin=AppendOrigin.RAFT_LEADER)

    assert raft(batch(0, 3, epoch=3)).last_offset == 2
    with pytest.raises(UnexpectedAppendOffset):
        raft(batch(1, 3, epoch=3))
    with pytest.raises(InvalidRecord):
        raft(batch(3, 3, epoch=2))
    assert raft(batch(3, 3, epoch=3)).last_offset == 5 and log.log_end_offset == 6


# As a follower


def test_ap8_a_follower_keeps_offsets_and_allows_gaps_upward() -> None:
    log = open_log(new_file_system())
    data = batch(0, 2, epoch=1) + batch(5, 1, epoch=1) + batch(9, 2, epoch=3)
    info = follow(log, data)
    assert (info.first_offset, info.last_offset, info.batch_count) == (0, 10, 3)
    assert info.last_leader_epoch == 3
    assert all_bytes(log) == data and log.log_end_offset == 11
    assert read_offsets(log) == [0, 1, 5, 9, 10]
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0), (3, 9)]


def test_ap8_a_follower_refuses_offsets_below_the_log_end() -> None:
    log = open_log(new_file_system())
    follow(log, batch(0, 5))
    for first in (0, 4):
        with pytest.raises(UnexpectedAppendOffset):
            follow(log, batch(first, 5))
    assert log.log_end_offset == 5


def test_ap8_an_empty_log_that_starts_at_7_refuses_4() -> None:
    log = open_log(new_file_system(), log_start_offset=7)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    with pytest.raises(UnexpectedAppendOffset):
        follow(log, batch(4, 3))


@pytest.mark.covers(
    "UnifiedLogTest.testAppendEmptyLogBelowLogStartOffsetThrowsException",
    "UnifiedLogTest.testAppendBelowExpectedOffsetThrowsException",
)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_ap8_the_error_names_the_refused_offsets(magic: int, codec: Compression) -> None:
    """A follower without records may begin its log at the offsets that the error names (KAFKA-6975)."""
    log = open_log(new_file_system(), log_start_offset=7)
    data = sent(magic, codec, first_offset=4)
    if magic == 2:
        data = stamped(data, epoch=0)
    with pytest.raises(UnexpectedAppendOffset) as caught:
        follow(log, data)
    assert (caught.value.first_offset, caught.value.last_offset) == (4, 6)
    assert log.local.segments.size_bytes == 0 and log.log_end_offset == 7


LAST = 2**63 - 1


def test_ap8_no_append_passes_the_last_offset() -> None:
    for base_offset in (LAST - 1, LAST):
        log = open_log(new_file_system(), log_start_offset=LAST - 3)
        with pytest.raises(OffsetsExhausted, match=f"the last possible offset is {LAST}"):
            follow(log, batch(base_offset, 2))
        assert (
            log.local.segments.size_bytes == 0
            and log.epochs.latest_epoch is None
            and log.log_end_offset == LAST - 3
        )
        assert log.local.segments.base_offsets == [LAST - 3]


def test_ap7_a_leader_assigns_no_offset_beyond_the_last() -> None:
    log = open_log(new_file_system(), log_start_offset=LAST - 3)
    assert lead(log, produced(2)).last_offset == LAST - 2
    size = log.local.segments.size_bytes
    for data in (produced(2), produced(2, producer_id=9, producer_epoch=0, sequence=0)):
        with pytest.raises(OffsetsExhausted):
            lead(log, data)
    assert (log.log_end_offset, log.local.segments.size_bytes) == (LAST - 1, size)
    assert not log.producers.producers
    assert lead(log, produced(1)).last_offset == LAST - 1
    assert log.log_end_offset == LAST and log.online.reason is None
    with pytest.raises(OffsetsExhausted):
        lead(log, produced(1))
    log.close()


def test_ap4_offsets_that_go_back_within_a_set_are_refused() -> None:
    log = open_log(new_file_system())
    with pytest.raises(OffsetsOutOfOrder):
        follow(log, b"".join(batch(offset) for offset in (0, 1, 3, 2, 4)))
    assert log.log_end_offset == 0 and log.local.segments.size_bytes == 0 and log.epochs.latest_epoch is None


@pytest.mark.parametrize("rest", [b"", batch(0)])
def test_ap4_a_set_whose_first_batch_ends_below_0_is_refused(rest: bytes) -> None:
    log = open_log(new_file_system())
    below = bytearray(batch(0))
    stamp(below, 0, base_offset=-1)
    with pytest.raises(OffsetsOutOfOrder):
        follow(log, bytes(below) + rest)
    assert (log.log_end_offset, log.local.segments.size_bytes) == (0, 0)


def test_t32_a_batch_that_no_leader_has_stamped_is_refused() -> None:
    log = open_log(new_file_system())
    with pytest.raises(InvalidRecord):
        follow(log, batch(0, epoch=-1))
    assert log.local.segments.size_bytes == 0


def test_fet9_batches_of_a_later_epoch_than_the_fetch_was_sent_in_are_skipped() -> None:
    log = open_log(new_file_system())
    tail = batch(3, epoch=8) + batch(4, epoch=8)
    info = follow(log, batch(0, 3, epoch=7) + tail, epoch=7)
    assert (info.last_offset, info.skipped_bytes) == (2, len(tail))
    assert log.log_end_offset == 3 and log.epochs.latest_epoch == 7
    assert all_bytes(log) == batch(0, 3, epoch=7)
    info = follow(log, tail, epoch=7)
    assert info.is_empty and info.skipped_bytes == len(tail) and log.log_end_offset == 3


@pytest.mark.parametrize("before", [0, 1, 3])
def test_fr10_a_last_batch_of_a_fetch_that_ends_at_any_byte_is_left_out(before: int) -> None:
    whole = b"".join(batch(offset) for offset in range(before))
    for end in range(SIZE):
        found = analyze(whole + batch(before)[:end], 0)
        assert (bytes(found.records), len(found.columns)) == (whole, before), end


@pytest.mark.parametrize("before", [b"", batch(0, epoch=2)])
def test_ap9_a_last_batch_that_compaction_has_emptied_has_an_epoch_and_a_producer_like_any(
    before: bytes,
) -> None:
    """It ends with its header, which is the least that a batch of magic 2 has."""
    (whole,) = iterate_batches(batch(1, 2, epoch=3, producer_id=7, producer_epoch=0, sequence=4))
    found = analyze(before + empty_batch(whole), leader_epoch=3)
    assert found.epoch_starts == ([(2, 0)] if before else []) + [(3, 1)]
    assert (found.leader_epoch, found.first_offset, found.last_offset) == (3, 0 if before else 1, 2)
    assert [each.last_sequence for each in found.producer_batches] == [5]


def test_an_incomplete_last_batch_of_a_fetch_is_left_out() -> None:
    log = open_log(new_file_system())
    whole = batch(0, 2)
    info = follow(log, whole + batch(2, 2)[:50])
    assert info.last_offset == 1 and all_bytes(log) == whole


def test_a_set_of_many_batches_is_one_write() -> None:
    disk = new_disk()
    log = open_log(new_file_system(disk), ROOMY)
    follow(log, batch(0))
    disk.call_log = []
    follow(log, b"".join(batch(offset) for offset in range(1, 30)))
    assert [line.split()[0] for line in disk.call_log] == ["write_at"]


def test_ls1_an_offset_that_does_not_fit_the_segment_rolls_a_new_one() -> None:
    log = open_log(new_file_system())
    follow(log, batch(10))
    # The delta of 2^31-1 from base 0 is legal.
    assert follow(log, batch(INT_MAX)).has_rolled is False
    info = follow(log, batch(INT_MAX + 1))
    assert info.has_rolled and log.local.segments.base_offsets == [0, INT_MAX + 1]


def test_a_set_that_spans_more_than_the_relative_bits_is_refused_before_a_byte_is_written() -> None:
    log = open_log(new_file_system())
    with pytest.raises(SegmentOffsetOverflow):
        follow(log, batch(0) + batch(INT_MAX + 1))
    assert log.local.segments.size_bytes == 0 and log.log_end_offset == 0


def test_a_follower_of_a_batch_with_records_taken_out_reads_them_as_they_are() -> None:
    log = open_log(new_file_system())
    follow(log, batch(3, offsets=[4, 7]))
    assert log.log_end_offset == 8 and read_offsets(log) == [4, 7]


# Producers


def sequenced(sequence: int, count: int = 1, producer_epoch: int = 0) -> bytes:
    return produced(count, producer_id=9, producer_epoch=producer_epoch, sequence=sequence)


def test_ap12_a_repeat_of_the_last_five_batches_returns_the_old_offsets_and_writes_nothing() -> None:
    log = open_log(new_file_system(), ROOMY)
    for sequence in range(6):
        lead(log, sequenced(sequence))
    size = log.local.segments.size_bytes
    for sequence in range(1, 6):
        info = lead(log, sequenced(sequence))
        assert info.is_duplicate and (info.first_offset, info.last_offset) == (sequence, sequence)
    assert log.local.segments.size_bytes == size and log.log_end_offset == 6
    with pytest.raises(OutOfOrderSequence):
        lead(log, sequenced(0))


def test_ap12_a_repeat_returns_offsets_and_time_of_the_first_append_and_its_own_timestamp() -> None:
    log = open_log(
        new_file_system(), LogConfig(segment_index_bytes=1200, message_timestamp_type="LogAppendTime")
    )
    lead(log, sequenced(0))
    info = log.append_as_leader(sequenced(0), leader_epoch=0, now_ms=NOW_MS + 500)
    assert info.is_duplicate
    assert (info.first_offset, info.log_append_time_ms, info.max_timestamp) == (0, NOW_MS, NOW_MS + 500)


def test_a_gap_in_the_sequence_is_refused() -> None:
    log = open_log(new_file_system())
    lead(log, sequenced(0))
    with pytest.raises(OutOfOrderSequence):
        lead(log, sequenced(2))
    assert log.log_end_offset == 1


def test_an_old_producer_epoch_is_refused() -> None:
    log = open_log(new_file_system())
    lead(log, sequenced(0, producer_epoch=1))
    with pytest.raises(InvalidProducerEpoch):
        lead(log, sequenced(1, producer_epoch=0))


def test_t34_a_follower_takes_what_its_leader_took() -> None:
    log = open_log(new_file_system())
    follow(log, batch(0, producer_id=9, producer_epoch=0, sequence=0))
    follow(log, batch(1, producer_id=9, producer_epoch=0, sequence=0))
    assert log.log_end_offset == 2


def test_a_refused_append_leaves_no_trace_of_its_producer() -> None:
    log = open_log(new_file_system())
    lead(log, sequenced(0))
    with pytest.raises(OutOfOrderSequence):
        lead(log, sequenced(5))
    assert lead(log, sequenced(1)).last_offset == 1


def test_a_duplicate_is_known_again_after_a_clean_and_an_unclean_reopening() -> None:
    file_system = new_file_system()
    log = open_log(file_system)
    for sequence in range(3):
        lead(log, sequenced(sequence))
    log.close_handles()
    log = open_log(file_system)
    assert lead(log, sequenced(2)).is_duplicate
    log.close()
    log = open_log(file_system, clean=True)
    assert lead(log, sequenced(2)).is_duplicate
    assert not lead(log, sequenced(3)).is_duplicate


# When the disk fails


def test_ap16_a_failed_write_takes_the_log_offline_and_nothing_was_appended() -> None:
    disk = new_disk()
    file_system = new_file_system(disk)
    log = open_log(file_system)
    append_each(log, 2)
    disk.fail(1, verbs={"write_at"}, path_suffix=".log", applied_bytes=30)
    with pytest.raises(StorageError):
        lead(log, produced())
    assert log.online.reason is not None
    for call in (
        lambda: lead(log, produced()),
        lambda: log.read(0, max_size=10),
        lambda: log.truncate_to(0, now_ms=NOW_MS),
    ):
        with pytest.raises(StorageError):
            call()
    log.close_handles()
    again = open_log(file_system)
    assert again.log_end_offset == 2 and read_offsets(again) == [0, 1]


def test_the_view_of_an_appended_batch_is_the_batch_read() -> None:
    log = open_log(new_file_system())
    lead(log, produced(4), epoch=2)
    data = log.read(0, max_size=10_000).records
    assert RecordBatch(data, 0, len(data)).record_count == 4
    assert log.directory == DIRECTORY and (log.topic, log.partition) == ("topic", 0)
