"""The metadata log on the store: appended to in a step, made durable by a flush job, read up to its committed end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import final

from cluster.core.controller.metadata_damage import (
    DamagedMetadataLog,
    check_nothing_committed_is_damaged,
    committed_header,
)
from cluster.core.controller.snapshot_files import SnapshotFiles
from cluster.core.metadata.batches import build_change, whole_batches_size
from cluster.core.metadata.records import MetadataRecord
from cluster.core.metadata.snapshots import Snapshot, encode_snapshot
from storage.config import INT_MAX, LogConfig
from storage.disk.filesystem import FileSystem, join, make_directory_durably
from storage.draws import Draws
from storage.errors import OffsetOutOfRange, OutOfHandles, StorageError
from storage.log import Isolation, PartitionLog, PreparedFlush, RecoveryCut

METADATA_DIRECTORY = "__cluster_metadata-0"
# The largest record must fit into one batch; a change may take several.
MAX_BATCH_BYTES = 16 << 20
METADATA_LOG_CONFIG = LogConfig(max_message_bytes=MAX_BATCH_BYTES, segment_index_bytes=1 << 20)


@final
class StoredMetadataLog:
    """The metadata log of a controller that is alone: what its disk holds is committed. It is one life's writer."""

    def __init__(
        self, log: PartitionLog, snapshots: SnapshotFiles, *, max_batch_bytes: int = MAX_BATCH_BYTES
    ) -> None:
        assert 0 < max_batch_bytes <= MAX_BATCH_BYTES, max_batch_bytes
        self._log = log
        self._snapshots = snapshots
        self._bytes_in_snapshot = 0
        self._prepared: PreparedFlush | None = None
        self._max_batch_bytes = max_batch_bytes
        latest_epoch = log.epochs.latest_epoch
        self.leader_epoch = 0 if latest_epoch is None else latest_epoch + 1
        # The end of the committed records (exclusive); records above it wait for a flush.
        self.committed_offset = log.log_end_offset
        log.marks.update_high_watermark(self.committed_offset)

    @staticmethod
    def open(
        file_system: FileSystem,
        directory: str,
        *,
        now_ms: int,
        draws: Draws,
        report: Callable[[RecoveryCut], None],
        max_batch_bytes: int = MAX_BATCH_BYTES,
    ) -> StoredMetadataLog:
        """Opens the log, always with a recovery as after an unclean stop: the log is small.

        All that recovery leaves is flushed, and so committed.
        Raises DamagedMetadataLog if committed decisions are lost or no later epoch is left, OSError, StorageError.
        """
        path = join(directory, METADATA_DIRECTORY)
        check_nothing_committed_is_damaged(file_system, path)
        make_directory_durably(file_system, path)
        log = PartitionLog.open(
            file_system, path, METADATA_LOG_CONFIG, clean=False, now_ms=now_ms, draws=draws, report=report
        )
        if log.epochs.latest_epoch == INT_MAX:
            log.close_handles()
            raise DamagedMetadataLog(f"{path}: its last epoch is {INT_MAX}, and there is none after it")
        log.flushes.flush()
        return StoredMetadataLog(log, SnapshotFiles(file_system, path), max_batch_bytes=max_batch_bytes)

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    def append(self, records: Sequence[MetadataRecord], now_ms: int) -> int:
        """Appends the records as one change. Returns the offset of the first one.

        Raises ClusterError for a record that is too large for a batch, and OutOfHandles; nothing is changed then. Any
        other StorageError and OSError takes the log offline; the next start drops what it then holds of the change.
        """
        headers = (committed_header(self.committed_offset),)
        batches = build_change(records, timestamp_ms=now_ms, max_bytes=self._max_batch_bytes, headers=headers)
        first_offset = self.end_offset
        assert self.committed_offset <= first_offset, (self.committed_offset, first_offset)
        for batch in batches:
            try:
                self._log.append_as_leader(batch, leader_epoch=self.leader_epoch, now_ms=now_ms)
            except OutOfHandles as lack:
                if self.end_offset == first_offset:
                    raise
                raise StorageError(f"only a part of a change is written: {lack}") from lack
        assert self.end_offset == first_offset + len(records), (self.end_offset, first_offset)
        return first_offset

    def prepare_flush(self) -> Callable[[], None]:
        self._prepared = self._log.flushes.prepare()
        return self._prepared

    def flush_failed(self) -> None:
        assert self._prepared is not None, "no flush"
        self._log.flushes.failed(self._prepared)

    def flushed(self, offset: int) -> None:
        """Notes that all below `offset` is on disk, and so committed."""
        assert self.committed_offset <= offset <= self.end_offset, (self.committed_offset, offset)
        self._log.flushes.done(offset)
        self._log.marks.update_high_watermark(offset)
        self.committed_offset = offset
        assert self._log.marks.high_watermark == offset, (self._log.marks.high_watermark, offset)

    def read(self, offset: int, max_bytes: int) -> bytes:
        if not self.start_offset <= offset <= self.committed_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.committed_offset)
        data = self._log.read(offset, max_size=max_bytes, isolation=Isolation.HIGH_WATERMARK).records
        return bytes(data[: whole_batches_size(data)])

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drops the batch that holds `offset` and all after it. Raises StorageError."""
        assert self.committed_offset <= offset <= self.end_offset, (self.committed_offset, offset)
        self._log.truncate_to(offset, now_ms=now_ms)
        assert self.end_offset == offset, (self.end_offset, offset)

    @property
    def bytes_since_snapshot(self) -> int:
        return self._log.local.segments.size_bytes - self._bytes_in_snapshot

    def prepare_snapshot(
        self, records: Iterable[MetadataRecord], end_offset: int, now_ms: int
    ) -> Callable[[], None]:
        """Returns a job that writes the snapshot of all committed metadata below `end_offset`, which `records` are."""
        assert 0 < end_offset <= self.committed_offset, (end_offset, self.committed_offset)
        epoch = self._log.epochs.epoch_for_offset(end_offset - 1)
        assert epoch is not None, end_offset
        # If the job fails, the next one is due after as many bytes again.
        self._bytes_in_snapshot = self._log.local.segments.size_bytes
        max_bytes = self._max_batch_bytes

        def write() -> None:
            data = encode_snapshot(records, epoch=epoch, timestamp_ms=now_ms, max_bytes=max_bytes)
            self._snapshots.write(end_offset, epoch, data)

        return write

    def newest_snapshot(self, skip: Callable[[str], None]) -> Snapshot | None:
        """Returns the sound snapshot with the highest end. Raises DamagedMetadataLog if the log ends before it."""
        snapshot = self._snapshots.newest(skip)
        if snapshot is None:
            return None
        if snapshot.end_offset > self.committed_offset:
            raise DamagedMetadataLog(
                f"{self._log.directory} ends at offset {self.committed_offset}; a snapshot shows that offsets up to "
                f"{snapshot.end_offset} were committed: the controller's log is damaged"
            )
        place = self._log.reads.place_of(snapshot.end_offset)
        self._bytes_in_snapshot = place.position + sum(
            segment.size_bytes
            for segment in self._log.local.segments
            if segment.base_offset < place.segment_base_offset
        )
        return snapshot

    def close(self, now_ms: int) -> None:
        self._log.flushes.flush()
        self._log.close()
