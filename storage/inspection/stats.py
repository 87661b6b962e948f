"""Counts the segments, batches and records of logs. It only reads, and checks only what it needs to continue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from storage.batch import CURRENT_MAGIC, RecordBatch
from storage.batch.pieces import HEADS_HELD
from storage.disk.filesystem import FileSystem, join
from storage.errors import CorruptBatch, StorageError, reason_of
from storage.inspection.dump.writers import codec_label
from storage.segment import (
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    log_path,
    offset_name,
)
from storage.segment.file_records import FileRecords
from storage.segment.live_files import list_live_files


@dataclass(slots=True, kw_only=True)
class LogCounts:
    """Counts of a log. `open_files` and `maps` are those of a node that uses every segment: it holds as many, up to the
    limit of its pool of handles.
    """

    segments: int = 0
    batches: int = 0
    records: int = 0
    control_records: int = 0
    log_bytes: int = 0
    index_bytes: int = 0
    # The number of batches by codec.
    codecs: dict[str, int] = field(default_factory=dict)
    # The number of batches by magic.
    magics: dict[str, int] = field(default_factory=dict)
    open_files: int = 0
    maps: int = 0

    def add(self, other: LogCounts) -> None:
        """Add the counts of `other` to these."""
        assert other is not self, self
        self.segments += other.segments
        self.batches += other.batches
        self.records += other.records
        self.control_records += other.control_records
        self.log_bytes += other.log_bytes
        self.index_bytes += other.index_bytes
        self.open_files += other.open_files
        self.maps += other.maps
        assert self.control_records <= self.records, (self.control_records, self.records)
        _add(self.codecs, other.codecs)
        _add(self.magics, other.magics)


@dataclass(slots=True, kw_only=True)
class PartitionStats(LogCounts):
    """The counts of one partition. `epochs` has a pair for each leader epoch in its batches: the epoch, and the offset
    at which it begins.
    """

    directory: str
    first_offset: int = 0
    log_end_offset: int = 0
    epochs: list[list[int]] = field(default_factory=list)
    producers: int = 0
    # The first damage, at which the counts of that segment end; None for a sound log.
    error: str | None = None
    # Whether the system refused to read a file, which is not damage.
    is_unreadable: bool = False


@dataclass(slots=True, kw_only=True)
class TotalStats(LogCounts):
    """The counts of several partitions."""

    partitions: int = 0


def partition_stats(file_system: FileSystem, directory: str, *, in_use: bool = False) -> PartitionStats:
    """Count one partition. Raises OSError if the directory cannot be listed; other errors are in the result.

    While a node uses the directory (`in_use`), zeros at the end of the last segment are room that it has not written.
    """
    return _Count(file_system, directory, in_use).run()


def total_stats(partitions: Iterable[PartitionStats]) -> TotalStats:
    """Add up the counts of `partitions`."""
    total = TotalStats()
    for each in partitions:
        assert each.control_records <= each.records, each
        total.partitions += 1
        total.add(each)
    # Each segment has one file that is not mapped.
    assert total.maps + total.segments <= total.open_files, total
    return total


def _add(counts: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


class _Count:
    def __init__(self, file_system: FileSystem, directory: str, in_use: bool) -> None:
        self._file_system, self._directory, self._in_use = file_system, directory, in_use
        self._stats = PartitionStats(directory=directory)
        self._producer_ids: set[int] = set()

    def run(self) -> PartitionStats:
        """Count the whole partition; to be called once."""
        stats = self._stats
        assert stats.segments == 0, (self._directory, stats.segments)
        files = list_live_files(self._file_system, self._directory)
        if files.base_offsets:
            stats.first_offset, stats.log_end_offset = files.base_offsets[0], files.base_offsets[-1]
        for base_offset in files.base_offsets:
            self._count_files(base_offset, files.names, is_last=base_offset == files.base_offsets[-1])
            try:
                is_last = base_offset == files.base_offsets[-1]
                self._count_segment(log_path(self._directory, base_offset), is_last=is_last)
            except StorageError as error:
                stats.error = stats.error or " ".join(str(error).split())
            except OSError as error:
                stats.error, stats.is_unreadable = stats.error or reason_of(error), True
        stats.producers = len(self._producer_ids)
        assert stats.segments == len(files.base_offsets), (self._directory, stats.segments)
        return stats

    def _count_files(self, base_offset: int, names: frozenset[str], *, is_last: bool) -> None:
        stats, stem = self._stats, offset_name(base_offset)
        stats.segments += 1
        stats.open_files += 1
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            if stem + suffix in names:
                size_bytes = self._file_system.stat(join(self._directory, stem + suffix)).size_bytes
                stats.index_bytes += size_bytes
                is_transaction_index = suffix == TRANSACTION_INDEX_SUFFIX
                # An empty file cannot be mapped; a node makes those of the last segment long.
                is_mapped = not is_transaction_index and (size_bytes > 0 or is_last)
                stats.maps += is_mapped
                # A map holds its file open; an index that is written has a descriptor besides.
                stats.open_files += is_mapped + (is_last or is_transaction_index)
        # Each segment has one file that is not mapped.
        assert stats.maps + stats.segments <= stats.open_files, (stats.maps, stats.segments, stats.open_files)
        # A `.log`, two mapped indexes and one that is not; the last segment's are written.
        assert stats.open_files <= 4 * stats.segments + 2, (stats.open_files, stats.segments)

    def _count_segment(self, path: str, *, is_last: bool) -> None:
        assert self._stats.segments > 0, path
        records = FileRecords(self._file_system, path, read_only=True)
        try:
            self._stats.log_bytes += records.size_bytes
            end, damage = 0, None
            try:
                for batch in records.batches():
                    self._count_batch(batch)
                    end = batch.position + batch.size_bytes
            except CorruptBatch as error:
                damage = error
            assert end <= records.size_bytes, (path, end, records.size_bytes)
            if damage is None and end < records.size_bytes:
                left_bytes = records.size_bytes - end
                damage = CorruptBatch(path, end, f"the last {left_bytes} bytes are no whole batch")
            # A node that writes a preallocated file has not come to its end yet.
            may_be_preallocated = self._in_use and is_last
            if damage is not None and not (may_be_preallocated and records.has_only_zeros_from(end)):
                raise damage
        finally:
            records.close_handlers()

    def _count_batch(self, batch: RecordBatch) -> None:
        stats, codec, magic = self._stats, codec_label(batch), str(batch.magic)
        assert len(stats.codecs) <= stats.batches, (stats.codecs, stats.batches)
        stats.batches += 1
        stats.codecs[codec] = stats.codecs.get(codec, 0) + 1
        stats.magics[magic] = stats.magics.get(magic, 0) + 1
        stats.log_end_offset = max(stats.log_end_offset, batch.last_offset + 1)
        if batch.magic < CURRENT_MAGIC:
            stats.records += sum(1 for _ in batch.messages(held=HEADS_HELD))
            return
        stats.records += max(batch.record_count, 0)
        if batch.is_control:
            stats.control_records += max(batch.record_count, 0)
        assert stats.control_records <= stats.records, (stats.control_records, stats.records)
        if batch.producer_id >= 0:
            self._producer_ids.add(batch.producer_id)
        epoch = batch.partition_leader_epoch
        if epoch >= 0 and (not stats.epochs or stats.epochs[-1][0] != epoch):
            stats.epochs.append([epoch, batch.base_offset])
