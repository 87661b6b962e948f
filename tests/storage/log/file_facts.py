"""What the files of a log say, read without the log: the judge of what an open log holds in memory."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from storage.batch import RecordBatch, iterate_batches
from storage.disk.filesystem import read_file
from storage.index.time_index import TimestampOffset
from storage.log import PartitionLog
from storage.producers.snapshot import list_snapshots
from storage.segment import LogSegment

NO_LIMIT = 1 << 40


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """The batches of one `.log` file; the start of each is its byte in the file."""

    base_offset: int
    size_bytes: int
    batches: Sequence[RecordBatch]

    def greatest(self, end_offset: int = NO_LIMIT) -> TimestampOffset:
        """The greatest timestamp below `end_offset`, and the last offset of the first batch that has it."""
        found = TimestampOffset(-1, self.base_offset)
        for each in self.batches:
            if each.last_offset < end_offset and each.max_timestamp > found.timestamp:
                found = TimestampOffset(each.max_timestamp, each.last_offset)
        return found


def read_segment(log: PartitionLog, segment: LogSegment) -> SegmentFile:
    data = read_file(log.local.file_system, segment.path)
    return SegmentFile(segment.base_offset, len(data), list(iterate_batches(data)))


def check_log(log: PartitionLog, cut_unseen: Set[int], untimed: Set[int]) -> None:
    """Check all that `log` holds.

    The segments based at `cut_unseen` were cut before their greatest timestamp was known: they may hold a lower one, as
    Kafka's, but retention must not. Those at `untimed` were closed like that, so that their files say no more.
    """
    files = [read_segment(log, segment) for segment in log.local.segments]
    for segment, file in zip(log.local.segments, files, strict=True):
        check_offset_index(segment, file)
        check_first_timestamp_and_room(segment, file)
        if file.base_offset not in untimed:
            check_times(segment, file, is_exact=file.base_offset not in cut_unseen)
    check_whole(log, files)
    check_epochs_and_producers(log, [each for file in files for each in file.batches])


def check_offset_index(segment: LogSegment, file: SegmentFile) -> None:
    """Each entry is the last offset of a batch and its byte; both rise."""
    assert segment.size_bytes == file.size_bytes, (segment, file.size_bytes)
    ends = {each.start: each.last_offset for each in file.batches}
    index = segment.offset_index
    entries = [index.entry(slot) for slot in range(index.entries)]
    for entry in entries:
        assert ends.get(entry.position) == entry.offset, (segment, entry, ends)
    assert entries == sorted(set(entries)), (segment, entries)
    assert index.is_full == (index.entries >= index.max_entries), segment


def check_times(segment: LogSegment, file: SegmentFile, *, is_exact: bool) -> None:
    """Each time entry is the greatest timestamp so far; what is held is the greatest of all."""
    index, greatest = segment.time_index, file.greatest()
    if is_exact:
        entries = [index.entry(slot) for slot in range(index.entries)]
        assert entries == sorted(set(entries)), (segment, entries)
        for entry in entries:
            assert entry == file.greatest(entry.offset + 1), (segment, entry)
    if segment.is_max_timestamp_known:
        assert segment.kept_until_ms >= greatest.timestamp, (segment, segment.kept_until_ms, greatest)
        assert not is_exact or segment.max_timestamp == greatest, (segment, segment.max_timestamp, greatest)
    elif is_exact:
        # What the segment will hold once it is asked.
        assert index.last_entry == greatest, (segment, index.last_entry, greatest)


def check_first_timestamp_and_room(segment: LogSegment, file: SegmentFile) -> None:
    first = segment.first_batch_timestamp
    if not file.batches:
        assert first is None, (segment, first)
        return
    # In the life of the append it is that of the whole first set.
    assert first is not None and first >= file.batches[0].max_timestamp, (segment, first)
    if segment.has_room_for(0, segment.base_offset, first, NO_LIMIT, NO_LIMIT):
        assert not segment.indexes.are_full, segment


def check_whole(log: PartitionLog, files: Sequence[SegmentFile]) -> None:
    """The size, the end, the snapshots and the place of the high watermark are those of the files."""
    local, snapshots = log.local, log.producers.snapshots
    assert local.segments.size_bytes == sum(file.size_bytes for file in files), files
    assert local.log_end.segment_base_offset == files[-1].base_offset, (local.log_end, files[-1])
    assert local.log_end.position == files[-1].size_bytes, (local.log_end, files[-1])
    ends = [0, *(each.next_offset for file in files for each in file.batches)]
    assert ends == sorted(set(ends)) and ends[-1] <= log.log_end_offset, (ends, log)
    assert snapshots.offsets == list_snapshots(local.file_system, log.directory), snapshots.offsets
    place = log.marks.high_watermark_metadata
    if not place.is_message_only:
        file = next((each for each in files if each.base_offset == place.segment_base_offset), None)
        assert file is not None, (place, log.local.segments.base_offsets)
        assert place.position in [*(each.start for each in file.batches), file.size_bytes], place


def check_epochs_and_producers(log: PartitionLog, batches: Sequence[RecordBatch]) -> None:
    """The epoch of each batch is known, and of each producer the last batch."""
    last: dict[int, RecordBatch] = {}
    for each in batches:
        if each.base_offset >= log.log_start_offset:
            epoch = log.epochs.epoch_for_offset(each.base_offset)
            assert epoch == each.partition_leader_epoch, (each, log.epochs.entries)
            if each.has_producer_id:
                last[each.producer_id] = each
    for producer_id, each in last.items():
        entry = log.producers.producers.get(producer_id)
        assert entry is not None and entry.last_offset == each.last_offset, (entry, each)
        assert entry.last_sequence == each.last_sequence, (entry, each)
