"""Producer snapshots: their bytes, rules T10 and T11, and every snapshot that Kafka wrote for these tests."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.codec.crc32c import crc32c
from storage.disk.filesystem import FileSystem, read_file
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from storage.errors import CorruptSnapshot
from storage.producers.entry import ProducerStateEntry
from storage.producers.rows import decode_snapshot, encode_entries, encode_snapshot, read_snapshot
from storage.producers.snapshot import (
    list_snapshots,
    read_content,
    snapshot_name,
    snapshot_offset,
    write_snapshot,
)
from tests.places import GOLDEN

SNAPSHOTS = sorted(
    path for folder in ("kafka-4.1", "kafka-2.8") for path in GOLDEN.glob(f"{folder}/**/*.snapshot")
)

# The order in which a java.util.HashMap of JDK 17 lists these, added as 1000, 1001, 2000, 5, 17, 33, 4000.
KAFKAS_ORDER = (2000, 4000, 17, 33, 5, 1000, 1001)


def new_file_system() -> FileSystem:
    file_system = SimDisk(Draws(1), lambda: 0).file_system(Life())
    file_system.make_directory("/log")
    return file_system


def an_entry(producer_id: int = 7) -> ProducerStateEntry:
    entry = ProducerStateEntry(producer_id, producer_epoch=2, coordinator_epoch=5, last_timestamp=1234)
    entry.batches = ((11, 100, 3, 1200), (15, 104, 3, 1234))
    return entry


def fields(entry: ProducerStateEntry) -> tuple[object, ...]:
    return (
        entry.producer_id,
        entry.producer_epoch,
        entry.last_sequence,
        entry.last_offset,
        entry.last_offset_delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
    )


def sealed(body: bytes, version: int = 1) -> bytes:
    return struct.pack(">hI", version, crc32c(body)) + body


def test_golden_snapshots_are_there() -> None:
    assert len(SNAPSHOTS) > 50
    assert any(len(decode_snapshot(path.read_bytes())) > 1 for path in SNAPSHOTS)


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: str(path.relative_to(GOLDEN)))
def test_golden_snapshot_is_written_back_byte_for_byte(path: Path) -> None:
    content = path.read_bytes()
    entries = decode_snapshot(content, path.name)
    assert encode_snapshot(entries) == content
    assert encode_snapshot(reversed(entries)) == content
    assert snapshot_offset(path.name) is not None and snapshot_name(int(path.stem)) == path.name


def test_t10_entries_are_written_by_ascending_producer_id() -> None:
    entries = [an_entry(producer_id) for producer_id in KAFKAS_ORDER]
    loaded = decode_snapshot(encode_snapshot(entries))
    assert [entry.producer_id for entry in loaded] == sorted(KAFKAS_ORDER)
    assert sorted(map(fields, loaded)) == sorted(map(fields, entries))


def test_t10_a_snapshot_in_the_order_of_kafkas_hash_map_is_read() -> None:
    packed = b"".join(encode_snapshot([an_entry(producer_id)])[10:] for producer_id in KAFKAS_ORDER)
    content = sealed(struct.pack(">i", len(KAFKAS_ORDER)) + packed)
    assert [entry.producer_id for entry in decode_snapshot(content)] == list(KAFKAS_ORDER)


def test_empty_snapshot_is_10_bytes() -> None:
    assert encode_snapshot([]) == sealed(bytes(4)) and len(encode_snapshot([])) == 10
    assert decode_snapshot(encode_snapshot([])) == []


def test_only_the_last_batch_is_saved() -> None:
    (loaded,) = decode_snapshot(encode_snapshot([an_entry()]))
    assert list(loaded.batches) == [(15, 104, 3, 1234)]
    assert fields(loaded) == fields(an_entry())


def test_producer_without_batches_or_transaction_has_minus_ones() -> None:
    content = encode_snapshot([ProducerStateEntry(9, producer_epoch=1, last_timestamp=77)])
    assert struct.unpack(">qhiqiqiq", content[10:]) == (9, 1, -1, -1, 0, 77, -1, -1)
    (loaded,) = decode_snapshot(content)
    assert loaded.is_empty and loaded.transaction_first_offset is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(9),
        bytes(37) + encode_snapshot([an_entry()])[37:],
        encode_snapshot([an_entry()])[:-1],
        encode_snapshot([an_entry()]) + b"\0",
        sealed(struct.pack(">i", 0), version=2),
        sealed(struct.pack(">i", 2) + encode_snapshot([an_entry()])[10:]),
        sealed(struct.pack(">i", -1)),
    ],
)
def test_damaged_snapshot_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptSnapshot, match=r"^here: "):
        decode_snapshot(content, "here")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 55), st.integers(1, 255))
def test_any_flipped_byte_is_noticed(position: int, mask: int) -> None:
    content = bytearray(encode_snapshot([an_entry()]))
    content[position] ^= mask
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(content))


def test_t11_shorter_snapshot_over_a_longer_file_leaves_no_stale_tail() -> None:
    file_system = new_file_system()
    write_snapshot(file_system, "/log", 5, encode_entries([an_entry(1), an_entry(2)]), sync=False)
    path = write_snapshot(file_system, "/log", 5, encode_entries([an_entry(3)]), sync=True)
    assert [entry.producer_id for entry in read_snapshot(file_system, path)] == [3]


def test_names_that_are_no_snapshots_are_passed_over() -> None:
    file_system = new_file_system()
    for offset in (30, 7, 1 << 62):
        write_snapshot(file_system, "/log", offset, b"", sync=False)
    for name in (
        "x.snapshot",
        "7.snapshot",
        "00000000000000000009.snapshot.deleted",
        "leader-epoch-checkpoint",
    ):
        file_system.make_directory(f"/log/{name}")
    assert list_snapshots(file_system, "/log") == [7, 30, 1 << 62]
    assert snapshot_name((1 << 63) - 1) == "09223372036854775807.snapshot"
    assert len(read_file(file_system, "/log/00000000000000000007.snapshot")) == 10


BATCHES = st.lists(
    st.tuples(st.integers(-1, (1 << 31) - 1), st.integers(0, (1 << 63) - 1), st.integers(0, 1 << 30)),
    max_size=7,
)


@st.composite
def drawn_entries(draw: st.DrawFn) -> ProducerStateEntry:
    timestamp = draw(st.integers(-1, (1 << 63) - 1))
    entry = ProducerStateEntry(
        draw(st.integers(0, (1 << 63) - 1)),
        producer_epoch=draw(st.integers(-1, (1 << 15) - 1)),
        coordinator_epoch=draw(st.integers(-1, (1 << 31) - 1)),
        last_timestamp=timestamp,
        transaction_first_offset=draw(st.none() | st.integers(0, (1 << 63) - 1)),
    )
    entry.batches = tuple((*batch, timestamp) for batch in draw(BATCHES))[-5:]
    return entry


@pytest.mark.covers("ProducerStateManagerTest.testReadWriteSnapshot")
@settings(max_examples=25, deadline=None)
@given(st.lists(drawn_entries(), max_size=30, unique_by=lambda entry: entry.producer_id))
def test_snapshot_round_trip(entries: list[ProducerStateEntry]) -> None:
    content = encode_snapshot(entries)
    loaded = decode_snapshot(content)
    assert {e.producer_id: fields(e) for e in loaded} == {e.producer_id: fields(e) for e in entries}
    assert encode_snapshot(loaded) == encode_snapshot(reversed(entries)) == content
    assert [entry.producer_id for entry in loaded] == sorted(entry.producer_id for entry in entries)
    assert len(content) == 10 + 46 * len(entries)


def test_ps15_a_producer_takes_little_memory_after_a_reload() -> None:
    """A node may know hundreds of thousands of producers, nearly all of them idle."""
    count = 2000
    entries = []
    for producer_id in range(count):
        entry = ProducerStateEntry(
            producer_id, producer_epoch=0, last_timestamp=1_700_000_000_000 + producer_id
        )
        entry.batches = ((producer_id, 1000 + producer_id, 3, 1_700_000_000_000 + producer_id),)
        entries.append(entry)
    content = encode_snapshot(entries)
    tracemalloc.start()
    loaded = decode_snapshot(content)
    held_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(loaded) == count and held_bytes < 600 * count, held_bytes // count


def sparse_snapshot(path: Path, count: int, crc: int = 0) -> None:
    """Write the header of a snapshot of `count` entries; those are a hole in the file."""
    path.write_bytes(struct.pack(">hIi", 1, crc, count))
    os.truncate(path, 10 + 46 * count)


def test_a_huge_snapshot_with_a_wrong_checksum_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / snapshot_name(5)
    sparse_snapshot(path, count=1_500_000)
    tracemalloc.start()
    with pytest.raises(CorruptSnapshot, match=r"the checksum does not match \(stored 0, computed \d+\)"):
        read_snapshot(OsFileSystem(), str(path))
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > 1 << 26 and most_bytes < 1 << 22, most_bytes


def test_a_huge_sound_snapshot_is_read(tmp_path: Path) -> None:
    path, count = tmp_path / snapshot_name(5), 1_500_000
    sparse_snapshot(path, count, crc32c(struct.pack(">i", count) + bytes(46 * count)))
    assert len(read_content(OsFileSystem(), str(path))) == 10 + 46 * count


def test_a_snapshot_larger_than_kafka_reads_is_refused_at_a_glance(tmp_path: Path) -> None:
    path = tmp_path / snapshot_name(5)
    sparse_snapshot(path, count=(2**31 - 1 - 10) // 46 + 1)
    with pytest.raises(
        CorruptSnapshot, match="2147483652 bytes are too many, a snapshot has at most 2147483647"
    ):
        read_snapshot(OsFileSystem(), str(path))
