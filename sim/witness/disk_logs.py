"""Every replica's log as the disks of the brokers hold it, compacted ones as they were before their compaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from sim.checkers.base import Jury
from sim.checkers.chain import Mark
from sim.disk import SimDisk
from sim.witness.compacted import CompactedPartition
from sim.witness.log_reader import DiskEye, LogReader
from storage.batch import Record
from storage.disk.filesystem import join

Marks = tuple[Mark, ...]


@final
class DiskLogs:
    """Reads for the witness. `disks` are the brokers' by number, `directories` hold the logs on each of them."""

    def __init__(self, jury: Jury, disks: Mapping[int, SimDisk], directories: tuple[str, ...]) -> None:
        self._jury, self._directories = jury, directories
        self._eyes = {broker: DiskEye(disk) for broker, disk in disks.items()}
        self._readers: dict[tuple[int, str], LogReader] = {}
        self._compacted: dict[str, CompactedPartition] = {}

    @property
    def brokers(self) -> Sequence[int]:
        return list(self._eyes)

    def expect_compaction(self, partition: str) -> None:
        """Remember what the log of this partition held, for the scenario lets it be compacted."""
        self._compacted[partition] = CompactedPartition(self._jury.ghost.partition(partition).truth)

    def is_compacted(self, partition: str) -> bool:
        return partition in self._compacted

    def reader(self, broker: int, partition: str) -> LogReader:
        reader = self._readers.get((broker, partition))
        if reader is None or reader.directory != self._directory_of(broker, partition):
            reader = self._readers[broker, partition] = self._new_reader(broker, partition)
        return reader

    def _new_reader(self, broker: int, partition: str) -> LogReader:
        directory = self._directory_of(broker, partition)
        return LogReader(self._eyes[broker], directory, is_compacted=partition in self._compacted)

    def _directory_of(self, broker: int, partition: str) -> str:
        """Returns where the files of the log are; before there are any, the first place where they may come to be."""
        places = [join(directory, partition) for directory in self._directories]
        if len(places) == 1:
            return places[0]
        file_system = self._eyes[broker].file_system
        return next((place for place in places if file_system.exists(place)), places[0])

    def whole(self, broker: int, partition: str, marks: Sequence[Mark], start: int | None = None) -> Marks:
        """Returns what `marks`, from `start` or the log's start on, were before compaction."""
        compacted = self._compacted.get(partition)
        if compacted is None:
            return tuple(marks)
        if start is None:
            start = self._jury.ghost.partition(partition).image(broker).chain.start
        return compacted.whole(marks, start)

    def judge_compaction(self, broker: int, partition: str) -> None:
        """Report a violation if compaction took from this replica what it may not; other logs are not looked at."""
        compacted = self._compacted.get(partition)
        if compacted is None:
            return
        reader = self._new_reader(broker, partition)
        reader.read_all()
        what = compacted.judge(reader, self._jury.ghost.partition(partition).image(broker).chain.start)
        if what is not None:
            self._jury.report("compaction", f"{partition}: broker {broker}: {what}")

    def content(self, partition: str, marks: Sequence[Mark]) -> dict[int, Record]:
        """Returns what a compacted log held before, by offset; an empty dict for other logs."""
        compacted = self._compacted.get(partition)
        return {} if compacted is None else compacted.content(marks)

    def remember(self, partition: str, reader: LogReader, seen: Sequence[Mark]) -> None:
        """Keep the records of the batches that `reader` has just seen, if compaction may take them later."""
        if compacted := self._compacted.get(partition):
            compacted.remember(reader, seen)

    def originals(self, partition: str, marks: Marks) -> Marks:
        """Returns each batch as it was before compaction, without filling the holes between them."""
        compacted = self._compacted.get(partition)
        return marks if compacted is None else tuple([compacted.original(mark) for mark in marks])
