"""Start-up of one partition: finish or undo what a crash interrupted, open the segments, make them sound.

After an orderly stop nothing is scanned; after any other the segments from the recovery point on are walked batch by
batch. Kafka: LogLoader; rules LL6 to LL26.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TypeVar, final

from storage.config import LONG_MAX
from storage.disk.checkpoints import LEADER_EPOCH_CHECKPOINT
from storage.disk.filesystem import OpenMode, basename, join
from storage.errors import CorruptBatch, CorruptIndex, InvalidOffset, SegmentOffsetOverflow, StorageError
from storage.leader_epochs import LeaderEpochCache
from storage.producers.rebuild import rebuild_producer_state
from storage.producers.snapshot import snapshot_name
from storage.producers.state import ProducerStateManager
from storage.recovery.cut import RecoveryCut, report_cut
from storage.recovery.interrupted_swaps import finish_interrupted_swaps
from storage.recovery.misfits import (
    Misfit,
    find_misfit,
    find_step_back,
    has_full_index,
    overfills_indexes,
    overflows,
)
from storage.recovery.request import LoadedLog, LoadRequest
from storage.recovery.walk import recover_segment
from storage.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, LogSegment, offset_name
from storage.segment.live_files import list_live_files
from storage.segment.lookups import read_next_offset
from storage.segment.names import CLEANED_SUFFIX
from storage.segment.segments import LogSegments
from storage.segment.split import split_overflowed_segment
from storage.topics import DELETE_SUFFIX

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
# Called directly before a cut; None where nothing has to be done then.
BeforeCut = Callable[[], None] | None


def load_log(request: LoadRequest) -> LoadedLog:
    """Load the log that `request` describes, and make it sound.

    Raises StorageError, with file and place, for damage that can be neither cut nor rebuilt; all files are closed then.
    """
    loader = _Loader(request)
    try:
        return loader.load()
    except BaseException:
        for segment in loader.segments:
            segment.close_handlers()
        raise


@final
class _Loader:
    """The start-up of one partition, step by step. `segments` are those that are open."""

    def __init__(self, request: LoadRequest) -> None:
        self._request = request
        self._file_system, self._directory = request.file_system, request.directory
        self.segments = LogSegments()
        self._removed_bytes = 0
        self._names_at_start: frozenset[str] = frozenset()
        self._last_base_offset = -1
        # Base offsets of segments that recovery may cut as it sees fit.
        self._refused_by_kafka: set[int] = set()
        # Base offsets of segments whose split failed.
        self._unsplittable: set[int] = set()
        # Base offsets of segments that an interrupted swap brought without an offset index.
        self._swapped_without_index: frozenset[int] = frozenset()
        # The snapshots in the directory, where they are known: it would take long to list it for each segment.
        self._snapshots: list[int] | None = None
        # The base offset of the first segment that recovery will walk.
        self._recover_from = LONG_MAX
        self._file_system.make_directory(self._directory)
        self._epochs = LeaderEpochCache(self._file_system, join(self._directory, LEADER_EPOCH_CHECKPOINT))

    def load(self) -> LoadedLog:
        request = self._request
        assert not len(self.segments), self.segments.base_offsets
        if not request.is_clean:
            self._settle_names()
        self._swapped_without_index = finish_interrupted_swaps(request)
        self._splitting(self._load_segments)
        recovery_point, log_end_offset = self._splitting(self._recover_log)
        self._epochs.truncate_from_end(log_end_offset)
        first = self.segments.first
        assert first is not None, self._directory
        log_start_offset = max(request.log_start_offset, first.base_offset)
        recovery_point = max(recovery_point, log_start_offset)
        self._sync_below(recovery_point)
        # To the log start offset of the checkpoint, as Kafka does, even where the first segment is above it (LL24).
        self._epochs.truncate_from_start(request.log_start_offset)
        self._epochs.flush()
        # Deleted names must not come back after a power loss either.
        if not request.is_clean:
            self._file_system.sync_directory(self._directory)
        producers = self._new_producers()
        producers.snapshots.delete_strays(self.segments.base_offsets)
        rebuild_producer_state(
            producers,
            self.segments,
            log_start_offset=log_start_offset,
            last_offset=log_end_offset,
            now_ms=request.now_ms,
            is_clean=request.is_clean,
            recalls_batches=request.recalls_batches,
        )
        return LoadedLog(
            segments=self.segments,
            leader_epochs=self._epochs,
            producers=producers,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            log_end_offset=log_end_offset,
            removed_bytes=self._removed_bytes,
        )

    def _settle_names(self) -> None:
        """Sync the directory: renames and deletions of a dead process may be in the page cache only.

        The start relies on them. One example is a segment that the process deleted after a cut: the cut is synced, so
        the segment must not come back.
        """
        self._file_system.sync_directory(self._directory)

    def _splitting(self, step: Callable[[], Result]) -> Result:
        """Run `step` until it ends, each time after the split of a segment whose offsets do not fit it (LL12)."""
        while True:
            try:
                return step()
            except SegmentOffsetOverflow as error:
                self._split(error.base_offset)

    def _can_split(self, segment: LogSegment) -> bool:
        """Whether to split the segment; False where a torn header is likelier than an old broker's overflow.

        Only compaction makes gaps that wide, and only the very end of the log can be torn. Kafka splits a torn segment
        too: the log then ends at the garbage offset, and a follower that truncates it keeps a hole in place of offsets
        that were never written.
        """
        if segment.base_offset in self._unsplittable or not overflows(segment):
            return False
        request, last = self._request, self.segments.last
        last_base_offset = max(self._last_base_offset, -1 if last is None else last.base_offset)
        if request.is_clean or request.config.is_compacted or segment.base_offset < last_base_offset:
            return True
        misfit = find_misfit(segment)
        return misfit is None or not misfit.is_torn_header

    def _split(self, base_offset: int) -> None:
        """Split the segment at `base_offset`. One that cannot be split is left to recovery, which cuts it instead."""
        request, segment = self._request, self.segments.get(base_offset)
        assert segment is not None, (self._directory, base_offset)
        logger.info("splitting a segment: segment=%s", segment.path)
        try:
            result = split_overflowed_segment(
                self._file_system, self._directory, self.segments, segment, request.config, request.now_ms
            )
        except StorageError as error:
            logger.warning("segment not split: segment=%s reason=%s", segment.path, error)
            self._unsplittable.add(segment.base_offset)
            return
        for old in result.deleted:
            self._delete_snapshot(old.base_offset)

    def _load_segments(self) -> None:
        """Open all segments. One without its offset index is made sound at once, even after a clean stop (LL10).

        Raises SegmentOffsetOverflow for a segment that is to be split; after the split this is called again.
        """
        # Those of the call that a split has ended.
        for segment in self.segments:
            segment.close()
        self.segments.clear()
        files = list_live_files(self._file_system, self._directory)
        for path in files.orphan_indexes:
            logger.warning("index without a log deleted: path=%s", path)
            self._file_system.unlink(path)
        self._names_at_start = self._names_at_start or files.names
        self._last_base_offset = max(files.base_offsets, default=-1)
        if not self._request.is_clean:
            flushed = bisect_right(files.base_offsets, self._request.recovery_point) - 1
            self._recover_from = files.base_offsets[flushed] if flushed >= 0 else 0
        for base_offset in files.base_offsets:
            try:
                segment = self._open_segment(base_offset, file_already_exists=True)
            except IsADirectoryError:
                logger.warning(
                    "sub-directory with the name of a segment ignored: directory=%s", self._directory
                )
                continue
            if offset_name(base_offset) + TRANSACTION_INDEX_SUFFIX not in files.names:
                segment.transaction_index.note_missing()
            try:
                self._check_indexes(segment, files.names)
            except SegmentOffsetOverflow:
                self.segments.add(segment)
                raise
            except BaseException:
                segment.close_handlers()
                raise
            self.segments.add(segment)
        assert len(self.segments) <= len(files.base_offsets), (self.segments.base_offsets, self._directory)
        # After a clean stop no segment is walked.
        assert not self._request.is_clean or self._recover_from == LONG_MAX, (
            self._directory,
            self._recover_from,
        )

    def _open_segment(self, base_offset: int, *, file_already_exists: bool = False) -> LogSegment:
        request = self._request
        return LogSegment.open(
            self._file_system,
            self._directory,
            base_offset,
            request.config,
            request.now_ms,
            file_already_exists=file_already_exists,
            draws=request.draws,
        )

    def _check_indexes(self, segment: LogSegment, names: frozenset[str]) -> None:
        """Recover the segment if its offset index is missing or its transaction index is damaged (LS17).

        The content of the offset and the time index is trusted: recovery of the unflushed segments builds both again
        anyway. `names` are all names in the directory.
        """
        name = offset_name(segment.base_offset)
        if name + INDEX_SUFFIX not in names:
            is_walked = segment.base_offset >= self._recover_from
            # A cut now would leave the later segments in the log; the walk of recovery deletes them (LL14).
            if is_walked and segment.base_offset in self._swapped_without_index:
                return
            if self._request.is_clean or segment.base_offset < self._request.recovery_point:
                logger.error("offset index missing: segment=%s", segment.path)
            self._recover_at_once(segment)
            return
        if name + TIME_INDEX_SUFFIX not in names:
            self._make_empty(segment.time_index_path)
        try:
            if name + TRANSACTION_INDEX_SUFFIX in names:
                segment.sanity_check()
        except CorruptIndex as error:
            logger.warning("transaction index damaged: segment=%s reason=%s", segment.path, error)
            self._recover_at_once(segment)

    def _make_empty(self, path: str) -> None:
        """Create an empty file: after a power loss the zeros of a new index would count as entries."""
        self._file_system.open(path, OpenMode.CREATE_NEW).close()

    def _recover_at_once(self, segment: LogSegment) -> None:
        """Recover the segment now, unless it or an earlier segment is damaged.

        A damaged segment that was not flushed is left to the recovery of all such segments, in order (Kafka does not
        start). For a damaged segment that was flushed it raises StorageError with the place.
        """
        try:
            self._rebuild_indexes(segment)
        except SegmentOffsetOverflow as error:
            if self._can_split(segment):
                raise
            self._leave_to_recovery(segment, find_misfit(segment), error)
        except InvalidOffset as error:
            self._leave_to_recovery(segment, find_step_back(segment), error)
        except CorruptBatch as error:
            self._leave_to_recovery(segment, None, error)

    def _rebuild_indexes(self, segment: LogSegment) -> None:
        """Recover the segment under another name of its offset index, which gets its own name when all is on disk.

        Below the recovery point the next start trusts an offset index with that name. After a crash before the rename
        it is still missing, and the next start recovers the segment again.
        """
        offset_index, path = segment.indexes.lazy_offset, segment.offset_index_path
        offset_index.rename_to(path + CLEANED_SUFFIX)
        try:
            self._recover(segment)
            segment.flush()
            self._file_system.sync_directory(self._directory)
        # The load may continue without it, with a split or with the recovery of all segments.
        except StorageError:
            offset_index.rename_to(path)
            raise
        offset_index.rename_to(path)

    def _leave_to_recovery(self, segment: LogSegment, misfit: Misfit | None, error: StorageError) -> None:
        if segment.base_offset >= self._recover_from:
            logger.warning("segment left to recovery: segment=%s reason=%s", segment.path, error)
            self._refused_by_kafka.add(segment.base_offset)
        elif misfit is None:
            raise error
        else:
            raise CorruptBatch(segment.path, misfit.position, misfit.reason) from error

    def _recover_log(self) -> tuple[int, int]:
        """Recover the unflushed segments. Returns recovery point and log end offset (LL13, LL14, LL18 to LL21)."""
        request = self._request
        if basename(self._directory).endswith(DELETE_SUFFIX):
            if not len(self.segments):
                self.segments.add(self._open_segment(0))
            return 0, 0
        if not request.is_clean:
            self._recover_unflushed()
        log_end_offset = self._end_unless_below_start()
        if log_end_offset is not None and not self._make_room_in_indexes(self.segments.active):
            # The log end was found with indexes that have been built again since.
            log_end_offset = self._end_unless_below_start()
        if log_end_offset is None:
            self.segments.add(self._open_segment(request.log_start_offset))
            # This creates the files of both indexes: a loaded log has them from the start.
            self.segments.active.resize_indexes()
        if request.is_clean and log_end_offset is not None:
            return log_end_offset, log_end_offset
        if log_end_offset is None:
            log_end_offset = read_next_offset(self.segments.active)
        assert log_end_offset >= request.log_start_offset, (self._directory, log_end_offset)
        return min(request.recovery_point, log_end_offset), log_end_offset

    def _recover_unflushed(self) -> None:
        """Recover each segment from that of the recovery point on; the first cut ends the log (T37, T38).

        The segments after the cut are deleted before the cut itself is made. In the other order a crash between the two
        would leave a sound segment, a hole, and segments after the hole that look like good ones.
        """
        unflushed = self.segments.values(self._request.recovery_point, LONG_MAX)
        for number, segment in enumerate(unflushed):
            before_cut = partial(self._delete_following, unflushed, number)
            if self._recover_or_cut(segment, before_cut) > 0:
                for deleted in unflushed[number + 1 :]:
                    self._delete_snapshot(deleted.base_offset)
                assert self.segments.last is segment, (segment, self.segments.last)
                return

    def _sync_below(self, recovery_point: int) -> None:
        """Sync the recovered segments of which all offsets are below the new recovery point: no later flush does.

        Such are those below the log start. Their indexes have been built again, and an orderly stop vouches for them.
        """
        if self._request.is_clean:
            return
        recovered = self.segments.values(self._request.recovery_point, LONG_MAX)
        for segment, following in pairwise(recovered):
            if following.base_offset <= recovery_point:
                segment.flush()

    def _recover(self, segment: LogSegment, before_cut: BeforeCut = None) -> int:
        """Recover one segment, from the producer state at its base offset on. Returns the bytes cut.

        The snapshot at its end spares the recovery of the next segment a replay of this one (LL11). Raises what
        `recover_segment` raises, CorruptBatch.
        """
        producers = self._new_producers(self._snapshots)
        rebuild_producer_state(
            producers,
            self.segments,
            log_start_offset=self._request.log_start_offset,
            last_offset=segment.base_offset,
            now_ms=self._request.now_ms,
            is_clean=False,
        )
        assert producers.map_end_offset == segment.base_offset, (producers.map_end_offset, segment)
        removed_bytes = recover_segment(segment, producers, self._epochs, self._request.report, before_cut)
        assert producers.map_end_offset >= segment.base_offset, (producers.map_end_offset, segment)
        # A truncation that a dying process did not sync is in the page cache only. It must be durable before anything
        # is written after it, or a power loss would mix removed bytes with later ones. Kafka does not sync here.
        segment.records.flush()
        self._epochs.flush()
        producers.take_snapshot()
        self._snapshots = producers.snapshots.offsets
        self._removed_bytes += removed_bytes
        return removed_bytes

    def _recover_or_cut(self, segment: LogSegment, before_cut: BeforeCut) -> int:
        """Do what `_recover` does; a segment that it cannot walk to the end is split, cut or emptied.

        It is cut at the first impossible offset. Returns the bytes removed.
        """
        index_bytes = self._request.config.index_bytes
        try:
            removed_bytes = self._recover(segment, before_cut)
        except SegmentOffsetOverflow:
            if self._can_split(segment):
                raise
            self._refused_by_kafka.add(segment.base_offset)
            return self._cut_misfit(segment, find_misfit(segment), before_cut)
        except InvalidOffset as error:
            if segment.base_offset in self._refused_by_kafka or overfills_indexes(segment, index_bytes):
                return self._cut_misfit(segment, find_step_back(segment), before_cut)
            # The offsets go back: nothing in this segment can be relied on (LL16).
            removed_bytes = segment.size_bytes
            self._note_cut(segment.path, str(error), removed_bytes)
            if before_cut is not None:
                before_cut()
            segment.truncate_to(segment.base_offset, self._request.now_ms)
            return removed_bytes
        is_refused = segment.base_offset in self._refused_by_kafka
        if not is_refused and has_full_index(segment, index_bytes):
            is_refused = overfills_indexes(segment, index_bytes)
        if is_refused and (misfit := find_step_back(segment)) is not None:
            # The offsets go back between two index entries. Kafka leaves them, and cannot find the end of such a log.
            return removed_bytes + self._cut_misfit(segment, misfit, None if removed_bytes else before_cut)
        return removed_bytes

    def _cut_misfit(self, segment: LogSegment, misfit: Misfit | None, before_cut: BeforeCut) -> int:
        """Cut the segment at a batch whose offset is impossible, as a torn header leaves it. Returns the bytes removed.

        Kafka does not start then.
        """
        assert misfit is not None, segment
        assert 0 <= misfit.position < segment.size_bytes, (misfit, segment)
        removed_bytes = segment.size_bytes - misfit.position
        self._note_cut(segment.path, misfit.reason, removed_bytes, misfit.position)
        if before_cut is not None:
            before_cut()
        segment.cut_records(misfit.position)
        # Without the damaged part a split may be possible.
        if misfit.is_damage:
            self._unsplittable.discard(segment.base_offset)
        return removed_bytes + self._recover_or_cut(segment, None)

    def _delete_snapshot(self, offset: int) -> None:
        """Delete the snapshot at `offset`, the base of a deleted segment, if it was there before this start.

        It is deleted even where a cut has just written it again.
        """
        self._snapshots = None
        path = join(self._directory, snapshot_name(offset))
        if basename(path) in self._names_at_start and self._file_system.exists(path):
            self._file_system.unlink(path)

    def _delete_following(self, segments: list[LogSegment], number: int) -> None:
        """Delete those after `number`, the last first, and each durably before the next: a crash between must not leave
        a hole in the log.
        """
        cut = segments[number]
        for segment in reversed(segments[number + 1 :]):
            self._note_cut(segment.path, f"it follows the cut in {basename(cut.path)}", segment.size_bytes)
            self._delete(segment)
        assert self.segments.last is cut, (cut, self.segments.last)

    def _delete(self, segment: LogSegment) -> None:
        self.segments.remove(segment.base_offset)
        segment.delete()
        self._file_system.sync_directory(self._directory)

    def _note_cut(self, path: str, reason: str, removed_bytes: int, position: int = 0) -> None:
        self._removed_bytes += removed_bytes
        cut = RecoveryCut(path=path, position=position, reason=reason, removed_bytes=removed_bytes)
        report_cut(cut, self._request.report)

    def _end_unless_below_start(self) -> int | None:
        """The log end offset; None without a segment, and where it is below the log start offset (LL18).

        In the latter case all segments are deleted, and the log has to start again at the log start offset.
        """
        last, log_start_offset = self.segments.last, self._request.log_start_offset
        if last is None:
            return None
        log_end_offset = read_next_offset(last)
        if log_end_offset >= log_start_offset:
            return log_end_offset
        logger.warning(
            "log emptied, its end was below its start: directory=%s end=%d start=%d",
            self._directory,
            log_end_offset,
            log_start_offset,
        )
        for segment in self.segments:
            size_bytes = segment.size_bytes
            self._delete(segment)
            self._note_cut(segment.path, f"it ends below the log start offset {log_start_offset}", size_bytes)
        assert not len(self.segments), self.segments.base_offsets
        self._epochs.clear_and_flush()
        self._new_producers().truncate_fully_and_start_at(log_start_offset)
        return None

    def _make_room_in_indexes(self, active: LogSegment) -> bool:
        """Resize the indexes of the active segment to the configured size (LL21).

        Indexes with more entries than fit are built again (Kafka does not start): then it returns False, and the log
        may have become shorter.
        """
        try:
            active.resize_indexes()
        except (ValueError, CorruptIndex) as error:
            logger.warning("indexes built again: segment=%s reason=%s", active.path, error)
            self._refused_by_kafka.add(active.base_offset)
            self._recover_or_cut(active, None)
            active.resize_indexes()
            return False
        return True

    def _new_producers(self, snapshot_offsets: list[int] | None = None) -> ProducerStateManager:
        return ProducerStateManager(
            self._file_system,
            self._directory,
            producer_id_expiration_ms=self._request.config.producer_id_expiration_ms,
            snapshot_offsets=snapshot_offsets,
        )
