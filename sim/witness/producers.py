"""Compares what brokers remember of idempotent producers with the logs on their disks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, final

from sim.checkers.base import Jury
from sim.checkers.producer_state import (
    NAME,
    LastBatch,
    ends_by_epoch,
    entries_of,
    forgotten_findings,
    last_batches,
    last_times,
    producer_state_findings,
    recent_ends,
    recent_findings,
    strange_findings,
    time_findings,
)
from sim.witness.log_reader import LogReader
from storage.batch import RecordBatch


class Remembered(Protocol):
    """What a log remembers of one batch."""

    @property
    def last_offset(self) -> int: ...


class Entry(Protocol):
    """What a log remembers of one producer."""

    @property
    def producer_epoch(self) -> int: ...

    @property
    def last_sequence(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def last_timestamp(self) -> int: ...

    @property
    def is_empty(self) -> bool: ...

    @property
    def batch_metadata(self) -> Sequence[Remembered]: ...


class Producers(Protocol):
    """The part of a log's producer state that is read."""

    @property
    def producers(self) -> Mapping[int, Entry]: ...


class HasProducers(Protocol):
    """The part of a replica's log that is read."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def producers(self) -> Producers: ...


@final
class ProducerStates:
    """Looks at the producers of a replica after a step that changed its role or cut its log."""

    def __init__(self, jury: Jury, *, may_expire: bool) -> None:
        self._jury, self._may_expire = jury, may_expire
        # The epoch of each producer that a log knows, by broker and partition.
        self._epochs: dict[tuple[int, str], dict[int, int]] = {}

    def expect_expiry(self) -> None:
        """Judge no longer whether a broker forgets a producer."""
        self._may_expire = True

    def forget(self, broker: int, partition: str) -> None:
        """Forget the epochs of a log that a start has read, that was cut, or that is another topic's."""
        self._epochs.pop((broker, partition), None)

    def on_appended(self, broker: int, partition: str, log: HasProducers, first_offset: int) -> None:
        """Report batches of an epoch that has ended with the append, which begins at `first_offset`."""
        known = self._epochs.get((broker, partition))
        if known is None:
            return
        for producer, entry in log.producers.producers.items():
            before, epoch = known.get(producer), entry.producer_epoch
            if before != epoch and entry.last_offset >= first_offset:
                known[producer] = epoch
                remembered = [each.last_offset for each in entry.batch_metadata]
                for what in forgotten_findings(producer, before, epoch, remembered, first_offset):
                    self._jury.report(NAME, f"{partition}: broker {broker} {what}")

    def look(
        self,
        broker: int,
        partition: str,
        log: HasProducers,
        reader: LogReader,
        snapshots: Mapping[int, bytes],
    ) -> None:
        """Report where memory and log differ; `reader` has read the log, which is not compacted.

        `snapshots` are the files of the newest ones, by their offsets: each has to have what the log had at its own.

        Compaction takes a batch that a later one of its producer follows, and a cut may take the later one.
        """
        batches = [RecordBatch(data, 0, place.size_bytes) for place, data in reader.batches()]
        logged = last_batches(batches, log.log_start_offset)
        held = _held(log.producers.producers)
        for what in producer_state_findings(held, logged, log.log_start_offset, may_expire=self._may_expire):
            self._jury.report(NAME, f"{partition}: broker {broker} {what}")
        entries = log.producers.producers
        self._epochs[broker, partition] = {
            producer: entry.producer_epoch for producer, entry in entries.items()
        }
        times = {producer: entry.last_timestamp for producer, entry in entries.items() if not entry.is_empty}
        for what in time_findings(times, last_times(batches, log.log_start_offset)):
            self._jury.report(NAME, f"{partition}: broker {broker} {what}")
        remembered = {
            (producer, entry.producer_epoch): [each.last_offset for each in entry.batch_metadata]
            for producer, entry in entries.items()
        }
        for what in strange_findings(remembered, ends_by_epoch(batches), log.log_start_offset):
            self._jury.report(NAME, f"{partition}: broker {broker} {what}")
        for offset, content in snapshots.items():
            below = [batch for batch in batches if batch.last_offset < offset]
            saved, told = entries_of(content), last_batches(below, log.log_start_offset)
            if saved is None:
                # A start takes the newest one that loads, and leaves those before it.
                continue
            for what in producer_state_findings(
                saved, told, log.log_start_offset, may_expire=self._may_expire
            ):
                self._jury.report(NAME, f"{partition}: broker {broker} in its snapshot at {offset} {what}")
        # Who has expired, and is known again, is known by what came since.
        if not self._may_expire:
            recent = recent_ends(batches, log.log_start_offset)
            for what in recent_findings(_held_ends(log.producers.producers), recent):
                self._jury.report(NAME, f"{partition}: broker {broker} {what}")


def _held_ends(entries: Mapping[int, Entry]) -> dict[int, list[int]]:
    return {
        producer: [each.last_offset for each in entry.batch_metadata] for producer, entry in entries.items()
    }


def _held(entries: Mapping[int, Entry]) -> dict[int, LastBatch]:
    found: Iterable[tuple[int, Entry]] = entries.items()
    return {
        producer: LastBatch(entry.producer_epoch, entry.last_sequence, entry.last_offset)
        for producer, entry in found
        if not entry.is_empty
    }
