"""The text files beside the logs: their bytes, how they are parsed, and rule T15."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from sim.disk.life import Dead, Life
from storage.disk.checkpoints import (
    _SLICE_BYTES,
    CleanShutdownFile,
    LeaderEpochCheckpoint,
    MetaProperties,
    MetaPropertiesFile,
    OffsetCheckpoint,
    PartitionMetadataFile,
)
from storage.disk.filesystem import FileSystem, OpenMode, read_file
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import CorruptCheckpoint
from tests.places import GOLDEN
from tests.storage.producers.producers import new_disk

PATH = "/log/some-checkpoint"
TOPIC_ID = "1zxQwcBXTBGyuwEJ8DLp_w"


def golden_id(path: Path) -> str:
    return str(path.relative_to(GOLDEN))


def file_system_with(content: bytes, path: str = PATH) -> FileSystem:
    file_system = new_disk()[1]
    file = file_system.open(path, OpenMode.CREATE_NEW)
    file.write_at(0, content)
    file.close()
    return file_system


def test_offset_checkpoint_is_created_empty_and_reads_as_no_entries() -> None:
    file_system = new_disk()[1]
    checkpoint = OffsetCheckpoint(file_system, PATH)
    assert read_file(file_system, PATH) == b""
    assert checkpoint.read() == {}


@pytest.mark.covers(
    "OffsetCheckpointFileWithFailureHandlerTest.shouldPersistAndOverwriteAndReloadFile",
    "OffsetCheckpointFileWithFailureHandlerTest.shouldHandleMultipleLines",
)
def test_offset_checkpoint_is_overwritten_and_read_by_another_instance() -> None:
    file_system = new_disk()[1]
    OffsetCheckpoint(file_system, PATH).write({("foo", 0): 5, ("foo.bar-1", 12): 1 << 62})
    OffsetCheckpoint(file_system, PATH).write({("foo", 0): 9, ("bar", 3): 0})
    assert read_file(file_system, PATH) == b"0\n2\nbar 3 0\nfoo 0 9\n"
    assert OffsetCheckpoint(file_system, PATH).read() == {("foo", 0): 9, ("bar", 3): 0}


@pytest.mark.covers("OffsetCheckpointFileWithFailureHandlerTest.shouldReturnEmptyMapForEmptyFile")
@pytest.mark.parametrize("content", [b"", b"0", b"0\n", b"0\n0\n", b"0\n0", b"+0\r\n-0\r\n"])
def test_checkpoint_without_entries(content: bytes) -> None:
    assert LeaderEpochCheckpoint(file_system_with(content), PATH).read() == []


@pytest.mark.parametrize(
    "content", [b"0\n2\n0 0\n2 92\n", b"0\r\n2\r\n0\t0  \r\n2 \x0b 92", b"0\r2\r+0 0\r2 92\r"]
)
def test_checkpoint_lines_and_blanks_are_read_as_java_reads_them(content: bytes) -> None:
    assert LeaderEpochCheckpoint(file_system_with(content), PATH).read() == [(0, 0), (2, 92)]


@pytest.mark.covers("OffsetCheckpointFileWithFailureHandlerTest.shouldThrowIfVersionIsNotRecognised")
@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"1\n0\n", 1, "unrecognised version"),
        (b"x\n0\n", 1, "no number"),
        (b"\n", 1, "no number"),
        (b"0\nmany\n", 2, "no number"),
        (b"0\n-1\n", 2, "announced"),
        (b"0\n2\n0 0\n", 2, "2 entries announced, 1 found"),
        (b"0\n1\n0 0\n1 5\n", 2, "1 entries announced, 2 found"),
        (b"0\n1\n0 0 0\n", 3, "malformed"),
        (b"0\n1\n 0 0\n", 3, "malformed"),
        (b"0\n1\n\n", 3, "malformed"),
        (b"0\n1\nx y\n", 3, "no number"),
        (b"0\n1\n1_0 0\n", 3, "no number"),
        (b"0\n1\n2147483648 0\n", 3, "no number"),
        (b"0\n1\n0 9223372036854775808\n", 3, "no number"),
        (b"0\n1\n0 -1\n", 3, "negative"),
        (b"0\n1\n-1 0\n", 3, "negative"),
        (b"0\n2\n0 0\n-2147483648 5\n", 4, "negative"),
        (b"0\n1\n\xff 0\n", 3, "not UTF-8"),
    ],
)
def test_bad_checkpoint_names_file_line_and_reason(content: bytes, line: int, reason: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=reason) as caught:
        LeaderEpochCheckpoint(file_system_with(content), PATH).read()
    assert (caught.value.path, caught.value.line) == (PATH, line)
    assert str(caught.value).startswith(f"{PATH} line {line}: ")


def test_offset_checkpoint_refuses_a_partition_that_is_no_int() -> None:
    with pytest.raises(CorruptCheckpoint, match="the partition is no number"):
        OffsetCheckpoint(file_system_with(b"0\n1\nfoo 99999999999 1\n"), PATH).read()


def test_checkpoint_write_leaves_the_old_or_the_new_content_at_every_crash() -> None:
    for nth in range(1, 20):
        disk, file_system = new_disk()
        checkpoint = OffsetCheckpoint(file_system, PATH)
        checkpoint.write({("foo", 0): 1})
        disk.arm_crash(nth)
        try:
            checkpoint.write({("foo", 0): 2})
        except Dead:
            disk.lose_power("subset")
            after = disk.file_system(Life())
            assert OffsetCheckpoint(after, PATH).read() in ({("foo", 0): 1}, {("foo", 0): 2})
        else:
            disk.disarm()
            disk.lose_power("none")
            assert OffsetCheckpoint(disk.file_system(Life()), PATH).read() == {("foo", 0): 2}
            return
    pytest.fail("the write never came to its end")


@pytest.mark.covers(
    "LeaderEpochCheckpointFileWithFailureHandlerTest.shouldPersistAndOverwriteAndReloadFile",
    "LeaderEpochCheckpointFileWithFailureHandlerTest.shouldRetainValuesEvenIfCheckpointIsRecreated",
)
@pytest.mark.parametrize("path", sorted(GOLDEN.glob("kafka-*/*/*/leader-epoch-checkpoint")), ids=golden_id)
def test_golden_leader_epochs_are_written_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    entries = LeaderEpochCheckpoint(OsFileSystem(), str(path)).read()
    copy = LeaderEpochCheckpoint(OsFileSystem(), str(tmp_path / "copy"))
    copy.write(entries)
    # If the cache was never written to, the file stays empty, as its constructor made it.
    assert (tmp_path / "copy").read_bytes() == (path.read_bytes() or b"0\n0\n")


@pytest.mark.covers(
    "CleanShutdownFileHandlerTest.testCleanShutdownFileBasic",
    "CleanShutdownFileHandlerTest.testCleanShutdownFileNonExist",
)
@pytest.mark.parametrize("path", sorted(GOLDEN.glob("kafka-*/*/*-offset-checkpoint")), ids=golden_id)
def test_golden_offset_checkpoints_hold_the_same_lines(path: Path, tmp_path: Path) -> None:
    offsets = OffsetCheckpoint(OsFileSystem(), str(path)).read()
    OffsetCheckpoint(OsFileSystem(), str(tmp_path / "copy")).write(offsets)
    # The file is empty until it is first written.
    lines = path.read_text().splitlines() or ["0", "0"]
    assert (tmp_path / "copy").read_text().splitlines() == lines[:2] + sorted(
        lines[2:], key=lambda line: (line.split()[0], int(line.split()[1]))
    )


def test_clean_shutdown_file_is_written_read_and_deleted() -> None:
    file_system = new_disk()[1]
    clean = CleanShutdownFile(file_system, "/log")
    assert not clean.exists() and clean.read() is None and not clean.delete()
    clean.write(10)
    assert read_file(file_system, "/log/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":10}'
    assert clean.exists() and clean.read() == 10
    assert clean.delete() and not clean.exists()


@pytest.mark.covers("CleanShutdownFileHandlerTest.testCleanShutdownFileCanParseWithUnknownFields")
@pytest.mark.parametrize(
    ("content", "broker_epoch"),
    [
        (b'{"version":0,"brokerEpoch":10,"unknown":[]}', 10),
        (b"", None),
        (b"not json", None),
        (b"[1]", None),
        (b'{"version":0}', None),
        (b'{"brokerEpoch":10}', None),
        (b'{"version":0,"brokerEpoch":"x"}', None),
        (b"\xff", None),
    ],
)
def test_t14_clean_shutdown_counts_by_being_there_whatever_it_says(
    content: bytes, broker_epoch: int | None
) -> None:
    clean = CleanShutdownFile(file_system_with(content, "/log/.kafka_cleanshutdown"), "/log")
    assert clean.exists()
    assert clean.read() == broker_epoch


def test_deleted_clean_shutdown_file_does_not_come_back_after_a_power_loss() -> None:
    disk, file_system = new_disk()
    CleanShutdownFile(file_system, "/log").write(3)
    CleanShutdownFile(file_system, "/log").delete()
    disk.lose_power("none")
    assert not CleanShutdownFile(disk.file_system(Life()), "/log").exists()


@pytest.mark.covers("PartitionMetadataFileTest.testMaybeFlushWithNoTopicIdPresent")
@pytest.mark.covers(
    "PartitionMetadataFileTest.testRead", "PartitionMetadataFileTest.testMaybeFlushWithTopicIdPresent"
)
@pytest.mark.parametrize("path", sorted(GOLDEN.glob("kafka-4.1/clean/*/partition.metadata")), ids=golden_id)
def test_golden_partition_metadata_is_written_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    topic_id = PartitionMetadataFile(OsFileSystem(), str(path.parent)).read()
    assert topic_id is not None
    PartitionMetadataFile(OsFileSystem(), str(tmp_path)).write(topic_id)
    assert (tmp_path / "partition.metadata").read_bytes() == path.read_bytes()


def test_partition_metadata_is_absent_until_written() -> None:
    file_system = new_disk()[1]
    metadata = PartitionMetadataFile(file_system, "/log")
    assert metadata.read() is None and not metadata.exists()
    metadata.write(TOPIC_ID)
    assert read_file(file_system, metadata.path) == f"version: 0\ntopic_id: {TOPIC_ID}".encode()
    assert metadata.read() == TOPIC_ID and metadata.exists()


def test_partition_metadata_of_a_later_version_is_accepted() -> None:
    content = f"version: 7\ntopic_id: {TOPIC_ID}\nmore".encode()
    assert (
        PartitionMetadataFile(file_system_with(content, "/log/partition.metadata"), "/log").read() == TOPIC_ID
    )


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("", 1, "the file ends here"),
        ("version: 0", 2, "the file ends here"),
        ("version: -1\ntopic_id: " + TOPIC_ID, 1, "unrecognised version"),
        ("version: x\ntopic_id: " + TOPIC_ID, 1, "no number"),
        ("version 0\ntopic_id: " + TOPIC_ID, 1, "malformed"),
        ("version: 0\ntopic_id:" + TOPIC_ID, 2, "malformed"),
        ("version: 0\ntopic_id: " + "A" * 22, 2, "invalid topic id"),
        ("version: 0\ntopic_id: " + "A" * 21, 2, "invalid topic id"),
        ("version: 0\ntopic_id: ../../../../etc/passwd1", 2, "invalid topic id"),
    ],
)
def test_bad_partition_metadata_names_its_line(content: str, line: int, reason: str) -> None:
    file_system = file_system_with(content.encode(), "/log/partition.metadata")
    with pytest.raises(CorruptCheckpoint, match=reason) as caught:
        PartitionMetadataFile(file_system, "/log").read()
    assert caught.value.line == line


def test_meta_properties_are_read_back() -> None:
    file_system = new_disk()[1]
    file = MetaPropertiesFile(file_system, "/log")
    assert file.read() is None
    properties = MetaProperties(node_id=3, cluster_id="kraft-1", directory_id="abc")
    file.write(properties)
    assert file.read() == properties


def test_meta_properties_of_version_0_are_read() -> None:
    content = b"#\n#Sat Nov 21 2026\nversion=0\nbroker.id=7\n"
    file_system = file_system_with(content, "/log/meta.properties")
    assert MetaPropertiesFile(file_system, "/log").read() == MetaProperties(node_id=7)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"version=2\n", "unrecognised version"),
        (b"version=1\nnode.id=1\n", "cluster.id is missing"),
        (b"version=1\nnode.id=x\ncluster.id=c\n", "no number"),
        (b"nonsense\n", "malformed"),
    ],
)
def test_bad_meta_properties_are_refused(content: bytes, reason: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=reason):
        MetaPropertiesFile(file_system_with(content, "/log/meta.properties"), "/log").read()


def test_a_line_without_end_takes_little_memory_before_it_is_refused() -> None:
    file_system = file_system_with(b"0" * (8 << 20))
    tracemalloc.start()
    with pytest.raises(CorruptCheckpoint, match="a line of more than 65536 bytes"):
        LeaderEpochCheckpoint(file_system, PATH).read()
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most_bytes < 2 << 20, most_bytes


def test_a_line_end_of_two_bytes_may_be_split_between_two_reads() -> None:
    head = b"0\r\n20000\r\n"
    lines = [b"%d %d" % (number, number) for number in range(20_000)]
    # All lines have 16 bytes, the first a few more: so the first byte of an end is the last one of the first read.
    more = (_SLICE_BYTES + 1 - len(head)) % 16
    lines[0] = lines[0].ljust(14 + more)
    content = head + b"".join(line.ljust(14) + b"\r\n" for line in lines)
    assert content[_SLICE_BYTES - 1 : _SLICE_BYTES + 1] == b"\r\n"
    assert len(LeaderEpochCheckpoint(file_system_with(content), PATH).read()) == 20_000
