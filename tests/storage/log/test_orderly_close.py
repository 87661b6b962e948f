"""An orderly stop closes every file, leaves index files of an empty segment, and says when it failed (FL4, LS15)."""

from __future__ import annotations

import errno
import gc
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.disk.life import Life
from storage.batch import Record, build_batch
from storage.cleaner.plan import CleanerConfig
from storage.disk.filesystem import join, read_file, replace_file
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import StorageError
from storage.log import PartitionLog
from tests.storage.cleaner.compacted_logs import COMPACTED
from tests.storage.directory.directories import DIRECTORY, started
from tests.storage.log.appends import PRODUCER_ID, end_transaction
from tests.storage.logs import NOW_MS, append_each, new_disk, new_file_system, open_log


@pytest.mark.parametrize("records", [0, 5])
def test_kafka_13603_a_clean_start_finds_the_indexes_of_an_empty_active_segment(
    records: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The indexes of a segment are made at their first use: one that has just begun may have none."""
    caplog.set_level(logging.WARNING)
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, records)
    log.flushes.roll(now_ms=NOW_MS)
    assert logs.shutdown()
    names = disk.file_system(Life()).list(join(DIRECTORY, "t-0"))
    assert {f"{records:020d}.{suffix}" for suffix in ("log", "index", "timeindex")} <= set(names)
    disk.lose_power("none")
    logs = started(disk)
    assert logs.was_clean and logs.logs["t-0"].log_end_offset == records
    assert not caplog.records, caplog.text


def test_fl4_an_orderly_stop_syncs_an_empty_active_segment() -> None:
    disk = new_disk()
    logs = started(disk)
    append_each(logs.create("t", 0), 3)
    logs.logs["t-0"].flushes.roll(now_ms=NOW_MS)
    disk.call_log = []
    assert logs.shutdown()
    synced = [line for line in disk.call_log or [] if line.startswith("sync ")]
    for suffix in ("log", "index", "timeindex"):
        assert any(f"{3:020d}.{suffix}" in line for line in synced), (suffix, synced)


def test_fl1_what_a_start_has_recovered_below_the_log_start_is_on_the_disk() -> None:
    """No flush begins below the log start, and an orderly stop syncs only the indexes that its process has opened."""
    disk = new_disk()
    logs = started(disk)
    log = logs.create("t", 0)
    append_each(log, 70)
    log.marks.set_high_watermark(log.local.log_end)
    log.marks.maybe_increment_log_start_offset(log.local.segments.base_offsets[2])
    logs.checkpoint_log_start_offsets()
    disk.crash_process()
    for suffix in ("index", "timeindex"):
        path = join(join(DIRECTORY, "t-0"), f"{0:020d}.{suffix}")
        replace_file(disk.file_system(Life()), path, b"x" * 24)
    logs = started(disk)
    assert logs.logs["t-0"].local.recovery_point == logs.logs["t-0"].log_start_offset > 0
    names = [f"{0:020d}.{suffix}" for suffix in ("log", "index", "timeindex")]

    def read() -> list[bytes]:
        file_system = disk.file_system(Life())
        return [read_file(file_system, join(join(DIRECTORY, "t-0"), name)) for name in names]

    before = read()
    disk.lose_power("none")
    assert read() == before


@pytest.mark.parametrize("call", range(1, 12))
def test_ls15_all_files_are_closed_whatever_fails_and_the_stop_is_not_clean(call: int) -> None:
    disk = new_disk()
    logs = started(disk)
    for topic in ("t", "u"):
        append_each(logs.create(topic, 0), 70)
    log = logs.logs["t-0"]
    assert len(log.local.segments) > 2
    log.flushes.flush()
    # One change of an index fails.
    disk.fail(call, errno.EIO, path_suffix="index")
    is_clean = logs.shutdown()
    disk.disarm()
    files = [segment.records._file for segment in log.local.segments]
    with pytest.raises(OSError, match="Bad file descriptor"):
        files[0].size()
    if not is_clean:
        for file in files:
            with pytest.raises(OSError, match="Bad file descriptor"):
                file.size()
        assert not disk.file_system(Life()).exists(join(DIRECTORY, ".kafka_cleanshutdown"))
    logs = started(disk)
    assert logs.was_clean is is_clean
    assert [each.log_end_offset for each in logs.logs.values()] == [70, 70]


def test_ls15_a_close_that_fails_takes_the_log_offline_and_closes_the_other_segments() -> None:
    disk = new_disk()
    log = open_log(new_file_system(disk))
    append_each(log, 70)
    segments = list(log.local.segments)
    assert len(segments) > 2
    log.flushes.flush()
    # The first segment's file cannot be synced; the last one is closed all the same.
    disk.fail(1, errno.EIO, verbs={"sync"}, path_suffix=f"{0:020d}.log")
    with pytest.raises(StorageError, match="close failed"):
        log.close()
    assert log.online.reason is not None
    for segment in segments:
        with pytest.raises(OSError, match="Bad file descriptor"):
            segment.records._file.size()


@pytest.mark.parametrize("end", [PartitionLog.close, PartitionLog.close_handles, PartitionLog.delete])
def test_ls15_a_log_that_has_ended_holds_no_open_file(
    tmp_path: Path, end: Callable[[PartitionLog], object]
) -> None:
    """Segments, their three indexes, epochs, snapshots and the files that a cut, a round and a look-up opened."""
    # A file that an earlier test has left open must not be closed meanwhile.
    gc.collect()
    before = len(os.listdir("/dev/fd"))
    file_system = OsFileSystem()
    log = PartitionLog.open(file_system, str(tmp_path / "t-0"), COMPACTED, clean=False, now_ms=NOW_MS)
    for key in range(2):
        records = [Record(0, NOW_MS, b"key", b"%d" % key)]
        data = build_batch(
            records, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=key, is_transactional=True
        )
        log.append_as_leader(data, leader_epoch=key, now_ms=NOW_MS)
        end_transaction(log, is_commit=False)
        log.flushes.roll(now_ms=NOW_MS)
    log.truncate_to(3, now_ms=NOW_MS)
    log.marks.update_high_watermark(3)
    offsets = log.compactions.cleanable_offsets(None, NOW_MS)
    for work in log.compactions.prepare(offsets, CleanerConfig(dedupe_buffer_bytes=4096), NOW_MS):
        work()
    assert log.reads.offset_for_timestamp(NOW_MS) is not None and log.read(0, max_size=1).records
    assert len(os.listdir("/dev/fd")) > before
    end(log)
    assert len(os.listdir("/dev/fd")) == before
