"""Rows of `bench/scale.py`: transactions, producers and leader epochs in the numbers that a year of use brings."""

from __future__ import annotations

from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Final

from bench.growth import INDEPENDENT, LINEAR, Once, Row, Sample, Steps, cpu, steps
from bench.scale_logs import (
    FIRST_TIMESTAMP,
    ROOMY,
    end_of,
    one_record,
    open_committed,
    write_one_segment,
)
from bench.scale_producers import SIZES as PRODUCERS
from bench.scale_producers import write_producers
from storage.log import Isolation, PartitionLog

STEPS: Final = 50
TRANSACTIONS: Final = (4000, 8000, 16_000, 64_000)
# A new leader each hour of a year is 8,760.
EPOCHS: Final = (100, 1000, 3000, 10_000)
# A larger snapshot is written by a job of a node, in every revision.
PRODUCERS_A_ROLL: Final = 20_000


_CHUNK: Final = 4000


@cache
def _transactions(first: int, is_commit: bool) -> bytes:
    """The batches of a chunk of transactions, built once: several rows write the same ones."""
    parts = []
    for number in range(first, first + _CHUNK):
        parts.append(one_record(2 * number, producer_id=1, sequence=number, is_transactional=True))
        parts.append(end_of(1, 2 * number + 1, is_commit=is_commit))
    return b"".join(parts)


def _write_transactions(directory: Path, size: int, *, is_commit: bool) -> None:
    assert size % _CHUNK == 0, size
    write_one_segment(directory, (_transactions(first, is_commit) for first in range(0, size, _CHUNK)))


def _append_transaction(log: PartitionLog, sequence: int, is_commit: bool) -> None:
    offset = log.log_end_offset
    first = one_record(offset, producer_id=1, sequence=sequence, is_transactional=True)
    log.append_as_follower(first, leader_epoch=0, now_ms=FIRST_TIMESTAMP)
    log.append_as_follower(end_of(1, offset + 1, is_commit=is_commit), leader_epoch=0, now_ms=FIRST_TIMESTAMP)
    log.marks.update_high_watermark(log.log_end_offset)


def _transaction_after(size: int, root: Path, *, is_commit: bool) -> Once:
    _write_transactions(root / "t-0", size, is_commit=is_commit)
    log, sequences = open_committed(root / "t-0", clean=False, config=ROOMY), count(size)
    return lambda: steps(partial(_append_transaction, log, next(sequences), is_commit) for _ in range(STEPS))


def committed_transaction(size: int, root: Path) -> Once:
    return _transaction_after(size, root, is_commit=True)


def aborted_transaction(size: int, root: Path) -> Once:
    return _transaction_after(size, root, is_commit=False)


def committed_fetch_of_aborted(size: int, root: Path) -> Once:
    """Read from the end of a segment with `size` aborted transactions."""
    _write_transactions(root / "t-0", size, is_commit=False)
    log = open_committed(root / "t-0", clean=False, config=ROOMY)
    first = log.log_end_offset - 2 * STEPS

    def read(offset: int) -> None:
        found = log.read(offset, max_size=300, isolation=Isolation.TXN_COMMITTED)
        assert found.aborted_transactions, offset

    return lambda: steps(partial(read, first + number) for number in range(STEPS))


def open_transactions(size: int, root: Path) -> Once:
    """End the first of `size` open transactions, and begin another."""
    write_one_segment(
        root / "t-0",
        (one_record(offset, producer_id=offset, sequence=0, is_transactional=True) for offset in range(size)),
    )
    log, numbers = open_committed(root / "t-0", clean=False, config=ROOMY), count()

    def step() -> None:
        number = next(numbers)
        log.append_as_follower(end_of(number, log.log_end_offset), leader_epoch=0, now_ms=FIRST_TIMESTAMP)
        begun = one_record(log.log_end_offset, producer_id=size + number, sequence=0, is_transactional=True)
        log.append_as_follower(begun, leader_epoch=0, now_ms=FIRST_TIMESTAMP)
        log.marks.update_high_watermark(log.log_end_offset)

    return lambda: steps(step for _ in range(STEPS))


def _with_producers(size: int, root: Path) -> PartitionLog:
    write_producers(root / "t-0", size)
    return open_committed(root / "t-0", clean=True, config=ROOMY)


def _append_of(log: PartitionLog, producer_id: int, sequence: int) -> None:
    batch = one_record(0, producer_id=producer_id, sequence=sequence)
    log.append_as_leader(batch, leader_epoch=0, now_ms=FIRST_TIMESTAMP)


def producers_append(size: int, root: Path) -> Once:
    """Append one batch of each of some producers."""
    log, sequences = _with_producers(size, root), count(8)

    def once() -> Sample:
        sequence = next(sequences)
        return steps(partial(_append_of, log, producer_id, sequence) for producer_id in range(STEPS))

    return once


def producers_roll(size: int, root: Path) -> Once:
    """Roll, after which a job writes a snapshot of all producers."""

    log, sequences = _with_producers(size, root), count(8)
    log.flushes.most_in_a_roll = PRODUCERS_A_ROLL

    def roll() -> None:
        _append_of(log, 0, next(sequences))
        log.flushes.roll(now_ms=FIRST_TIMESTAMP)

    def once() -> Sample:
        with Steps() as taken:
            taken.step(roll)
            written = log.flushes.begin_snapshot()
            assert written is not None, size
            taken.job(written)
            taken.step(log.flushes.snapshot_done)
        return taken.total

    return once


def producers_expiry(size: int, root: Path) -> Once:
    """Look for expired producers where none is."""
    log = _with_producers(size, root)
    return lambda: steps([lambda: log.producers.remove_expired(FIRST_TIMESTAMP)])


def producers_truncate(size: int, root: Path) -> Once:
    """Truncate one batch: the state of the producers goes back to the offset, as a follower does it."""

    log = _with_producers(size, root)
    log.flushes.most_in_a_roll = PRODUCERS_A_ROLL

    def once() -> Sample:
        _append_of(log, 0, 8)
        with Steps() as taken:
            _truncate_in_slices(log, log.log_end_offset - 1, taken)
        return taken.total

    return once


def producers_truncate_tail(size: int, root: Path) -> Once:
    """Truncate the last ten of n batches, one of each producer, without a snapshot, as a follower does."""

    directories = (root / f"t-{number}" for number in count())

    def once() -> Sample:
        directory = next(directories)
        write_producers(directory, size)
        log = open_committed(directory, clean=False, config=ROOMY)
        log.producers.snapshots.delete_before(size + 1)
        log.flushes.most_in_a_roll = PRODUCERS_A_ROLL
        # In memory, as after the append of its batch.
        assert all(map(log.producers.last_entry, range(size))), size
        return _truncated_in_slices(log, size - 10)

    return once


def _truncate_in_slices(log: PartitionLog, offset: int, taken: Steps) -> None:
    def step() -> bool:
        # As a follower does: `Truncations.truncate_in_part`.
        if not log.truncation.prepare(offset, now_ms=FIRST_TIMESTAMP):
            return True
        log.truncate_to(offset, now_ms=FIRST_TIMESTAMP)
        return False

    while taken.step(step):
        pass
    written = log.flushes.begin_snapshot()
    # That of few producers was written in the step.
    if written is not None:
        taken.job(written)
        taken.step(log.flushes.snapshot_done)


def _truncated_in_slices(log: PartitionLog, offset: int) -> Sample:
    with Steps() as taken:
        _truncate_in_slices(log, offset, taken)
    assert len(log.producers.producers) == offset, (len(log.producers.producers), offset)
    log.close_handles()
    return taken.total


def _with_epochs(size: int, root: Path) -> PartitionLog:
    write_one_segment(root / "t-0", (one_record(offset, leader_epoch=offset) for offset in range(size)))
    log = open_committed(root / "t-0", clean=False)
    assert len(log.epochs) == size, (len(log.epochs), size)
    return log


def epoch_begins(size: int, root: Path) -> Once:
    """Append under a new leader epoch, which is on disk then."""
    log, epochs = _with_epochs(size, root), count(size)

    def step() -> None:
        log.append_as_leader(one_record(0), leader_epoch=next(epochs), now_ms=FIRST_TIMESTAMP)

    return lambda: steps(step for _ in range(5))


def epoch_ends(size: int, root: Path) -> Once:
    """Ask where epochs end, as a follower does to find where it diverges."""
    log = _with_epochs(size, root)

    def look_up(count: int) -> None:
        for number in range(count):
            log.epochs.end_offset_for(size * number // count, log.log_end_offset)

    # One takes less than a microsecond, which no clock of a process can measure.
    return lambda: cpu(partial(look_up, 1000 * STEPS), 1000 * STEPS)


ROWS: Final = [
    Row(
        name="committed-transaction",
        what="a transaction after n committed ones",
        sizes=TRANSACTIONS,
        most=INDEPENDENT,
        prepare=committed_transaction,
    ),
    Row(
        name="aborted-transaction",
        what="an aborted transaction after n aborted ones",
        sizes=TRANSACTIONS,
        most=INDEPENDENT,
        prepare=aborted_transaction,
    ),
    Row(
        name="committed-fetch-aborted",
        what="a committed fetch after n aborted transactions",
        sizes=TRANSACTIONS,
        most=INDEPENDENT,
        prepare=committed_fetch_of_aborted,
    ),
    Row(
        name="open-transactions",
        what="an end and a begin among n open transactions",
        sizes=TRANSACTIONS,
        most=INDEPENDENT,
        prepare=open_transactions,
    ),
    Row(
        name="producers-append",
        what="an append of one of n producers",
        sizes=PRODUCERS,
        most=INDEPENDENT,
        prepare=producers_append,
    ),
    Row(
        name="producers-roll",
        what="a roll with n producers",
        sizes=PRODUCERS,
        most=LINEAR,
        prepare=producers_roll,
    ),
    Row(
        name="producers-expiry",
        what="a look for expired ones of n producers",
        sizes=PRODUCERS,
        most=LINEAR,
        prepare=producers_expiry,
    ),
    Row(
        name="producers-truncate",
        what="a truncation with n producers",
        sizes=PRODUCERS,
        most=LINEAR,
        prepare=producers_truncate,
    ),
    Row(
        name="producers-truncate-tail",
        what="a truncation of ten of n producers without a snapshot",
        sizes=PRODUCERS,
        most=LINEAR,
        prepare=producers_truncate_tail,
    ),
    Row(name="epoch-begins", what="an epoch after n others", sizes=EPOCHS, most=LINEAR, prepare=epoch_begins),
    Row(
        name="epoch-ends",
        what="the end of one of n epochs",
        sizes=EPOCHS,
        most=INDEPENDENT,
        prepare=epoch_ends,
    ),
]
