"""What a dump says of an index: whether Kafka refuses it, and where it leads to in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.batch import Record, RecordBatch, build_batch
from storage.batch.format import HEADER_SIZE
from storage.batch.legacy.builder import build_message_set
from storage.cleaner.rebuild import empty_batch
from storage.index import offset_index, time_index
from storage.inspection.dump.dump import DumpOptions, DumpStatus
from storage.inspection.dump.entries import ABORTED_ENTRY
from tests.storage.inspection.dumps import dumped

SANITY = DumpOptions(index_sanity_check=True)


def offsets(*entries: tuple[int, int]) -> bytes:
    return b"".join(offset_index.ENTRY.pack(*entry) for entry in entries)


def times(*entries: tuple[int, int]) -> bytes:
    return b"".join(time_index.ENTRY.pack(*entry) for entry in entries)


@pytest.mark.parametrize(
    ("suffix", "content", "error"),
    [
        (".index", offsets((1, 0), (0, 0)), None),
        (".index", offsets((1, 0), (-1, 0)), "the last offset is 1 below the base offset"),
        (".timeindex", times((100, 1), (100, 0)), None),
        # The least entry that there may be: no timestamp, at the base offset.
        (".timeindex", times((-1, 0)), None),
        (".timeindex", times((100, 1), (99, 2)), "the last timestamp 99 is below the first timestamp 100"),
        (".timeindex", times((100, 1), (101, -3)), "the last offset is 3 below the base offset"),
        (".timeindex", times((100, 1)) + b"x", "13 bytes are no multiple of an entry's 12"),
    ],
)
def test_the_sanity_check_refuses_what_kafka_refuses(
    tmp_path: Path, suffix: str, content: bytes, error: str | None
) -> None:
    log = tmp_path / f"{10:020d}.log"
    log.write_bytes(build_batch([Record(10, 100, b"k", b"v")], base_offset=10))
    log.with_suffix(".index").write_bytes(offsets((1, 0)))
    index = log.with_suffix(suffix)
    index.write_bytes(content)
    told = dumped(index, options=SANITY)
    if error is None:
        assert (told.status, told.lines[1:]) == (DumpStatus.SOUND, [f"{index} passed sanity check."])
    else:
        assert (told.status, told.errors) == (DumpStatus.DAMAGED, [f"error: {index}: {error}"])


@pytest.mark.parametrize(("version", "is_known"), [(0, True), (0x00FF, True), (0x0100, False), (-1, True)])
def test_of_the_version_of_an_aborted_transaction_kafka_reads_the_first_byte(
    tmp_path: Path, version: int, *, is_known: bool
) -> None:
    index = tmp_path / f"{0:020d}.txnindex"
    index.write_bytes(ABORTED_ENTRY.pack(version, 7, 0, 4, 5))
    told = dumped(index)
    if is_known:
        shown = f"version: {version >> 8} producerId: 7 firstOffset: 0 lastOffset: 4 lastStableOffset: 5"
        assert (told.status, told.lines[1:]) == (DumpStatus.SOUND, [shown])
    else:
        unknown = [f"error: {index}: at byte 0: version 256 is unknown"]
        assert (told.status, told.errors) == (DumpStatus.DAMAGED, unknown)


def headers_alone() -> bytes:
    data = build_batch([Record(11, 100, b"k", b"v")], base_offset=11)
    return empty_batch(RecordBatch(data, 0, len(data)))


@pytest.mark.parametrize("magic", [1, 2])
def test_an_entry_may_lead_to_a_last_batch_of_the_least_size(tmp_path: Path, magic: int) -> None:
    first = Record(10, 100, None, None)
    if magic == 2:
        before, last = build_batch([first], base_offset=10), headers_alone()
        assert len(last) == HEADER_SIZE
    else:
        before = build_message_set([first], magic=1, base_offset=10)
        last = build_message_set([Record(11, 100, None, None)], magic=1, base_offset=11)
    log = tmp_path / f"{10:020d}.log"
    log.write_bytes(before + last)
    index = log.with_suffix(".index")
    index.write_bytes(offsets((1, len(before))))
    told = dumped(index)
    assert (told.status, told.errors) == (DumpStatus.SOUND, [])
    assert told.lines[1:] == [f"offset: 11 position: {len(before)}"]
    # Where no batch begins there is none.
    index.write_bytes(offsets((1, len(before + last))))
    told = dumped(index)
    assert told.status is DumpStatus.DAMAGED and "where no whole batch is; 0 entries follow" in told.errors[0]


@pytest.mark.parametrize(
    ("entries", "shown"),
    [
        ([(100, 1), (101, 0)], [(100, 11)]),
        ([(100, 0), (101, 1)], [(100, 10), (101, 11)]),
        ([(100, 1), (0, 2)], [(100, 11), (0, 12)]),
        ([(100, 1), (0, 0), (102, 2)], [(100, 11)]),
    ],
)
def test_the_unused_tail_of_an_index_begins_where_a_later_entry_has_the_base_offset(
    tmp_path: Path, entries: list[tuple[int, int]], shown: list[tuple[int, int]]
) -> None:
    log = tmp_path / f"{10:020d}.log"
    batches = [
        build_batch([Record(10 + each, 100 + each, b"k", b"v")], base_offset=10 + each) for each in range(3)
    ]
    log.write_bytes(b"".join(batches))
    index = log.with_suffix(".index")
    index.write_bytes(offsets(*((relative, relative * len(batches[0])) for _, relative in entries)))
    log.with_suffix(".timeindex").write_bytes(times(*entries))
    lines = dumped(log.with_suffix(".timeindex")).lines[1:]
    assert lines == [f"timestamp: {timestamp} offset: {offset}" for timestamp, offset in shown]
    lines = dumped(index).lines[1:]
    assert lines == [f"offset: {offset} position: {(offset - 10) * len(batches[0])}" for _, offset in shown]


@pytest.mark.parametrize("second_ms", [99, 100, 101])
def test_a_time_that_is_not_above_the_one_before_is_out_of_order(tmp_path: Path, second_ms: int) -> None:
    log = tmp_path / f"{10:020d}.log"
    batches = [
        build_batch([Record(10 + i, ms, b"k", b"v")], base_offset=10 + i)
        for i, ms in enumerate((100, second_ms))
    ]
    log.write_bytes(b"".join(batches))
    log.with_suffix(".index").write_bytes(offsets((1, len(batches[0]))))
    log.with_suffix(".timeindex").write_bytes(times((100, 0), (second_ms, 1)))
    told = "\n".join(dumped(log.with_suffix(".timeindex")).errors)
    line = f"  Index timestamp: {second_ms}, Previously indexed timestamp: 100"
    assert (line in told) == (second_ms <= 100), told
