"""The controller's log: appended to in a step, made durable by a flush job, read by brokers up to its committed end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import final

from cluster.core.controller.metadata_damage import check_nothing_committed_is_damaged, committed_header
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.metadata.batches import build_metadata_batch, read_metadata_batches, whole_batches_size
from cluster.core.metadata.records import MetadataRecord
from storage.config import LogConfig
from storage.disk.filesystem import FileSystem, dirname, join
from storage.draws import Draws
from storage.log import Isolation, PartitionLog, RecoveryCut

METADATA_DIRECTORY = "__cluster_metadata-0"
METADATA_LOG_CONFIG = LogConfig(
    # The largest decision must fit into one batch.
    max_message_bytes=16 << 20,
    segment_index_bytes=1 << 20,
)
READ_BLOCK_BYTES = 1 << 20


@final
class MetadataLog:
    """The log and its writer: one life of the controller, which has a leader epoch of its own."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
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
    ) -> MetadataLog:
        """Opens the log, always with a recovery as after an unclean stop: the log is small.

        All that recovery leaves is flushed, and so committed.
        Raises DamagedMetadataLog if committed decisions are lost, OSError, StorageError.
        """
        path = join(directory, METADATA_DIRECTORY)
        check_nothing_committed_is_damaged(file_system, path)
        make_directory_durably(file_system, path)
        log = PartitionLog.open(
            file_system, path, METADATA_LOG_CONFIG, clean=False, now_ms=now_ms, draws=draws, report=report
        )
        log.flushes.flush()
        return MetadataLog(log)

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    def append(self, records: Sequence[MetadataRecord], now_ms: int) -> int:
        """Appends the records as one batch, whole or absent after a crash. Returns the offset of the first record.

        Raises ClusterError for records that are too large for one batch; nothing is changed then.
        """
        headers = (committed_header(self.committed_offset),)
        batch = build_metadata_batch(records, timestamp_ms=now_ms, headers=headers)
        most = METADATA_LOG_CONFIG.max_message_bytes
        if len(batch) > most:
            raise ClusterError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the change takes {len(batch)} bytes in the metadata log, the limit is {most}",
            )
        first_offset = self.end_offset
        assert self.committed_offset <= first_offset, (self.committed_offset, first_offset)
        self._log.append_as_leader(batch, leader_epoch=self.leader_epoch, now_ms=now_ms)
        assert self.end_offset == first_offset + len(records), (self.end_offset, first_offset)
        return first_offset

    def prepare_flush(self) -> Callable[[], None]:
        """Returns a job that makes everything appended so far durable."""
        return self._log.flushes.prepare()

    def commit(self, offset: int) -> None:
        """Notes that all below `offset` is on disk, and so committed."""
        assert self.committed_offset <= offset <= self.end_offset, (self.committed_offset, offset)
        self._log.flushes.done(offset)
        self._log.marks.update_high_watermark(offset)
        self.committed_offset = offset
        assert self._log.marks.high_watermark == offset, (self._log.marks.high_watermark, offset)

    def replay(self) -> Iterator[tuple[int, MetadataRecord]]:
        """Yields (offset, record) of all that is committed, for the image of a new life."""
        offset = self._log.log_start_offset
        while offset < self.committed_offset:
            for record_offset, record in read_metadata_batches(self.read(offset, READ_BLOCK_BYTES)):
                if record_offset >= offset:
                    yield record_offset, record
                    offset = record_offset + 1

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Returns whole committed batches, at least one, from the batch that holds `offset` on. Raises
        OffsetOutOfRange."""
        data = self._log.read(offset, max_size=max_bytes, isolation=Isolation.HIGH_WATERMARK).records
        return bytes(data[: whole_batches_size(data)])

    def close(self, now_ms: int) -> None:
        self._log.flushes.flush()
        self._log.close()


def make_directory_durably(file_system: FileSystem, path: str) -> None:
    """Creates the directory and makes its name durable: without that, a flush of the log is lost. Raises OSError."""
    # Even where the directory existed: the life that made it may have ended before the sync.
    parents = [dirname(path)]
    ancestor = parents[0]
    while ancestor and not file_system.exists(ancestor):
        ancestor = dirname(ancestor)
        parents.append(ancestor)
    file_system.make_directory(path)
    for parent in parents:
        file_system.sync_directory(parent)
