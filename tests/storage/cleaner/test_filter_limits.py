"""A round keeps, reads and writes batches, one step to either side of each rule: CL12 to CL20."""

from __future__ import annotations

import gzip
import struct
from dataclasses import replace

import pytest

from storage.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    Compression,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
)
from storage.batch.format import ATTRIBUTES_AT
from storage.batch.legacy.builder import build_message, build_message_set
from storage.batch.record import MAX_INT64
from storage.cleaner.chunks import SourceReader
from storage.cleaner.filter import LastRecord, Retention
from storage.cleaner.keys import read_keys
from storage.cleaner.plan import Source
from storage.cleaner.rebuild import empty_batch
from storage.cleaner.transactions import CleanedTransactions
from storage.codec.crc32c import crc32c
from storage.codec.varint import encode_varint
from storage.errors import InvalidRecord, StorageError
from storage.index.transaction_index import AbortedTransaction
from tests.storage.cleaner.compacted_logs import COMPACTED, CleanedLog
from tests.storage.cleaner.filters import filter_of, filtered, record
from tests.storage.logs import NOW_MS, marker, new_file_system
from tests.storage.validation.produced_sets import poked


def view(data: bytes) -> RecordBatch:
    return RecordBatch(data, 0, len(data))


def of_transaction(offset: int, pid: int = 1) -> RecordBatch:
    data = build_batch(
        [Record(offset, NOW_MS, b"k", b"v")],
        base_offset=offset,
        producer_id=pid,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    return view(data)


def marker_bytes(offset: int, *, commit: bool, pid: int = 1) -> bytes:
    return marker(pid, is_commit=commit, offset=offset)


def test_cl12_an_empty_control_batch_may_be_removed() -> None:
    # The batch ends the round, so it stays.
    batch = next(iter(filtered(filter_of(now_ms=NOW_MS, end=1, last_records={}), emptied_marker())))
    assert batch.is_control and batch.record_count == 0
    assert CleanedTransactions().can_discard(batch)


def emptied_marker() -> bytes:
    return empty_batch(view(marker_bytes(0, commit=True)))


def test_cl12_a_second_commit_marker_has_no_records_left() -> None:
    transactions = CleanedTransactions()
    assert not transactions.can_discard(of_transaction(0))
    assert not transactions.can_discard(view(marker_bytes(1, commit=True)))
    assert transactions.can_discard(view(marker_bytes(2, commit=True)))


def test_cl12_a_second_abort_marker_has_no_records_left() -> None:
    transactions = CleanedTransactions()
    transactions.add_aborted([AbortedTransaction(1, 0, 1, 2), AbortedTransaction(1, 2, 3, 4)])
    assert transactions.can_discard(of_transaction(0))
    assert not transactions.can_discard(view(marker_bytes(1, commit=False)))
    # Nothing of its transaction was met.
    assert transactions.can_discard(view(marker_bytes(3, commit=False)))


def test_cl13_records_of_an_aborted_transaction_are_removed_whatever_the_map_says() -> None:
    record_filter = filter_of(latest=0)
    record_filter._transactions.add_aborted([AbortedTransaction(1, 3, 4, 5)])
    # The batch is above all that the map knows.
    batch = of_transaction(3)
    verdict = record_filter.judge(batch)
    assert verdict.drops_records and verdict.retention is Retention.DELETE


def test_cl14_data_of_a_producer_that_has_none_left_is_not_kept_for_its_epoch() -> None:
    record_filter = filter_of(last_records={1: LastRecord(None, 0)})
    assert record_filter.judge(of_transaction(0)).retention is Retention.DELETE_EMPTY
    assert record_filter.judge(view(marker_bytes(1, commit=True))).retention is Retention.RETAIN_EMPTY


def test_cl15_records_without_a_key_are_dropped_and_counted() -> None:
    record_filter = filter_of()
    data = build_batch([record(0, None), record(1, b"a"), record(2, None)])
    (left,) = filtered(record_filter, data)
    assert [each.offset for each in left.records()] == [1]
    assert record_filter._stats.records_without_key == 2


# With 200 digits the size of the key takes two bytes.
@pytest.mark.parametrize("digits", [9, 70, 200])
# With 2, the keys at 0 and 1 are read for the filter alone.
@pytest.mark.parametrize("first_dirty", [0, 2])
def test_cl15_the_last_byte_of_a_key_counts_as_the_first_does(digits: int, first_dirty: int) -> None:
    one, two = 10 ** (digits - 1) + 1, 10 ** (digits - 1) + 2
    log = CleanedLog()
    log.put(one, two)
    log.roll()
    log.put(one)
    log.roll()
    assert log.clean(first_dirty) == 3
    assert (log.keys(), log.offsets()) == ([two, one], [1, 2])


def test_cl15_a_tombstone_beyond_its_horizon_is_removed_and_a_value_stays() -> None:
    data = build_batch([record(0, b"a", None), record(1, b"b")])
    (first,) = filtered(filter_of(retention_ms=10), data)
    assert first.delete_horizon_ms == NOW_MS + 10
    (second,) = filtered(filter_of(now_ms=NOW_MS + 11), first.tobytes())
    assert [each.offset for each in second.records()] == [1]


def test_cl15_a_marker_stays_though_its_key_was_written_since() -> None:
    data = marker_bytes(5, commit=True)
    key = next(view(data).records()).key
    assert key is not None
    record_filter = filter_of([key], latest=50)
    record_filter._transactions.can_discard(of_transaction(4))
    assert [batch.tobytes() for batch in filtered(record_filter, data)] == [data]


def test_cl15_nothing_of_a_discarded_batch_stays() -> None:
    # The batch ends the round.
    record_filter = filter_of(latest=0, end=4)
    record_filter._transactions.add_aborted([AbortedTransaction(1, 3, 4, 5)])
    (left,) = filtered(record_filter, of_transaction(3).tobytes())
    assert (left.record_count, left.last_offset) == (0, 3)


def test_cl16_a_tombstone_stays_up_to_its_horizon_and_is_removed_at_it() -> None:
    data = build_batch([record(0, b"a", None), record(1, b"b")])
    # Without a horizon it stays.
    (marked,) = filtered(filter_of(retention_ms=10), data)
    assert marked.record_count == 2
    for now_ms, count in ((NOW_MS + 9, 2), (NOW_MS + 10, 1)):
        (left,) = filtered(filter_of(now_ms=now_ms), marked.tobytes())
        assert left.record_count == count


def test_cl17_a_marker_with_a_new_horizon_is_a_marker_still() -> None:
    data = marker_bytes(5, commit=True)
    # Nothing of its transaction was met.
    (left,) = filtered(filter_of(retention_ms=10), data)
    assert (left.delete_horizon_ms, left.is_control, left.is_transactional) == (NOW_MS + 10, True, True)
    assert list(left.records()) == list(view(data).records())


@pytest.mark.parametrize("magic", [0, 1])
def test_cl17_old_formats_get_no_horizon(magic: int) -> None:
    data = build_message_set([record(0, b"a", None)], magic=magic)
    assert [batch.tobytes() for batch in filtered(filter_of(), data)] == [data]


@pytest.mark.parametrize("above", [0, 1])
def test_cl17_a_horizon_beyond_64_bits_is_not_set_and_the_tombstone_stays(above: int) -> None:
    log = CleanedLog(replace(COMPACTED, delete_retention_ms=MAX_INT64 - NOW_MS + above))
    log.put(1)
    log.put((1, None))
    log.put(2)
    log.roll()
    for _ in range(2):
        log.clean()
        horizons = [batch.delete_horizon_ms for batch in log.batches()]
        assert horizons == [None if above else MAX_INT64, None]
        assert [(each.key, each.value, each.timestamp) for each in log.records()] == [
            (b"1", None, NOW_MS),
            (b"2", b"2", NOW_MS),
        ]


def test_cl18_a_batch_that_needs_a_horizon_is_rebuilt_even_if_all_its_records_stay() -> None:
    data = build_batch([record(0, b"a", None), record(1, b"b")])
    (left,) = filtered(filter_of(), data)
    assert left.record_count == 2 and left.tobytes() != data
    assert [batch.tobytes() for batch in filtered(filter_of(), left.tobytes())] == [left.tobytes()]


def test_cl18_times_count_from_the_first_record_that_stays() -> None:
    data = build_batch([record(0, b"old", timestamp=5), record(1, timestamp=30), record(2, timestamp=20)])
    (left,) = filtered(filter_of([b"old"]), data)
    assert (left.base_timestamp, left.max_timestamp) == (30, 30)
    assert [each.timestamp for each in left.records()] == [30, 20]


@pytest.mark.parametrize("value", [b"v", None])
def test_cl18_the_least_time_of_all_stays_though_the_new_base_is_further_away_than_64_bits(
    value: bytes | None,
) -> None:
    """A topic without a limit takes such a record. Kafka takes it too, but never compacts its log then."""
    times = (("old", -1), ("a", NOW_MS - 1), ("b", MAX_INT64))
    records = [record(place, key.encode(), value, time) for place, (key, time) in enumerate(times)]
    # The times count from 0 instead of -1: the last one wraps.
    data = poked(build_batch(records), 27, ">q", 0)
    (left,) = filtered(filter_of([b"old"]), data)
    assert [each.timestamp for each in left.records()] == [NOW_MS, -(1 << 63)]
    assert left.is_valid() and left.max_timestamp == NOW_MS


def test_cl18_a_batch_that_stays_whole_is_copied_byte_for_byte() -> None:
    plain = view(build_batch([record(0, b"a"), record(1, b"b")], compression=Compression.GZIP))
    data = bytearray(plain.tobytes())
    # Nobody here writes such a payload.
    payload = gzip.compress(gzip.decompress(data[61:]), compresslevel=1, mtime=77)
    odd = _with_payload(bytes(data[:61]), payload)
    assert odd != bytes(data)
    record_filter = filter_of(latest=5)
    record_filter._offsets.put(b"a", 0)
    record_filter._offsets.put(b"b", 1)
    assert [batch.tobytes() for batch in filtered(record_filter, odd)] == [odd]


def _with_payload(header: bytes, payload: bytes) -> bytes:
    content = bytearray(header + payload)
    struct.pack_into(">i", content, 8, len(content) - 12)
    struct.pack_into(">I", content, 17, crc32c(bytes(content[21:])))
    return bytes(content)


def test_cl18_a_wrapper_of_another_magic_than_its_messages_is_rebuilt_though_all_stay() -> None:
    inner = build_message_set([record(offset, b"%d" % offset) for offset in (2, 3)], magic=0)
    wrapper = build_message(
        3, magic=1, timestamp=9, key=None, value=gzip.compress(inner), attributes=Compression.GZIP
    )
    (left,) = filtered(filter_of(), wrapper)
    assert {message.magic for message in left.messages()} == {1}


def test_cl18_messages_of_log_append_time_keep_it_when_others_are_removed() -> None:
    data = build_message_set(
        [record(0, b"old"), record(1, b"new")],
        magic=1,
        compression=Compression.GZIP,
        timestamp_type=TimestampType.LOG_APPEND,
        log_append_time_ms=4_321,
    )
    (left,) = filtered(filter_of([b"old"], latest=50), data)
    assert (left.timestamp_type, left.max_timestamp) == (TimestampType.LOG_APPEND, 4_321)
    assert [each.offset for each in left.records()] == [1]


@pytest.mark.parametrize("magic", [0, 1])
def test_cl19_old_formats_cannot_stay_empty(magic: int) -> None:
    data = build_message_set([record(0, b"old")], magic=magic)
    with pytest.raises(StorageError, match=rf"of magic {magic} at offset \d+ must be kept without records"):
        filtered(filter_of([b"old"], latest=50, end=1), data)


def test_cl19_a_batch_without_records_stays_empty_at_the_end_of_a_round() -> None:
    data = build_batch([record(0, b"old"), record(1, b"old")])
    (left,) = filtered(filter_of([b"old"], latest=50, end=2), data)
    assert (left.base_offset, left.last_offset, left.record_count) == (0, 1, 0)
    log = CleanedLog()
    log.put_each(1, 2)
    log.put(1, producer_id=5)
    log.put_each(1)
    log.roll()
    log.clean()
    assert [(each.last_offset, each.record_count) for each in log.batches()][-2:] == [(2, 0), (3, 1)]


def test_cl19_an_empty_marker_is_a_marker_still() -> None:
    empty = view(emptied_marker())
    assert (empty.is_control, empty.is_transactional, empty.record_count) == (True, True, 0)
    assert empty.producer_id == 1 and empty.is_valid()


def reader_that_grew(max_message_bytes: int, times: int, *, limit: int = 1000) -> list[int]:
    reader = SourceReader(new_file_system(), 100, limit)
    source = Source(0, "x.log", 0, 1 << 30, 0, 1, ())
    sizes = []
    for _ in range(times):
        reader.grow(source, build_batch([record(0, value=bytes(500))])[:60], 0, max_message_bytes)
        sizes.append(reader.capacity_bytes)
    return sizes


def test_cl20_the_buffer_doubles_up_to_the_greater_of_both_limits() -> None:
    assert reader_that_grew(1000, 4) == [200, 400, 800, 1000]
    assert reader_that_grew(300, 4) == [200, 400, 800, 1000]
    assert reader_that_grew(700, 3, limit=100) == [200, 400, 700]
    with pytest.raises(StorageError, match="the batch is larger than 1000 bytes"):
        reader_that_grew(1000, 5)


def test_cl20_an_output_that_outgrew_its_buffer_ends_the_chunk_after_that_batch() -> None:
    first = build_batch([record(0, b"a")])
    data = first + build_batch([record(1, b"b")], base_offset=1)
    found = filter_of().filter_chunk(data, len(first) - 1, "x.log", 0)
    assert (found.bytes_read, found.last_offset, len(found.parts)) == (len(first), 0, 1)
    assert filter_of().filter_chunk(data, len(first), "x.log", 0).bytes_read == len(data)


def test_cl14_the_batch_that_ends_the_round_stays_without_a_producer_and_without_records() -> None:
    data = build_batch([record(0)])
    (kept,) = filtered(filter_of([b"k"], end=1), data)
    assert (kept.last_offset, kept.record_count, kept.size_bytes) == (0, 0, 61)
    assert filtered(filter_of([b"k"], end=2), data) == []


def of_one_record(after_key: bytes, after_record: bytes = b"") -> RecordBatch:
    """`after_key` is what follows the key: the value with its size, then the headers with their count."""
    body = bytes(3) + b"\x02k" + after_key
    records = encode_varint(len(body)) + body + after_record
    header = build_batch([Record(0, NOW_MS, b"k", b"x")])[:HEADER_SIZE]
    size_field = struct.pack(">i", HEADER_SIZE - LOG_OVERHEAD + len(records))
    return view(header[:8] + size_field + header[12:] + records)


@pytest.mark.parametrize(
    "after_key",
    [b"\x81\x01" + bytes(64) + b"\x00", b"\x02x\x02", b"\x02x\x01", b"\x02x\x02\x02", b"\x02x"],
    ids=["null value with 64 bytes", "missing header", "count below 0", "header cut", "no headers"],
)
def test_cl18_a_record_with_a_value_or_headers_that_do_not_fit_it_has_no_key(after_key: bytes) -> None:
    with pytest.raises(InvalidRecord):
        read_keys(of_one_record(after_key))


def test_cl18_keys_are_read_of_all_bytes_of_a_batch_or_of_none() -> None:
    assert read_keys(of_one_record(b"\x02x\x00")) == [(0, b"k", True)]
    with pytest.raises(InvalidRecord):
        read_keys(of_one_record(b"\x02x\x00", after_record=b"\x00"))
    # The bytes of a record are none of the codec that the attributes name.
    odd = bytearray(of_one_record(b"\x02x\x00").buffer)
    odd[ATTRIBUTES_AT + 1] = Compression.GZIP
    with pytest.raises(InvalidRecord):
        read_keys(view(bytes(odd)))
