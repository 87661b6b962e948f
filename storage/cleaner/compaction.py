"""One round of compaction over one log: it keeps the last record of each key; offsets and order never change.

| part | where it runs |
| --- | --- |
| plan: which segments, transactions, producers | the log's step |
| the offset map of the dirty part, `build_offset_map` | a worker, in slices |
| the new segment of a group, `clean_group`, under `.cleaned` names | a worker, in slices |
| the swap | the log's step |

Kafka: Cleaner; rules CL8 to CL11, CL20 to CL27.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, final

from storage.batch.format import CONTROL_FLAG, TRANSACTIONAL_FLAG
from storage.cleaner.chunks import SourceReader, batches_in
from storage.cleaner.filter import CleanerStats, LastRecord, RecordFilter
from storage.cleaner.keys import LEAST_RECORD_BYTES, MOST_RECORDS_AT_ONCE, RecordKey, portions_of_keys
from storage.cleaner.marks import KEPT, TOMBSTONE, WITHOUT_KEY, DirtyMarks
from storage.cleaner.offset_map import NOT_FOUND, OffsetMap
from storage.cleaner.plan import CleanerConfig, Source, group_segments
from storage.cleaner.transactions import CleanedTransactions
from storage.config import LogConfig
from storage.disk.filesystem import FileSystem
from storage.errors import OutOfHandles, SegmentOffsetOverflow
from storage.segment import LogSegment
from storage.segment.lookups import read_next_offset
from storage.segment.replace import create_cleaned_segment
from storage.segment.segments import LogSegments

_IN_TRANSACTION: Final = TRANSACTIONAL_FLAG | CONTROL_FLAG
Work = Callable[[], None]
# Yields the bytes read, chunk by chunk.
Walk = Iterator[int]


# Where the end of a segment is further from the last entry of its index, the worker looks for it.
LOOKED_AT_IN_STEP_BYTES: Final = 4 << 20


def _nothing() -> None:
    """Do nothing on the worker: the log goes on in a step of its own."""


class DirtyRange(NamedTuple):
    """The offsets that a round cleans. `end_offset` is exclusive and the base offset of a segment."""

    start_offset: int
    end_offset: int


class CompactedLog(Protocol):
    """What a round needs from its log; called in the log's own step only."""

    @property
    def directory(self) -> str: ...

    @property
    def config(self) -> LogConfig: ...

    @property
    def segments(self) -> LogSegments: ...

    def last_records_of_producers(self) -> Iterable[Mapping[int, LastRecord]]: ...

    def plan_source(self, segment: LogSegment, end_offset: int, start_offset: int) -> Source: ...

    def swap_in(self, cleaned: LogSegment, old: Sequence[LogSegment]) -> None: ...

    def split_overflowed(self, base_offset: int, now_ms: int) -> None: ...


@final
class Compaction:
    """One round, iterated over in the log's own step. Each item is work to be called once, on any thread, before the
    next item is asked for.

    `end_offset`, the next first dirty offset, is known when the iteration has ended; None when the round was aborted.
    When work raises, or the log is truncated or deleted meanwhile, call `abort`: none of its output becomes visible.
    """

    def __init__(
        self,
        file_system: FileSystem,
        log: CompactedLog,
        dirty: DirtyRange,
        config: CleanerConfig,
        now_ms: int,
    ) -> None:
        self._file_system, self._log, self._dirty, self._config = file_system, log, dirty, config
        self._now_ms = now_ms
        self._log_config = log.config
        assert dirty.start_offset <= dirty.end_offset, dirty
        # There are at most as many keys as offsets.
        dirty_offsets = dirty.end_offset - dirty.start_offset
        buffer_bytes = config.dedupe_buffer_bytes
        self._offsets = OffsetMap(buffer_bytes, dirty_offsets, dictionary_bytes=buffer_bytes // 2)
        self._marks = DirtyMarks(dirty.start_offset, dirty.end_offset)
        self._reader = SourceReader(file_system, config.io_buffer_bytes, config.max_io_buffer_bytes)
        self._transactions = CleanedTransactions()
        self._last_records: Mapping[int, LastRecord] = {}
        # The segment that is being written and does not belong to the log yet.
        self._cleaned: LogSegment | None = None
        # The base offset of a source whose offsets do not fit the segment that is being written.
        self._overflowed: int | None = None
        self._pieces = self._run()
        self.stats = CleanerStats()
        self.end_offset: int | None = None

    def __iter__(self) -> Iterator[Work]:
        return self._pieces

    def abort(self) -> None:
        """Delete what was written so far. Called in the log's step, while none of the work runs. Raises OSError."""
        self._pieces.close()
        self._reader.close()
        self._drop_cleaned()
        assert self._cleaned is None, self._cleaned

    def _drop_cleaned(self) -> None:
        cleaned, self._cleaned = self._cleaned, None
        if cleaned is not None:
            cleaned.delete()

    def _run(self) -> Generator[Work, None, None]:
        assert self.end_offset is None, (self._log.directory, self.end_offset)
        segments = self._log.segments
        legacy_horizon_ms = self._legacy_horizon_ms()
        yield from self._build_map()
        self._last_records = yield from self._all_last_records()
        end_offset = self._offsets.latest_offset + 1
        groups = group_segments(
            segments.values(0, end_offset),
            self._log_config.segment_bytes,
            self._log_config.index_bytes,
            self._dirty.end_offset,
            self._config.swapped_segments,
        )
        for group in groups:
            yield from self._clean_group(group, legacy_horizon_ms)
            # The round ends here: it has to begin again after the split, in Kafka too.
            if self._overflowed is not None:
                self._log.split_overflowed(self._overflowed, self._now_ms)
                return
        assert end_offset >= 0, (end_offset, self._dirty)
        self.end_offset = end_offset

    def _legacy_horizon_ms(self) -> int:
        """The latest modification time of a segment whose tombstones of magic 0 or 1 are deleted (CL16)."""
        clean = self._log.segments.values(0, self._dirty.start_offset)
        return clean[-1].records.modified_ms() - self._log_config.delete_retention_ms if clean else 0

    def _slices(self, walk: Walk) -> Generator[Work, None, None]:
        slice_of_walk = _Slice(walk, self._config.slice_bytes)
        while not slice_of_walk.is_done:
            yield slice_of_walk

    def _build_map(self) -> Generator[Work, None, None]:
        dirty, start_offset = self._dirty, self._dirty.start_offset
        segments = self._log.segments.values(start_offset, dirty.end_offset)
        ends = [*(segment.base_offset for segment in segments), dirty.end_offset][1:]
        transactions, planned = CleanedTransactions(), self._config.planned_segments
        for first in range(0, len(segments), planned):
            sources = [
                self._log.plan_source(segments[place], ends[place], start_offset)
                for place in range(first, min(first + planned, len(segments)))
            ]
            walk = build_offset_map(
                self._reader,
                self._offsets,
                sources,
                transactions,
                start_offset=start_offset,
                max_entries=int(self._offsets.slots * self._config.dedupe_buffer_load_factor),
                max_message_bytes=self._log_config.max_message_bytes,
                marks=self._marks,
                stats=self.stats,
            )
            yield from self._slices(walk)
            # The map is full.
            if self._offsets.latest_offset != sources[-1].end_offset - 1:
                return

    def _all_last_records(self) -> Generator[Work, None, dict[int, LastRecord]]:
        """The last record of each producer. A record that comes meanwhile is above what the round cleans."""
        found: dict[int, LastRecord] = {}
        for piece in self._log.last_records_of_producers():
            if found:
                yield _nothing
            found.update(piece)
        return found

    def _clean_group(
        self, group: Sequence[LogSegment], legacy_horizon_ms: int
    ) -> Generator[Work, None, None]:
        assert self._cleaned is None, self._cleaned
        sources = yield from self._plan_group(group)
        cleaned = self._cleaned = create_cleaned_segment(
            self._file_system, self._log.directory, group[0].base_offset, self._log_config, self._now_ms
        )
        # The files are created here and not by the worker: a deletion may run at the same time as the worker.
        cleaned.open_indexes()
        self._transactions.keep_aborted = cleaned.transaction_index.append
        yield from self._slices(self._write_group(sources, cleaned, legacy_horizon_ms))
        assert self._cleaned is cleaned, (self._cleaned, cleaned)
        if self._overflowed is not None:
            self._drop_cleaned()
            return
        # From here on an abort must not delete it: if the swap fails, the next start finishes or undoes the swap.
        self._cleaned = None
        try:
            self._log.swap_in(cleaned, group)
        except OutOfHandles:
            # The swap has not begun.
            self._cleaned = cleaned
            raise

    def _plan_group(self, group: Sequence[LogSegment]) -> Generator[Work, None, list[Source]]:
        last, found = group[-1], list[int]()

        def look_for_end() -> None:
            found.append(read_next_offset(last))

        indexed = last.indexed_position(last.offset_index.last_offset)
        if last.size_bytes - indexed > LOOKED_AT_IN_STEP_BYTES:
            yield look_for_end
        else:
            look_for_end()
        ends = [*(segment.base_offset for segment in group[1:]), *found]
        return [
            self._log.plan_source(segment, end_offset, segment.base_offset)
            for segment, end_offset in zip(group, ends, strict=True)
        ]

    def _write_group(self, sources: Sequence[Source], cleaned: LogSegment, legacy_horizon_ms: int) -> Walk:
        record_filter = RecordFilter(
            offsets=self._offsets,
            marks=self._marks,
            transactions=self._transactions,
            last_records=self._last_records,
            round_end_offset=self._dirty.end_offset,
            delete_retention_ms=self._log_config.delete_retention_ms,
            now_ms=self._now_ms,
            stats=self.stats,
        )
        return self._clean_sources(sources, cleaned, record_filter, legacy_horizon_ms)

    def _clean_sources(
        self,
        sources: Sequence[Source],
        cleaned: LogSegment,
        record_filter: RecordFilter,
        legacy_horizon_ms: int,
    ) -> Walk:
        assert sources, cleaned
        assert self._overflowed is None, (cleaned, self._overflowed)
        for source in sources:
            self._transactions.add_aborted(source.aborted)
            record_filter.retains_legacy_deletes = source.modified_ms > legacy_horizon_ms
            try:
                yield from self._clean_into(source, cleaned, record_filter)
            except SegmentOffsetOverflow:
                self._reader.close()
                self._overflowed = source.base_offset
                return
        cleaned.on_become_inactive()
        cleaned.flush()
        cleaned.set_modified(sources[-1].modified_ms)

    def _clean_into(self, source: Source, cleaned: LogSegment, record_filter: RecordFilter) -> Walk:
        """Filter `source` into `cleaned`, with one append per chunk (CL20). Raises SegmentOffsetOverflow."""
        reader, position = self._reader, 0
        reader.open(source)
        while position < source.size_bytes:
            chunk = reader.read(position)
            kept = record_filter.filter_chunk(chunk, reader.capacity_bytes, source.path, position)
            if kept.parts:
                cleaned.append(kept.last_offset, b"".join(kept.parts))
            if kept.bytes_read == 0:
                reader.grow(source, chunk, position, self._log_config.max_message_bytes)
            position += kept.bytes_read
            yield max(kept.bytes_read, LEAST_RECORD_BYTES * kept.records_read)
        reader.finish()


@final
class _Slice:
    """A piece of work that continues where its last call stopped; one call reads about `limit_bytes`."""

    def __init__(self, walk: Walk, limit_bytes: int) -> None:
        # Otherwise a call would end after its first piece, whatever its size.
        assert limit_bytes > 0, limit_bytes
        self._walk: Final = walk
        self._limit_bytes: Final = limit_bytes
        self.is_done = False

    def __call__(self) -> None:
        assert not self.is_done, self._limit_bytes
        done_bytes = 0
        for read_bytes in self._walk:
            assert read_bytes >= 0, (read_bytes, done_bytes)
            done_bytes += read_bytes
            if done_bytes >= self._limit_bytes:
                return
        self.is_done = True


def build_offset_map(
    reader: SourceReader,
    offsets: OffsetMap,
    sources: Iterable[Source],
    transactions: CleanedTransactions,
    *,
    start_offset: int,
    max_entries: int,
    max_message_bytes: int,
    marks: DirtyMarks,
    stats: CleanerStats,
) -> Walk:
    """Put the last offset of every key of `sources` from `start_offset` on into `offsets` (CL8).

    `transactions` has seen the batches of all sources before. The walk ends when `offsets` holds `max_entries`.
    `offsets.latest_offset` is the last offset that was read; where offsets are missing at the end of a segment it is
    the offset before the next segment (KAFKA-8764). Raises CorruptBatch, InvalidRecord.
    """
    assert len(offsets) <= max_entries, (len(offsets), max_entries)
    for source in sources:
        transactions.add_aborted(source.aborted)
        reader.open(source)
        position = source.start_position
        while position < source.size_bytes:
            chunk = reader.read(position)
            read_bytes, before = 0, stats.map_records_read
            for batch in batches_in(chunk, source.path, position):
                is_plain = not batch.attributes & _IN_TRANSACTION
                if is_plain or not (transactions.can_discard(batch) or batch.is_control):
                    for keys in portions_of_keys(batch):
                        if not _map_keys(offsets, marks, keys, start_offset, max_entries):
                            reader.close()
                            return
                        stats.map_records_read += len(keys)
                if batch.last_offset >= start_offset:
                    offsets.latest_offset = batch.last_offset
                read_bytes += batch.size_bytes
                if stats.map_records_read - before > MOST_RECORDS_AT_ONCE:
                    break
            if read_bytes == 0:
                reader.grow(source, chunk, position, max_message_bytes)
            position += read_bytes
            stats.map_bytes_read += read_bytes
            yield max(read_bytes, LEAST_RECORD_BYTES * (stats.map_records_read - before))
        offsets.latest_offset = source.end_offset - 1
        reader.finish()
        assert len(offsets) <= max_entries, (len(offsets), max_entries)


def _map_keys(
    offsets: OffsetMap, marks: DirtyMarks, keys: Sequence[RecordKey], start_offset: int, max_entries: int
) -> bool:
    """Put the keys of one batch into `offsets`. Returns False as soon as there is no room for one."""
    put, note = offsets.put, marks.note
    is_nearly_full = len(offsets) + len(keys) > max_entries
    for offset, key, has_value in keys:
        if key is None:
            note(offset, WITHOUT_KEY, NOT_FOUND)
        elif offset >= start_offset:
            if is_nearly_full and len(offsets) >= max_entries:
                return False
            note(offset, KEPT if has_value else TOMBSTONE, put(key, offset))
    return True
