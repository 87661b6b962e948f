"""A metadata log in memory, for tests. What a flush job has covered survives its process; nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import final

from cluster.core.metadata.batches import build_change
from cluster.core.metadata.records import MetadataRecord
from cluster.core.metadata.snapshots import Snapshot
from storage.batch import iterate_batches, stamp
from storage.errors import OffsetOutOfRange


@dataclass(slots=True)
class MemoryDisk:
    """What a log leaves to the next one."""

    durable: list[bytes] = field(default_factory=list)
    epochs: int = 0
    snapshots: list[Snapshot] = field(default_factory=list)


def _next_offset(batch: bytes) -> int:
    view = next(iter(iterate_batches(batch)))
    return view.next_offset


@final
class MemoryMetadataLog:
    """A `MetadataLog` whose batches are a list."""

    def __init__(self, disk: MemoryDisk, *, max_batch_bytes: int) -> None:
        self._disk = disk
        self._max_batch_bytes = max_batch_bytes
        self._batches = list(disk.durable)
        self.leader_epoch = disk.epochs
        disk.epochs += 1
        self.start_offset = self._bytes_in_snapshot = 0
        self.committed_offset = self.end_offset

    @property
    def end_offset(self) -> int:
        return _next_offset(self._batches[-1]) if self._batches else 0

    def append(self, records: Sequence[MetadataRecord], now_ms: int) -> int:
        first_offset = self.end_offset
        for batch in build_change(records, timestamp_ms=now_ms, max_bytes=self._max_batch_bytes):
            numbered = bytearray(batch)
            stamp(numbered, 0, base_offset=self.end_offset, partition_leader_epoch=self.leader_epoch)
            self._batches.append(bytes(numbered))
        return first_offset

    def prepare_flush(self) -> Callable[[], None]:
        batches = list(self._batches)

        def flush() -> None:
            self._disk.durable = batches

        return flush

    def flush_failed(self) -> None:
        """Changes nothing: the disk has what it had."""

    def flushed(self, offset: int) -> None:
        assert self.committed_offset <= offset <= self.end_offset, (self.committed_offset, offset)
        self.committed_offset = offset

    def read(self, offset: int, max_bytes: int) -> bytes:
        if not self.start_offset <= offset <= self.committed_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.committed_offset)
        found = b""
        for batch in self._batches:
            end_offset = _next_offset(batch)
            if end_offset <= offset or end_offset > self.committed_offset:
                continue
            if found and len(found) + len(batch) > max_bytes:
                break
            found += batch
        return found

    def truncate_to(self, offset: int, now_ms: int) -> None:
        assert self.committed_offset <= offset <= self.end_offset, (self.committed_offset, offset)
        self._batches = [batch for batch in self._batches if _next_offset(batch) <= offset]

    @property
    def bytes_since_snapshot(self) -> int:
        return sum(map(len, self._batches)) - self._bytes_in_snapshot

    def prepare_snapshot(
        self, records: Iterable[MetadataRecord], end_offset: int, now_ms: int
    ) -> Callable[[], None]:
        assert 0 < end_offset <= self.committed_offset, (end_offset, self.committed_offset)
        (epoch,) = [
            view.partition_leader_epoch
            for batch in self._batches
            for view in iterate_batches(batch)
            if view.base_offset < end_offset <= view.next_offset
        ]
        self._bytes_in_snapshot = sum(map(len, self._batches))

        def write() -> None:
            kept = tuple(records)
            self._disk.snapshots.append(Snapshot(end_offset=end_offset, epoch=epoch, records=kept))

        return write

    def newest_snapshot(self, skip: Callable[[str], None]) -> Snapshot | None:
        newest = max(self._disk.snapshots, key=lambda each: each.end_offset, default=None)
        if newest is not None:
            parts = [batch for batch in self._batches if _next_offset(batch) <= newest.end_offset]
            self._bytes_in_snapshot = sum(map(len, parts))
        return newest

    def close(self, now_ms: int) -> None:
        self.prepare_flush()()
