"""The controller's files with every field at and beyond its bounds: its start succeeds, or is refused in one line."""

from __future__ import annotations

import struct
import time
import tracemalloc
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from cluster.core.controller.metadata_damage import DamagedMetadataLog, check_nothing_committed_is_damaged
from cluster.core.controller.metadata_log import StoredMetadataLog
from cluster.core.controller.snapshot_files import SnapshotFiles
from cluster.core.metadata.batches import build_change
from cluster.core.metadata.changes import ChangeReader
from cluster.core.metadata.delta import MetadataDelta
from cluster.core.metadata.image import MetadataImage
from cluster.core.metadata.records import (
    BrokerSnapshotRecord,
    ClusterRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    encode_record,
)
from cluster.core.metadata.snapshots import encode_snapshot, snapshot_file_name
from sim.disk import SimDisk
from sim.disk.life import Life
from storage.batch import Record, build_batch, iterate_batches, stamp
from storage.disk.filesystem import OpenMode, join
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from storage.errors import InvalidRecord, StorageError
from tests.cluster.controller.setup import DIRECTORY, ControllerBench
from tests.storage.hostile.formats import Damaged, batches, json_members

LOG = f"{DIRECTORY}/__cluster_metadata-0"
FIRST = f"{0:020d}.log"
SNAPSHOT = snapshot_file_name(5, 0)
CLUSTER = ClusterRecord(cluster_id="c")
TOPIC = TopicRecord(name="t", topic_id="0" * 32)
PARTITION = PartitionRecord(topic="t", partition=0, replicas=(1,), isr=(1,), leader=1)
BROKER = RegisterBrokerRecord(broker_id=1, incarnation="i", host="h", port=1, fenced=False)
CHANGES: tuple[tuple[MetadataRecord, ...], ...] = (
    (CLUSTER,),
    (BROKER,),
    (TOPIC, PARTITION),
    (PartitionChangeRecord(topic="t", partition=0, leader=-1),),
)
MOST_EPOCH = (1 << 31) - 1


def log_batches(changes: tuple[tuple[MetadataRecord, ...], ...] = CHANGES, *, epoch: int = 0) -> list[bytes]:
    """Return a batch for each change, as the log has them."""
    built, offset = [], 0
    for records in changes:
        headers = (("committed", b"%d" % offset),)
        (batch,) = build_change(records, timestamp_ms=1, max_bytes=1 << 20, headers=headers)
        built.append(at_offset(batch, offset, epoch))
        offset += len(records)
    return built


def at_offset(batch: bytes, offset: int, epoch: int = 0) -> bytes:
    stamped = bytearray(batch)
    stamp(stamped, 0, base_offset=offset, partition_leader_epoch=epoch)
    return bytes(stamped)


def snapshot_batches() -> list[bytes]:
    broker = BrokerSnapshotRecord(
        broker_id=1, broker_epoch=1, incarnation="i", host="h", port=1, fenced=False, in_controlled_shutdown=False
    )  # fmt: skip
    data = encode_snapshot((CLUSTER, broker, TOPIC, PARTITION), epoch=0, timestamp_ms=1, max_bytes=1 << 20)
    return [data[each.start : each.start + each.size_bytes] for each in iterate_batches(data)]


def disk_with(files: dict[str, bytes]) -> SimDisk:
    disk = SimDisk(Draws(5), lambda: 0)
    file_system = disk.file_system(Life("hand"))
    file_system.make_directory(LOG)
    for name, content in files.items():
        file = file_system.open(join(LOG, name), OpenMode.CREATE)
        file.append(content)
        file.close()
    return disk


def refusal_of(files: dict[str, bytes]) -> str:
    """Start a controller on these files and register a broker. Return why it was refused; empty if it was not."""
    try:
        bench = ControllerBench(disk=disk_with(files))
        bench.register(2)
    except StorageError as error:
        return str(error)
    return ""


def damaged_files() -> Iterator[tuple[str, dict[str, bytes]]]:
    log, snapshot = log_batches(), snapshot_batches()
    for name, parts in ((FIRST, log), (SNAPSHOT, snapshot)):
        for number, part in enumerate(parts):
            before, after = b"".join(parts[:number]), b"".join(parts[number + 1 :])
            for damaged in batches(part):
                files = {FIRST: b"".join(log), name: before + damaged.content + after}
                yield f"{name}, batch {number}: {damaged.what}", files
            # Nothing follows that could contradict it.
            for damaged in batches(part) if name == FIRST else ():
                yield f"the last batch {number}: {damaged.what}", {FIRST: before + damaged.content}


def damaged_members() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Each record with each member at and beyond its bounds, in the last change and with a change after it."""
    for number, records in enumerate(CHANGES):
        for place, record in enumerate(records):
            sound = log_batches(CHANGES[: number + 1])
            end = sum(map(len, CHANGES[:number]))
            for damaged in json_members(encode_record(record)):
                values = [encode_record(each) for each in records]
                values[place] = damaged.content
                changed = build_batch(
                    (
                        Record(end + index, 1, None, value, (("committed", b"%d" % end),))
                        for index, value in enumerate(values)
                    ),
                    base_offset=end,
                    partition_leader_epoch=0,
                )
                yield f"{type(record).__name__}: {damaged.what}", {FIRST: b"".join([*sound[:-1], changed])}


def check_start(what: str, files: dict[str, bytes]) -> None:
    try:
        said = refusal_of(files)
    except Exception as error:
        raise AssertionError(what) from error
    assert "\n" not in said and len(said) < 1000, (what, said[:200])


def test_a_sample_of_values_in_the_last_change_breaks_no_start() -> None:
    before = b"".join(log_batches()[:-1])
    for damaged in list(batches(log_batches()[-1]))[::5]:
        check_start(damaged.what, {FIRST: before + damaged.content})


@pytest.mark.parametrize("part", range(2))
def test_a_sample_of_values_of_a_member_breaks_no_start(part: int) -> None:
    for what, files in islice(damaged_members(), 17 * part, None, 34):
        check_start(what, files)


@pytest.mark.slow
def test_no_value_of_a_member_of_a_record_breaks_the_start() -> None:
    for what, files in damaged_members():
        check_start(what, files)


@pytest.mark.slow
def test_no_value_of_a_field_in_log_or_snapshot_breaks_the_start() -> None:
    for what, files in damaged_files():
        check_start(what, files)


@pytest.mark.parametrize("what", ["last offset delta 0x0 -> 0x1", "record count 0x1 -> 0x0"])
def test_a_batch_with_other_records_than_its_header_says_is_no_metadata(what: str) -> None:
    found: list[Damaged] = [each for each in batches(log_batches()[0]) if each.what == what]
    with pytest.raises(InvalidRecord, match=r"offset [01] of the metadata log: no record"):
        list(ChangeReader().read(found[0].content))


def test_what_cannot_be_unpacked_is_refused_with_its_offset() -> None:
    unknown = next(each for each in batches(log_batches()[0]) if each.what == "attributes 0x0 -> 0x7fff")
    with pytest.raises(InvalidRecord, match="offset 0 of the metadata log: compression codec"):
        list(ChangeReader().read(unknown.content))


def test_records_that_end_elsewhere_than_the_log_are_refused() -> None:
    cut = at_offset(log_batches()[2], -1)
    assert "the controller's log is damaged" in refusal_of({FIRST: b"".join([*log_batches()[:2], cut])})


def test_a_record_of_any_length_is_refused_in_one_short_line() -> None:
    record = TopicRecord(name="x" * 100_000, topic_id="0" * 32)
    with pytest.raises(InvalidRecord) as refused:
        MetadataDelta(MetadataImage()).apply(record, 0)
    assert len(str(refused.value)) < 1000


def test_a_log_of_the_last_epoch_takes_no_further_start() -> None:
    said = refusal_of({FIRST: b"".join(log_batches(epoch=MOST_EPOCH))})
    assert LOG in said and f"last epoch is {MOST_EPOCH}" in said
    assert not refusal_of({FIRST: b"".join(log_batches(epoch=MOST_EPOCH - 1))})


@pytest.mark.parametrize("size_bytes", [(1 << 31) - 1, 8 << 30])
def test_a_snapshot_of_any_size_is_skipped_in_little_memory(tmp_path: Path, size_bytes: int) -> None:
    with (tmp_path / SNAPSHOT).open("wb") as file:
        file.truncate(size_bytes)
    skipped: list[str] = []
    tracemalloc.start()
    assert SnapshotFiles(OsFileSystem(), str(tmp_path)).newest(skipped.append) is None
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(skipped) == 1 and SNAPSHOT in skipped[0]
    assert peak_bytes < 8 << 20, peak_bytes


def test_a_snapshot_in_an_unknown_codec_is_skipped() -> None:
    parts = snapshot_batches()
    damaged = [each for each in batches(parts[1]) if each.what.startswith("attributes 0x0 -> 0x7f")]
    files = {FIRST: b"".join(log_batches()), SNAPSHOT: parts[0] + damaged[0].content + parts[2]}
    assert not refusal_of(files)


def test_bytes_that_look_like_batches_everywhere_cost_little_and_nothing_is_cut(tmp_path: Path) -> None:
    """Each third byte begins a batch of 459 KB with a wrong checksum."""
    first = bytearray(log_batches()[0])
    first[-1] ^= 1
    data = bytes(first) + b"\x00\x07\x02" * 333_333
    (tmp_path / FIRST).write_bytes(data)
    begun = time.thread_time()
    with pytest.raises(DamagedMetadataLog, match=f"{FIRST} at byte 0.* nothing of it was cut"):
        check_nothing_committed_is_damaged(OsFileSystem(), str(tmp_path))
    assert time.thread_time() - begun < 1
    assert (tmp_path / FIRST).read_bytes() == data


def test_a_torn_change_with_bytes_of_any_value_behind_it_is_cut() -> None:
    """What a power loss leaves looks like a batch here and there, but not everywhere."""
    sound = log_batches()
    torn = sound[-1][:-10] + bytes(range(256)) * 8 + struct.pack(">qiib", 1, 60, 0, 2) * 40
    disk = disk_with({FIRST: b"".join(sound[:-1]) + torn})
    log = StoredMetadataLog.open(
        disk.file_system(Life("eye")), DIRECTORY, now_ms=1, draws=Draws(1), report=lambda cut: None
    )
    assert log.end_offset == 4
