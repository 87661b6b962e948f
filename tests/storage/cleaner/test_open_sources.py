"""The files that a round of compaction reads are closed however the round ends. Rule CL23."""

from __future__ import annotations

from dataclasses import replace

from storage.batch import Record, build_batch
from storage.cleaner.compaction import Compaction
from storage.cleaner.plan import CleanerConfig
from storage.disk.filesystem import File
from tests.storage.cleaner.compacted_logs import COMPACTED, CleanedLog, run
from tests.storage.disk.opened_files import still_open, watched
from tests.storage.logs import NOW_MS


def watched_log(opened: list[File], segment_bytes: int) -> CleanedLog:
    """Return a log that adds each file that is opened to `opened`."""
    log = CleanedLog(replace(COMPACTED, segment_bytes=segment_bytes))
    log.file_system = watched(log.file_system, opened)
    log.reopen()
    return log


def round_of(log: CleanedLog, end: int | None = None) -> Compaction:
    """Prepare a round whose slices read one chunk each."""
    offsets = log.log.compactions.cleanable_offsets(None, NOW_MS)
    if end is not None:
        offsets = replace(offsets, first_uncleanable_offset=end)
    config = CleanerConfig(dedupe_buffer_bytes=4096, slice_bytes=1)
    return log.log.compactions.prepare(offsets, config, NOW_MS)


def test_cl23_a_round_that_is_aborted_within_a_source_holds_no_file_of_it() -> None:
    opened: list[File] = []
    log = watched_log(opened, 1024)
    log.put_each(1, 2, 1)
    log.roll()
    log.put_each(3)
    compaction = round_of(log)
    opened.clear()
    next(iter(compaction))()
    (source,) = still_open(opened)
    assert source.endswith(".log")
    compaction.abort()
    assert still_open(opened) == []


def test_cl23_a_round_that_a_source_of_too_far_offsets_ended_holds_no_file_of_it() -> None:
    opened: list[File] = []
    log = watched_log(opened, 100_000)
    log.put_each(1, 2, 3)
    beyond = build_batch([Record(2**31 + 5, NOW_MS, b"1", b"far")], base_offset=2**31 + 5)
    # A broker before 1.1 wrote such batches.
    log.log.local.segments.active.records.append(beyond)
    log.log.local.update_log_end(2**31 + 6)
    log.log.marks.update_high_watermark(2**31 + 6)
    log.roll()
    compaction = round_of(log, log.log.local.segments.base_offsets[1])
    opened.clear()
    run(compaction)
    assert compaction.end_offset is None
    # The files of the new segments are those of `.cleaned` names.
    assert [path for path in still_open(opened) if path.endswith(".log")] == []
