"""The rules of LogValidator on a leader's short way.

The batches have a few records, a run of one shape, several runs, or a shape that is known from the batches before.
"""

from __future__ import annotations

import pytest

from storage.batch import (
    HEADER_SIZE,
    Compression,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
    iterate_batches,
)
from storage.cleaner.chunks import batches_in
from storage.config import LogConfig
from storage.errors import CorruptBatch, InvalidRecord, InvalidTimestamp
from storage.log import PartitionLog
from storage.validation.batch import ValidationRules
from storage.validation.plain import PlainBatches
from tests.storage.log.appends import follow, lead
from tests.storage.logs import NOW_MS, all_bytes, batch, new_file_system, open_log
from tests.storage.validation.produced_sets import poked

# Two are too few for a run, 10 are one run, 70 are two.
COUNTS = [2, 10, 70]
COMPACTED = LogConfig(cleanup_policy="compact")
LIMITED = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)


def opened(config: LogConfig | None = None) -> PartitionLog:
    return open_log(new_file_system(), config or LogConfig())


def plain(
    count: int, key: bytes | None = b"k", odd_time: int = NOW_MS, odd_index: int = 0, time: int = NOW_MS
) -> bytes:
    """Make records of one shape. One of them may have another time."""
    times = [odd_time if index == odd_index else time for index in range(count)]
    return build_batch([Record(index, each, key, b"value") for index, each in enumerate(times)])


def idempotent(sequence: int = 0, producer_id: int = 0) -> bytes:
    return build_batch(
        [Record(0, NOW_MS, b"k", b"value")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )


def stored(log: PartitionLog) -> list[RecordBatch]:
    found = list(iterate_batches(all_bytes(log)))
    for each in found:
        each.check_valid("log")
    return found


def test_ap12_a_retry_of_the_producer_with_id_0_is_known() -> None:
    log = opened()
    lead(log, idempotent())
    again = lead(log, idempotent())
    assert (again.is_duplicate, again.last_offset, log.log_end_offset) == (True, 0, 1)


def test_ap12_a_retry_of_a_rebuilt_batch_is_recognized() -> None:
    log = opened(LogConfig(compression_type="gzip"))
    lead(log, idempotent())
    again = lead(log, idempotent())
    assert (again.is_duplicate, again.last_offset, log.log_end_offset) == (True, 0, 1)


def test_lv6_a_control_batch_of_a_client_is_refused_on_the_short_way() -> None:
    log = opened()
    for count in COUNTS:
        with pytest.raises(InvalidRecord, match="control"):
            lead(log, poked(plain(count), 21, ">h", 0x20))
    assert log.log_end_offset == 0


def test_lv6_a_producer_without_a_sequence_is_refused_on_the_short_way() -> None:
    log = opened()
    for producer_id in (0, 5):
        with pytest.raises(InvalidRecord, match="sequence -1"):
            lead(log, poked(idempotent(0, producer_id), 53, ">i", -1))
    assert log.log_end_offset == 0


@pytest.mark.parametrize("count", COUNTS)
def test_lv8_a_compacted_topic_has_keys_in_every_run(count: int) -> None:
    log = opened(COMPACTED)
    # From the third batch on their shape is known. Their times differ.
    for later in range(4):
        with pytest.raises(InvalidRecord):
            lead(log, plain(count, None, NOW_MS + later, 1))
    assert log.log_end_offset == 0


@pytest.mark.parametrize(("count", "without_key"), [(12, 11), (70, 0), (70, 69)])
def test_lv8_a_record_without_a_key_is_found_among_others_of_another_shape(
    count: int, without_key: int
) -> None:
    """The records before it or after it are a run."""
    first_run = range(64) if without_key == 0 else range(0)
    records = [
        Record(index, NOW_MS, None if index == without_key or index in first_run else b"key", bytes(5))
        for index in range(count)
    ]
    log = opened(COMPACTED)
    with pytest.raises(InvalidRecord):
        lead(log, build_batch(records))
    assert log.log_end_offset == 0


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("others", [0, 970])
def test_lv9_a_time_out_of_range_is_found_in_every_place(count: int, sign: int, others: int) -> None:
    """A time near those of the others takes as many bytes as theirs, one far from them more."""
    for place in {0, 1, count // 2, count - 1}:
        log, time = opened(LIMITED), NOW_MS + sign * others
        lead(log, plain(count, odd_time=NOW_MS + sign * 1000, odd_index=place, time=time))
        with pytest.raises(InvalidTimestamp):
            lead(log, plain(count, odd_time=NOW_MS + sign * 1001, odd_index=place, time=time))
        assert log.log_end_offset == count


@pytest.mark.parametrize("count", COUNTS)
def test_lv9_a_time_out_of_range_is_found_where_the_shape_is_known(count: int) -> None:
    log = opened(LIMITED)
    for _ in range(3):
        lead(log, plain(count, odd_time=NOW_MS - 1000, odd_index=1))
    for step in (-1001, 1001):
        with pytest.raises(InvalidTimestamp):
            lead(log, plain(count, odd_time=NOW_MS + step, odd_index=1))
    assert log.log_end_offset == 3 * count


@pytest.mark.parametrize("count", COUNTS)
def test_lv9_a_client_that_says_log_append_is_taken_as_create_time(count: int) -> None:
    """A time in range passes, and the flag is removed (T30)."""
    log = opened(LIMITED)
    said = poked(poked(plain(count), 21, ">h", 8), 35, ">q", NOW_MS + 7)
    info = lead(log, said)
    (found,) = stored(log)
    assert found.timestamp_type is TimestampType.CREATE and found.attributes == 0
    assert info.max_timestamp == found.max_timestamp == NOW_MS + 7
    with pytest.raises(InvalidTimestamp):
        lead(log, poked(said, 35, ">q", -1))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("epoch", [0, 6])
def test_lv10_offset_and_epoch_are_written_and_the_delta_stays(count: int, epoch: int) -> None:
    log = opened()
    for _ in range(3):
        lead(log, plain(count), epoch)
    found = [(each.base_offset, each.last_offset_delta, each.partition_leader_epoch) for each in stored(log)]
    assert found == [(count * turn, count - 1, epoch) for turn in range(3)]


@pytest.mark.parametrize("count", COUNTS)
def test_lv13_without_a_time_no_offset_has_the_greatest(count: int) -> None:
    info = lead(opened(), plain(count, odd_time=-1, time=-1))
    assert (info.max_timestamp, info.offset_of_max_timestamp) == (-1, -1)


@pytest.mark.parametrize("count", COUNTS)
def test_lv14_the_callers_buffer_is_the_one_that_is_written(count: int) -> None:
    given = bytearray(plain(count))
    taken = PlainBatches(ValidationRules()).check(given, 40, 3, NOW_MS)
    assert taken is not None and taken.records is given
    assert RecordBatch(given, 0, len(given)).base_offset == 40


@pytest.mark.parametrize("count", COUNTS)
def test_lv22_records_that_do_not_fill_the_batch_are_refused(count: int) -> None:
    """The size and count may be those of a batch that came before."""
    log = opened()
    longer = poked(plain(count) + b"\0", 8, ">i", len(plain(count)) + 1 - 12)
    shorter = poked(plain(count)[:-1], 8, ">i", len(plain(count)) - 1 - 12)
    for broken in (longer, shorter, longer, longer):
        with pytest.raises(InvalidRecord):
            lead(log, broken)
    assert log.log_end_offset == 0


@pytest.mark.parametrize("count", COUNTS)
def test_lv23_odd_offsets_inside_are_replaced(count: int) -> None:
    """The first such batch has an unknown shape, the last one the shape of those before it."""
    log = opened()
    sound = bytearray(plain(count))
    stride = (len(sound) - HEADER_SIZE) // count
    # The second record's delta is 0 again.
    odd = poked(bytes(sound), HEADER_SIZE + stride + 3, ">b", 0)
    records = list(RecordBatch(odd, 0, len(odd)).records())
    assert [record.offset for record in records[:2]] == [0, 0], "the offset delta stands elsewhere"
    for sent in (odd, bytes(sound), bytes(sound), bytes(sound), odd):
        lead(log, sent)
    for turn, each in enumerate(stored(log)):
        offsets = [record.offset for record in each.records()]
        assert offsets == list(range(turn * count, (turn + 1) * count))


def test_lv26_a_topic_of_a_codec_takes_no_batch_as_it_is() -> None:
    log = opened(LogConfig(compression_type="lz4"))
    for _ in range(3):
        lead(log, plain(10))
    assert {each.compression for each in stored(log)} == {Compression.LZ4}


def walked(path: str, data: bytes) -> object:
    """Read the frames in memory: by a follower's append, or by the cleaner's walk over a chunk."""
    return follow(opened(), data) if path == "follower" else list(batches_in(data, "0.log", 0))


@pytest.mark.parametrize("path", ["follower", "cleaner"])
def test_fr10_frames_in_memory_have_a_known_magic_and_no_size_below_14(path: str) -> None:
    sound = batch(0)
    for magic in (3, -1):
        with pytest.raises(CorruptBatch, match="magic"):
            walked(path, poked(sound, 16, ">b", magic))
    for size_field in (13, 0, -1):
        with pytest.raises(CorruptBatch, match=f"a size field of {size_field},"):
            walked(path, poked(sound, 8, ">i", size_field))
