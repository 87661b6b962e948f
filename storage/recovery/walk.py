"""Make a segment sound from its `.log` alone: check every batch, build the indexes again, cut what is damaged.

Kafka: LogSegment.recover; rules LS10 to LS12.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from storage.batch import RecordBatch
from storage.batch.format import CONTROL_FLAG, CRC_COVERS_FROM, CURRENT_MAGIC, HEADER_SIZE, LOG_OVERHEAD
from storage.codec.crc32c import crc32c
from storage.errors import (
    CorruptBatch,
    InvalidOffset,
    InvalidRecord,
    InvalidTransactionState,
    SegmentOffsetOverflow,
)
from storage.index.memory_mapped import MAX_RELATIVE_OFFSET
from storage.index.time_index import TimestampOffset
from storage.leader_epochs import LeaderEpochCache
from storage.producers.state import ProducerStateManager
from storage.recovery.cut import RecoveryCut, ReportCut, ignore_cut, report_cut
from storage.recovery.mapped_file import MappedWalk
from storage.segment import LogSegment

# Index entries held until they are written, so that a long segment takes no more memory than a short one.
ENTRIES_HELD: Final = 1 << 13

# In magic 2: base offset, size field, leader epoch, magic, CRC, flags, last offset delta, max timestamp, producer id.
_FIELDS: Final = struct.Struct(">qiibIhi8xqq")
# In magic 2: producer epoch, base sequence.
_PRODUCER: Final = struct.Struct(">51xhi").unpack_from


def recover_segment(
    segment: LogSegment,
    producers: ProducerStateManager,
    epochs: LeaderEpochCache,
    report: ReportCut = ignore_cut,
    before_cut: Callable[[], None] | None = None,
) -> int:
    """Check every batch, build the indexes again and cut from the first damaged batch on. Returns the bytes cut.

    `producers` and `epochs` follow the batches that stay. The caller has to flush `epochs` before anything records that
    this recovery is done. `before_cut` is called directly before a cut, if there is something to cut. Raises
    InvalidOffset when offsets go back (the caller empties the segment, LL16), SegmentOffsetOverflow for an offset
    outside the segment's range, and InvalidTransactionState for a transaction that cannot be; the `.log` has not
    changed then, but the indexes have.
    """
    segment.reset_indexes()
    walk = _Walk(segment, producers, epochs)
    reason = ""
    try:
        walk.run()
    except (CorruptBatch, InvalidRecord) as error:
        reason = error.reason if isinstance(error, CorruptBatch) else str(error)
    walk.write_indexes()
    position = walk.valid_bytes
    doomed_bytes = segment.size_bytes - position
    assert 0 <= position <= segment.size_bytes, (segment, position)
    if doomed_bytes > 0:
        reason = reason or f"the last {doomed_bytes} bytes are no whole batch"
        report_cut(
            RecoveryCut(path=segment.path, position=position, reason=reason, removed_bytes=doomed_bytes),
            report,
        )
        if before_cut is not None:
            before_cut()
    removed_bytes = segment.cut_records(position)
    assert removed_bytes == doomed_bytes, (segment.path, removed_bytes, doomed_bytes)
    segment.note_recovered(walk.max_timestamp)
    assert segment.size_bytes == position, (segment, position)
    return removed_bytes


class _Walk:
    """One pass over the batches of a segment; its findings stay in the object when it stops at damage."""

    def __init__(
        self, segment: LogSegment, producers: ProducerStateManager, epochs: LeaderEpochCache
    ) -> None:
        self._segment, self._producers, self._epochs = segment, producers, epochs
        self.valid_bytes = 0
        self.max_timestamp = TimestampOffset(-1, segment.base_offset)
        # The entries of both indexes that are not written yet, by column.
        self._columns: tuple[list[int], list[int], list[int], list[int]] = [], [], [], []

    def run(self) -> None:
        """Walk over the batches. One loop without calls does the work of each: it decides how long a start takes."""
        assert self.valid_bytes == 0, (self._segment, self.valid_bytes)
        segment, producers, epochs = self._segment, self._producers, self._epochs
        base, interval, latest_epoch = segment.base_offset, segment.index_interval_bytes, epochs.last_epoch
        last_allowed, next_indexed, last_indexed = base + MAX_RELATIVE_OFFSET, interval, -1
        max_timestamp, max_timestamp_offset, last_indexed_time = -1, base, -1
        offsets, positions, times, time_offsets = self._columns
        at, pause, followed = 0, 0, producers.map_end_offset - 1
        unpack, checksum = _FIELDS.unpack_from, crc32c
        walk = MappedWalk(segment.records, ENTRIES_HELD * max(interval, 1))
        view, limit = walk.view, walk.limit
        try:
            while True:
                if at < pause:
                    first, size, epoch, magic, crc, flags, delta, timestamp, producer_id = unpack(view, at)
                    end = at + LOG_OVERHEAD + size
                    is_sound = (
                        at + HEADER_SIZE <= end <= limit
                        and magic >= CURRENT_MAGIC
                        and checksum(view[at + CRC_COVERS_FROM : end]) == crc
                    )
                else:
                    self.write_indexes()
                    pause, is_sound = walk.pass_by(at), False
                    if at < pause:
                        continue
                if not is_sound:
                    odd = walk.odd_batch(at)
                    if odd is None:
                        return
                    first, size, epoch, magic, _, flags, delta, _, timestamp, producer_id, *_ = odd
                    end = at + LOG_OVERHEAD + size
                last = first + delta
                if not base <= last <= last_allowed:
                    # An older broker may have written the batch above the range, and a split would save it (LS20).
                    raise SegmentOffsetOverflow(segment.path, base, last)
                if timestamp > max_timestamp:
                    max_timestamp, max_timestamp_offset = timestamp, last
                # Strictly above, and so never for the first batch (LS10).
                if at > next_indexed:
                    if last <= last_indexed:
                        raise InvalidOffset(
                            f"{segment.path} at byte {at}: offset {last} "
                            "is not above the index entry before it"
                        )
                    last_indexed, next_indexed = last, at + interval
                    offsets.append(last)
                    positions.append(at)
                    if max_timestamp > last_indexed_time:
                        last_indexed_time = max_timestamp
                        times.append(max_timestamp)
                        time_offsets.append(max_timestamp_offset)
                # An error from here on leaves the batch in the file.
                batch_at, at = at, end
                if epoch > latest_epoch:
                    epochs.note(epoch, first)
                    latest_epoch = epoch
                if producer_id >= 0:
                    if flags & CONTROL_FLAG:
                        self._replay_control(bytes(view[batch_at:at]), batch_at)
                    else:
                        p_epoch, sequence = _PRODUCER(view, batch_at)
                        producers.replay_data(flags, delta, timestamp, producer_id, p_epoch, sequence, first)
                # The producer state does not follow batches of magic 0 and 1.
                elif magic < CURRENT_MAGIC:
                    continue
                followed = last
        finally:
            # The file must not be cut while it is mapped.
            walk.close()
            self.valid_bytes = at
            producers.reached(followed + 1)
            self.max_timestamp = TimestampOffset(max_timestamp, max_timestamp_offset)

    def write_indexes(self) -> None:
        """Write the entries held, with one write per index: one per entry would cost more than the checksums.

        Entries for which an index has no room are left out: it is sparse anyway (Kafka refuses to start).
        Raises InvalidOffset when the offsets of the greatest timestamps go back.
        """
        offset_index, time_index = self._segment.offset_index, self._segment.time_index
        offsets, positions, times, time_offsets = self._columns
        assert len(offsets) == len(positions), (self._segment, len(offsets), len(positions))
        assert len(times) <= len(offsets), (self._segment, len(times), len(offsets))
        room = offset_index.free_entries
        offset_index.append_all(offsets[:room], positions[:room])
        # The last slot is for the entry that is appended at the end.
        room = max(time_index.free_entries - 1, 0)
        time_index.append_all(times[:room], time_offsets[:room])
        if len(times) > room:
            self._segment.indexes.may_lack_times = True
        for column in self._columns:
            column.clear()

    def _replay_control(self, control: bytes, position: int) -> None:
        """Replay a control batch, whose bytes are a copy: an error may hold them after the map is closed."""
        completed = self._producers.replay(RecordBatch(control, 0, len(control), position))
        if completed is None:
            return
        aborted = self._producers.index_entry_of(completed)
        if aborted is not None:
            self._segment.note_aborted(aborted)
        try:
            self._producers.complete_transaction(completed)
        except InvalidTransactionState as error:
            place = f"{self._segment.path} at byte {position}"
            raise InvalidTransactionState(f"{place}: {error}") from error
