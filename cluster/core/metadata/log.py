"""The port of the metadata log, under the controller and those who observe it.

`StoredMetadataLog` of the controller keeps it on one disk. Every implementation passes the contract tests
(`tests/cluster/metadata/log_contract.py`). Kafka: RaftClient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from cluster.core.metadata.changes import Change, ChangeReader
from cluster.core.metadata.records import MetadataRecord
from cluster.core.metadata.snapshots import Snapshot

READ_BLOCK_BYTES = 1 << 20


class MetadataLog(Protocol):
    """The log and its one writer. Offsets are those of records; ends are exclusive.

    `start_offset <= committed_offset <= end_offset`. Nothing below the committed offset ever changes.
    """

    @property
    def leader_epoch(self) -> int:
        """The epoch of this writer, greater than that of each one before it."""

    @property
    def start_offset(self) -> int: ...

    @property
    def committed_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    def append(self, records: Sequence[MetadataRecord], now_ms: int) -> int:
        """Appends one change. Returns the offset of its first record; its other records follow without a gap.

        Raises ClusterError if a record is larger than a batch may be, and OutOfHandles; nothing is changed then. After
        any other StorageError or OSError the log holds a part of the change at most, and takes no more.
        """

    def prepare_flush(self) -> Callable[[], None]:
        """Returns a job that makes everything appended so far durable here; `flushed` must be called after it.

        One that raises OutOfHandles has done nothing: then `flush_failed` must be called, and another job may be made.
        """

    def flush_failed(self) -> None:
        """Notes that the last job has made nothing durable, for want of a descriptor."""

    def flushed(self, offset: int) -> None:
        """Notes that all below `offset` is durable here; the committed offset follows as far as that is enough."""

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Returns whole committed batches from the one that holds `offset` on, at least one if there is one.

        The last of them may end within a change. Raises OffsetOutOfRange below the start or above the committed
        offset.
        """

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drops `offset` and all after it, which must not be committed."""

    @property
    def bytes_since_snapshot(self) -> int:
        """How many bytes of batches were appended since the newest snapshot, or in all."""

    def prepare_snapshot(
        self, records: Iterable[MetadataRecord], end_offset: int, now_ms: int
    ) -> Callable[[], None]:
        """Returns a job that writes the snapshot of all committed metadata below `end_offset`, which `records` are.

        The job may run on another thread. It raises OSError; the snapshots before it stay then.
        """

    def newest_snapshot(self, skip: Callable[[str], None]) -> Snapshot | None:
        """Returns the sound snapshot with the highest end. `skip` is called with the reason for each damaged one.

        Raises StorageError if the log ends before a snapshot: committed changes are lost.
        """

    def close(self, now_ms: int) -> None:
        """Makes everything durable and closes the log."""


def committed_changes(log: MetadataLog, reader: ChangeReader) -> Iterator[Change]:
    """Yields all whole committed changes from where `reader` is; it ends at the committed offset.

    Raises CorruptBatch, InvalidRecord, OffsetOutOfRange.
    """
    while reader.next_offset < log.committed_offset:
        before = reader.next_offset
        yield from reader.read(log.read(before, READ_BLOCK_BYTES))
        assert reader.next_offset > before, (before, log.committed_offset)
