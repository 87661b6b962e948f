"""Verifies that producers and transactions of a log agree with its transaction indexes and its producer snapshots.

Each batch of a producer must continue the sequence of its previous batch. After missing offsets only a sequence that
goes back is wrong: compaction may have removed the batches between. What is below the log start offset says nothing: a
follower whose leader's log begins later keeps there what it had, also of an epoch that no leader has any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, final

from storage.batch import RecordBatch
from storage.batch.control_records import ControlType, read_control_record
from storage.batch.pieces import HEADS_HELD
from storage.batch.record import NO_SEQUENCE, add_to_sequence
from storage.disk.filesystem import FileSystem, join
from storage.errors import CorruptIndex, CorruptSnapshot, StorageError
from storage.index.transaction_index import ENTRY, AbortedTransaction, unpack_entries
from storage.inspection.verify.sliced import Finding, SlicedIndex, first_findings
from storage.producers.rows import read_snapshot
from storage.producers.snapshot import list_snapshots, snapshot_name
from storage.segment import TRANSACTION_INDEX_SUFFIX, offset_name

_HALF_OF_SEQUENCES = 1 << 30


class _Producer(NamedTuple):
    epoch: int
    last_sequence: int
    last_offset: int


# A producer's last batch, as stored in a snapshot: producer id, epoch, last sequence.
_Remembered = tuple[int, int, int]


@final
class ProducerWatch:
    """Follows producers and transactions. Call `read_snapshots` first, then `batch` for every sound batch in order and
    `end_segment` after each segment, at last `check_end`.
    """

    def __init__(self, file_system: FileSystem, directory: str, log_start: Callable[[], int]) -> None:
        self._file_system, self._directory, self._log_start = file_system, directory, log_start
        self._producers: dict[int, _Producer] = {}
        # By producer, the first offset of its open transaction.
        self._open: dict[int, int] = {}
        # By the offset of its marker, each aborted transaction of the segment.
        self._aborted: dict[int, AbortedTransaction] = {}
        # By its offset, the producer of each ABORT marker of the segment.
        self._markers: dict[int, int] = {}
        # By last offset, the entries of the snapshots, each with the paths of those that have it: the next snapshot
        # repeats every producer that has been idle since.
        self._remembered: dict[int, dict[_Remembered, list[str]]] = {}
        # No offset from this one on is missing so far.
        self._missing_up_to = -1

    def read_snapshots(self) -> Iterator[Finding]:
        """Read the snapshots. Call this before the first batch."""
        for offset in list_snapshots(self._file_system, self._directory):
            path = join(self._directory, snapshot_name(offset))
            try:
                entries = read_snapshot(self._file_system, path)
            except CorruptSnapshot as error:
                yield path, None, "1.10", str(error)
                continue
            for entry in entries:
                if not entry.batches:
                    continue
                last_sequence, last_offset, *_ = entry.batches[-1]
                if last_offset >= offset:
                    message = f"producer {entry.producer_id} at offset {last_offset}, not below {offset}"
                    yield path, None, "PS15", message
                    continue
                known = self._remembered.setdefault(last_offset, {})
                remembered = (entry.producer_id, entry.producer_epoch, last_sequence)
                known.setdefault(remembered, []).append(path)

    def check_end(self, log_end_offset: int) -> Iterator[Finding]:
        """Compare the snapshots' offsets with the log end offset. Call this after the last batch."""
        for offset in list_snapshots(self._file_system, self._directory):
            if offset > log_end_offset:
                path = join(self._directory, snapshot_name(offset))
                yield path, None, "PS16", f"beyond the log end offset {log_end_offset}"

    def batch(self, batch: RecordBatch, path: str, offset_before: int) -> Iterator[Finding]:
        """Check the next sound batch of the `.log` at `path`; `offset_before` is the last offset before it, or -1."""
        assert offset_before >= -1, (path, batch.position, offset_before)
        if batch.base_offset > offset_before + 1 and offset_before >= 0:
            self._missing_up_to = batch.base_offset
        if batch.producer_id < 0:
            return
        # No later batch ends at this offset.
        for each, paths in self._remembered.pop(batch.last_offset, {}).items():
            found = (batch.producer_id, batch.producer_epoch, batch.last_sequence)
            if not batch.is_control and found != each:
                message = (
                    f"offset {batch.last_offset}: producer, epoch and sequence {each}, but {found} in the log"
                )
                for snapshot_path in paths:
                    yield snapshot_path, None, "PS15", message
        if batch.is_control:
            self._marker(batch)
            return
        if batch.is_transactional:
            self._open.setdefault(batch.producer_id, batch.base_offset)
        if batch.base_sequence != NO_SEQUENCE:
            for message in self._sequence_problem(batch):
                yield path, batch.position, "PS4", f"producer {batch.producer_id}: {message}"
            self._producers[batch.producer_id] = _Producer(
                batch.producer_epoch, batch.last_sequence, batch.last_offset
            )

    def _sequence_problem(self, batch: RecordBatch) -> Iterator[str]:
        known = self._producers.get(batch.producer_id)
        if known is None:
            return
        message = self._contradiction(batch, known)
        # Where the log starts is looked up for a contradiction only: most logs have none.
        if message and known.last_offset >= self._log_start():
            yield message

    def _contradiction(self, batch: RecordBatch, known: _Producer) -> str:
        """Returns how a batch contradicts the one before of its producer; empty if it does not."""
        if batch.producer_epoch < known.epoch:
            return f"epoch {batch.producer_epoch} after {known.epoch}"
        if batch.producer_epoch != known.epoch:
            return ""
        expected = add_to_sequence(known.last_sequence, 1)
        if batch.base_sequence == expected:
            return ""
        goes_back = (batch.base_sequence - expected) % (1 << 31) >= _HALF_OF_SEQUENCES
        is_wrong = goes_back or known.last_offset >= self._missing_up_to
        return f"sequence {batch.base_sequence} after {known.last_sequence}" if is_wrong else ""

    def _marker(self, batch: RecordBatch) -> None:
        """Note the end of a transaction. A marker that does not decode is skipped: the deep verification reports it."""
        try:
            record = next(batch.records(held=HEADS_HELD), None)
            control_type = None if record is None else read_control_record(record).control_type
        except StorageError:
            return
        if control_type not in (ControlType.ABORT, ControlType.COMMIT):
            return
        first_offset = self._open.pop(batch.producer_id, None)
        if control_type is ControlType.ABORT:
            self._markers[batch.last_offset] = batch.producer_id
            if first_offset is not None:
                self._aborted[batch.last_offset] = AbortedTransaction(
                    batch.producer_id, first_offset, batch.last_offset, -1
                )

    def end_segment(self, base_offset: int) -> Iterator[Finding]:
        """Compare the transactions that ended in a segment with its transaction index."""
        path = join(self._directory, offset_name(base_offset) + TRANSACTION_INDEX_SUFFIX)
        try:
            yield from first_findings(self._check_index(path, base_offset), path)
        except CorruptIndex as error:
            yield path, None, "IX30", error.reason
        for transaction in self._aborted.values():
            if transaction.last_offset < self._log_start():
                # A compaction has looked at none below the log start, as in Kafka (CL22): nobody reads there.
                continue
            message = (
                f"no entry for the aborted transaction of producer {transaction.producer_id} "
                f"from {transaction.first_offset} to {transaction.last_offset}"
            )
            yield path, None, "LS10", message
        self._aborted.clear()
        self._markers.clear()

    def _check_index(self, path: str, base_offset: int) -> Iterator[Finding]:
        if not self._file_system.exists(path):
            return
        index = SlicedIndex(self._file_system, path, ENTRY.size)
        try:
            yield from index.check_size("IX26")
            if not index.is_too_large:
                yield from self._check_entries(index, base_offset)
        finally:
            index.close()

    def _check_entries(self, index: SlicedIndex, base_offset: int) -> Iterator[Finding]:
        path, before = index.path, base_offset - 1
        slices = index.slices(index.size_bytes)
        for at, entry in (found for start, block in slices for found in unpack_entries(block, path, start)):
            if entry.last_offset <= before:
                rule = "IX30" if entry.last_offset < base_offset else "IX27"
                yield path, at, rule, f"last offset {entry.last_offset} after {before}"
            before = max(before, entry.last_offset)
            if not entry.first_offset <= entry.last_offset >= entry.last_stable_offset - 1:
                yield (
                    path,
                    at,
                    "1.9",
                    f"first offset {entry.first_offset}, last offset {entry.last_offset} and last stable offset "
                    f"{entry.last_stable_offset} contradict each other",
                )
            if self._markers.get(entry.last_offset) != entry.producer_id:
                message = f"no ABORT marker of producer {entry.producer_id} at offset {entry.last_offset}"
                yield path, at, "LS10", message
            expected = self._aborted.pop(entry.last_offset, None)
            if expected is not None and entry.first_offset > expected.first_offset:
                message = f"the transaction begins at {expected.first_offset}, not {entry.first_offset}"
                yield path, at, "LS10", message
