"""The directory of a log is renamed and deleted, and the log is closed. Rules RT13 to RT15."""

from __future__ import annotations

import pytest

from sim.disk import SimFileSystem
from storage.disk.filesystem import join, read_file
from storage.errors import StorageError
from storage.log import PartitionLog
from storage.producers.snapshot import snapshot_name
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    append_each,
    new_file_system,
    open_log,
    produced,
    read_offsets,
)

DOOMED = "topic-0.0123456789abcdef0123456789abcdef-delete"


def log_of(count: int, file_system: SimFileSystem) -> PartitionLog:
    log = open_log(file_system)
    append_each(log, count)
    return log


# Delete


@pytest.mark.covers(
    "UnifiedLogTest.testLogDeletionAfterClose",
    "LocalLogTest.testLogDeleteSegmentsSuccess",
    "LocalLogTest.testLogDeleteDirSuccessWhenEmptyAndFailureWhenNonEmpty",
)
@pytest.mark.parametrize("is_closed", [True, False])
def test_rt13_delete_removes_segments_other_files_and_the_directory(is_closed: bool) -> None:
    file_system = new_file_system()
    log = log_of(50, file_system)
    assert len(log.local.segments) > 1
    if is_closed:
        log.close()
    log.delete()
    assert len(log.local.segments) == 0 and log.epochs.entries == []
    assert not file_system.exists(DIRECTORY)


# Close


def test_rt14_a_close_takes_a_snapshot_at_the_end_trims_and_syncs() -> None:
    file_system = new_file_system()
    log = open_log(file_system)
    log.append_as_leader(
        produced(3, producer_id=7, producer_epoch=0, sequence=0), leader_epoch=0, now_ms=NOW_MS
    )
    log.close()
    names = file_system.list(DIRECTORY)
    assert snapshot_name(3) in names
    assert file_system.stat(f"{DIRECTORY}/{0:020d}.index").size_bytes == 0
    assert file_system.stat(f"{DIRECTORY}/{0:020d}.timeindex").size_bytes == 12
    again = open_log(file_system, clean=True)
    assert again.producers.producers[7].last_sequence == 2 and read_offsets(again) == [0, 1, 2]


@pytest.mark.covers("LocalLogTest.testLogCloseSuccess", "LocalLogTest.testLogCloseIdempotent")
def test_rt14_closed_it_takes_nothing_more_and_closes_again() -> None:
    log = log_of(3, new_file_system())
    log.close()
    with pytest.raises((StorageError, ValueError)):
        append_each(log, 1)


@pytest.mark.covers("LocalLogTest.testLogCloseHandlers", "UnifiedLogTest.testLogRollAfterLogHandlerClosed")
def test_rt14_without_its_handles_neither_append_nor_roll() -> None:
    log = log_of(3, new_file_system())
    log.close_handles()
    log.close_handles()
    with pytest.raises((StorageError, ValueError)):
        log.flushes.roll(1, now_ms=NOW_MS)
    log = log_of(3, new_file_system())
    log.close_handles()
    with pytest.raises((StorageError, ValueError)):
        append_each(log, 1)


# Rename


@pytest.mark.covers(
    "LocalLogTest.testLogDirRenameToNewDir",
    "LocalLogTest.testLogDirRenameToExistingDir",
    "LogSegmentsTest.testUpdateDir",
)
def test_rt15_a_renamed_log_continues_in_its_new_directory() -> None:
    file_system = new_file_system()
    log = log_of(50, file_system)
    assert not log.rename_directory("topic-0")
    assert log.rename_directory("other-3")
    assert log.directory == "logs/other-3" and not file_system.exists(DIRECTORY)
    for segment in log.local.segments:
        for path in (
            segment.path,
            segment.offset_index_path,
            segment.time_index_path,
            segment.transaction_index.path,
        ):
            assert path.startswith("logs/other-3/")
    append_each(log, 50)
    log.close()
    assert not file_system.exists(DIRECTORY)
    assert read_offsets(open_log(file_system, clean=True, directory="logs/other-3")) == list(range(100))


@pytest.mark.covers("UnifiedLogTest.testWriteLeaderEpochCheckpointAfterDirectoryRename")
def test_rt15_epochs_are_kept_and_written_to_the_new_directory() -> None:
    file_system = new_file_system()
    log = open_log(file_system)
    append_each(log, 1, epoch=5)
    log.rename_directory(DOOMED)
    append_each(log, 1, epoch=10)
    assert [tuple(entry) for entry in log.epochs.entries] == [(5, 0), (10, 1)]
    assert read_file(file_system, f"logs/{DOOMED}/leader-epoch-checkpoint") == b"0\n2\n5 0\n10 1\n"
    assert not file_system.exists(DIRECTORY)


@pytest.mark.covers("UnifiedLogTest.testRenamingDirWithoutReinitialization")
def test_rt15_a_renamed_log_is_deleted_under_its_new_name() -> None:
    file_system = new_file_system()
    log = log_of(5, file_system)
    log.rename_directory(DOOMED)
    log.delete()
    assert not file_system.exists(f"logs/{DOOMED}") and not file_system.exists(DIRECTORY)


def test_rt15_snapshots_follow() -> None:
    file_system = new_file_system()
    log = log_of(5, file_system)
    log.rename_directory(DOOMED)
    log.flushes.roll(now_ms=NOW_MS)
    assert file_system.exists(f"logs/{DOOMED}/{snapshot_name(5)}")


def test_rt15_a_rename_that_fails_takes_the_log_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    file_system = new_file_system()
    log = log_of(5, file_system)

    def failing(old: str, new: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file_system, "rename", failing)
    with pytest.raises(StorageError, match="rename failed"):
        log.rename_directory(DOOMED)
    assert log.directory == DIRECTORY


def test_rt14_an_orderly_stop_makes_no_index_of_an_unused_segment() -> None:
    """A differential run found it: the next start makes the index, then takes the snapshot at the log end."""
    file_system = new_file_system()
    log = open_log(file_system, clean=True)
    append_each(log, 3)
    log.marks.update_high_watermark(3)
    assert log.retention.delete_old(NOW_MS + log.config.retention_ms + 10**6) == 1, (
        "and a new one begins at the end"
    )
    assert log.local.segments.base_offsets == [3]
    log.close()
    indexes = (join(DIRECTORY, f"{3:020d}.index"), join(DIRECTORY, f"{3:020d}.timeindex"))
    assert not any(file_system.exists(path) for path in indexes)
    log = open_log(file_system, clean=True, log_start_offset=3)
    assert all(file_system.exists(path) for path in indexes)
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    assert file_system.exists(join(DIRECTORY, f"{3:020d}.snapshot"))
