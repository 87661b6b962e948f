"""Reads each replica's log from the brokers' disks; compacted logs are shown as they were before compaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import final

from cluster.core.messages import TopicPartition
from sim.checkers.base import Jury
from sim.checkers.chain import Chain, Mark
from sim.disk import SimDisk
from sim.witness.compacted import CompactedPartition
from sim.witness.log_reader import DiskEye, LogReader
from sim.witness.producers import HasProducers
from sim.witness.tombstones import Round
from sim.witness.topic_lives import TopicLives
from storage.batch import Record, RecordBatch
from storage.directory.cleaners import CLEANER_CHECKPOINT
from storage.disk.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CleanShutdownFile,
    LeaderEpochCheckpoint,
    OffsetCheckpoint,
    PartitionMetadataFile,
)
from storage.disk.filesystem import basename, dirname, join, read_file
from storage.errors import CorruptCheckpoint, StorageError
from storage.producers.snapshot import SNAPSHOT_SUFFIX
from storage.segment.names import LOG_SUFFIX, SEGMENT_SUFFIXES

Marks = tuple[Mark, ...]
_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
_OFFSETS = (*_CHECKPOINTS, CLEANER_CHECKPOINT)
# How many snapshots of producers are read: a log of many segments has as many.
_SNAPSHOTS = 3
# The ends of the names of what a cut deletes, because it is of records that go.
_TAKEN = (LOG_SUFFIX, SNAPSHOT_SUFFIX)
# The ends of the names of what a start trusts after an orderly stop.
_LASTING = (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, LEADER_EPOCH_CHECKPOINT)


@final
class DiskLogs:
    """The readers of all replicas' logs. `disks` has the brokers' disks by number, `directories` are on each disk."""

    def __init__(self, jury: Jury, disks: Mapping[int, SimDisk], directories: tuple[str, ...]) -> None:
        self._jury, self._directories = jury, directories
        # Which topic has each name now: the witness notes it.
        self.lives = TopicLives()
        self._eyes = {broker: DiskEye(disk) for broker, disk in disks.items()}
        self._readers: dict[tuple[int, str], LogReader] = {}
        # By reader: the version of the disk's names for which no other directory can be that of its log.
        self._settled: dict[tuple[int, str], int] = {}
        self._compacted: dict[str, CompactedPartition] = {}
        # The partitions whose segments may be longer than their batches.
        self._preallocated: dict[str, None] = {}
        # By broker and path: the segments whose time index does not begin from the latest time that they have.
        self._timeless: dict[tuple[int, str], None] = {}

    @property
    def brokers(self) -> Sequence[int]:
        return list(self._eyes)

    def disk(self, broker: int) -> SimDisk:
        return self._eyes[broker].disk

    def expect_compaction(self, partition: str, *, keeps_tombstones: bool = True) -> None:
        """Remember the records of this partition's log from now on, because it may be compacted."""
        truth = self._jury.ghost.partition(partition).truth
        self._compacted[partition] = CompactedPartition(truth, keeps_tombstones=keeps_tombstones)

    def expect_preallocation(self, partition: str) -> None:
        """Take zeros at the end of a segment for room that is still to be written to, from now on."""
        self._preallocated[partition] = None
        for (_, name), reader in self._readers.items():
            reader.is_preallocated = reader.is_preallocated or name == partition

    def expect_moved_tombstones(self, partition: str) -> None:
        """Judge no longer which tombstones go: the time that they stay may change."""
        if compacted := self._compacted.get(partition):
            compacted.keeps_tombstones = False

    def forget(self, broker: int, partition: str) -> None:
        """Read the log of this replica from its start again: it is that of another topic of the name."""
        self._readers.pop((broker, partition), None)
        before = [
            key for key in self._timeless if key[0] == broker and basename(dirname(key[1])) == partition
        ]
        for key in before:
            del self._timeless[key]
        if compacted := self._compacted.get(partition):
            compacted.forget_gaps(broker)

    def begin_again(self, partition: str) -> None:
        """Forget the records of a deleted topic."""
        if partition in self._compacted:
            self.expect_compaction(partition, keeps_tombstones=self._compacted[partition].keeps_tombstones)

    def written_topic_id(self, broker: int, partition: str) -> str | None:
        """Returns the topic id beside the log on the broker's disk, None if there is none."""
        file_system = self._eyes[broker].file_system
        directory = self._directory_of(broker, partition)
        return self._written_id(broker, directory) if file_system.exists(directory) else None

    def written_topic_ids(self, broker: int, partition: str) -> list[str | None]:
        """Returns the topic id in each directory of that name on the broker's disk; one that is offline counts too."""
        return [self._written_id(broker, each) for each in self._directories_with(broker, partition)]

    def recovery_point(self, broker: int, topic_partition: TopicPartition) -> int:
        """Returns the recovery point of the log in the checkpoint on the broker's disk, -1 without one."""
        return self._offset_in(RECOVERY_POINT_CHECKPOINT, broker, topic_partition)

    def checkpointed(self, broker: int, topic_partition: TopicPartition) -> int:
        """Returns the greatest offset that the checkpoints have of a log; -1 if they have none, or without a log."""
        directory = self._directory_of(broker, str(topic_partition))
        if not self._eyes[broker].file_system.exists(directory):
            return -1
        return max(self._offset_in(each, broker, topic_partition) for each in _CHECKPOINTS)

    def _offset_in(self, checkpoint: str, broker: int, topic_partition: TopicPartition) -> int:
        directory = dirname(self._directory_of(broker, str(topic_partition)))
        path, file_system = join(directory, checkpoint), self._eyes[broker].file_system
        # The checkpoint's class makes a file that is missing, and a witness changes nothing.
        if not file_system.exists(path):
            return -1
        try:
            offsets = OffsetCheckpoint(file_system, path).read()
        except (OSError, StorageError):
            # The broker takes a damaged checkpoint for none, too.
            return -1
        return offsets.get((topic_partition.topic, topic_partition.partition), -1)

    def unreadable_checkpoints(self, broker: int, partitions: Iterable[str]) -> Iterator[str]:
        """Yields what is wrong with each file of offsets, or of leader epochs of these partitions, on the broker's disk
        that no start can read.
        """
        file_system = self._eyes[broker].file_system
        offsets = [join(directory, name) for directory in self._directories for name in _OFFSETS]
        epochs = [join(self._directory_of(broker, each), LEADER_EPOCH_CHECKPOINT) for each in partitions]
        for path in filter(file_system.exists, (*offsets, *epochs)):
            kind = OffsetCheckpoint if path in offsets else LeaderEpochCheckpoint
            try:
                kind(file_system, path).read()
            except CorruptCheckpoint as error:
                yield str(error)

    def written_epochs(self, broker: int, directory: str) -> list[int] | None:
        """Returns the leader epochs in the file of a log, as a process reads it; None without a sound file."""
        path, file_system = join(directory, LEADER_EPOCH_CHECKPOINT), self._eyes[broker].file_system
        if not file_system.exists(path):
            return None
        try:
            return [epoch for epoch, _ in LeaderEpochCheckpoint(file_system, path).read()]
        except (OSError, StorageError):
            return None

    def newest_snapshots(self, broker: int, directory: str, log_end: int) -> dict[int, bytes]:
        """Returns the newest snapshots of producers up to the end of a log, by offset, as a process reads them."""
        disk, file_system = self.disk(broker), self._eyes[broker].file_system
        if disk.has_deceived or disk.has_lost_writes:
            return {}
        names = [name for name in disk.names_in(directory) if name.endswith(SNAPSHOT_SUFFIX)]
        offsets = {int(name.partition(".")[0]): name for name in names}
        newest = [offset for offset in offsets if offset <= log_end][-_SNAPSHOTS:]
        return {offset: read_file(file_system, join(directory, offsets[offset])) for offset in newest}

    def held_end(self, broker: int, partition: str) -> int:
        """Returns the end (exclusive) of the sound log as processes read it now, so with what is not synced."""
        reader = self._new_reader(broker, partition)
        reader.read_all()
        return reader.places[-1].mark.next_offset if reader.places else 0

    def may_regrow(self, broker: int, partition: str) -> bool:
        """Whether a power loss may bring back what a cut has taken: bytes, segments, or snapshots of producers."""
        directory, disk = self._directory_of(broker, partition), self.disk(broker)
        if any(not after and before.endswith(_TAKEN) for before, after in disk.pending_changes_in(directory)):
            return True
        names = [name for name in disk.names_in(directory) if name.endswith(LOG_SUFFIX)]
        return any(disk.may_regrow(join(directory, name)) for name in names)

    def may_lose(self, broker: int, partition: str) -> str:
        """Returns a file of the log that a power loss may take now, or bytes of it; empty if there is none.

        It is empty, too, on a disk that has lied about a sync: what that may lose is not the broker's fault.
        """
        directory, disk = self._directory_of(broker, partition), self.disk(broker)
        if disk.has_deceived:
            return ""
        for _, name in disk.pending_changes_in(directory):
            if name.endswith(_LASTING):
                return name
        names = [name for name in disk.names_in(directory) if name.endswith(_LASTING)]
        return next((name for name in names if not disk.is_synced(join(directory, name))), "")

    def is_marked_clean(self, broker: int, partition: str) -> bool:
        """Whether the log is in a directory with the mark of an orderly stop."""
        directory = self.log_directory(broker, partition)
        return CleanShutdownFile(self._eyes[broker].file_system, directory).exists()

    def log_directory(self, broker: int, partition: str) -> str:
        """Returns the broker's log directory that the log is in."""
        return dirname(self._directory_of(broker, partition))

    def is_compacted(self, partition: str) -> bool:
        return partition in self._compacted

    def reader(self, broker: int, partition: str) -> LogReader:
        """Returns the reader of the replica's log, where its directory is now."""
        reader = self._readers.get((broker, partition))
        if reader is not None and len(self._directories) == 1:
            # Its directory cannot be another one.
            return reader
        version = self._eyes[broker].disk.names_version
        if reader is not None and self._settled.get((broker, partition)) == version:
            return reader
        if reader is None or reader.directory != self._directory_of(broker, partition):
            reader = self._readers[broker, partition] = self._new_reader(broker, partition)
        if len(self._directories_with(broker, partition)) <= 1:
            self._settled[broker, partition] = version
        return reader

    def forget_times(self, broker: int, path: str) -> None:
        """Note that the broker's segment was cut before its latest time was known, and counts from later appends.

        So does Kafka, whose bytes a time index has: from then on a look-up by time may begin after the first record.
        """
        self._timeless[broker, path] = None

    def knows_times(self, broker: int, path: str) -> bool:
        """Whether no cut has made the broker's segment forget its latest time."""
        return (broker, path) not in self._timeless

    def first_as_late(
        self, broker: int, partition: str, timestamp: int, log_start: int
    ) -> tuple[bool, tuple[int, int] | None]:
        """Returns whether the broker's log can be read, and its first record as late as `timestamp`, from its start on.

        The record is its offset and its timestamp; None without one. A compacted log cannot be read: its files may be
        about to be replaced. Nor can one with a segment that has forgotten its times, or on a disk that has lied: it
        may have lost an entry of a time index, by which segments know them. Nor is an answer known where the first
        segment that is so late has such records below the log start alone: it is the only one that is searched, as in
        Kafka (RD8).
        """
        if partition in self._compacted or self.disk(broker).has_deceived:
            return False, None
        reader = self._new_reader(broker, partition)
        reader.read_all()
        if reader.unsound or not all(self.knows_times(broker, place.path) for place in reader.places):
            return False, None
        late = ((place, data) for place, data in reader.batches() if place.newest_ms >= timestamp)
        path = ""
        for place, data in late:
            path = path or place.path
            if place.path != path:
                return False, None
            for record in RecordBatch(data, 0, place.size_bytes).records():
                if record.timestamp >= timestamp and record.offset >= log_start:
                    return True, (record.offset, record.timestamp)
        return not path, None

    def settled(self, broker: int, partition: str, log_end: int) -> LogReader | None:
        """Returns a reader of the broker's whole log; None where compaction may have taken some, or damage has."""
        if partition in self._compacted:
            return None
        reader = self._new_reader(broker, partition)
        reader.read_all()
        if reader.unsound or (reader.places and reader.places[-1].mark.next_offset != log_end):
            return None
        return reader

    def log_start(self, broker: int, topic_partition: TopicPartition) -> int:
        """Returns the start of the log in the checkpoint on the broker's disk, -1 without one."""
        return self._offset_in(LOG_START_OFFSET_CHECKPOINT, broker, topic_partition)

    def high_watermark(self, broker: int, topic_partition: TopicPartition) -> int:
        """Returns the high watermark of the log in the checkpoint on the broker's disk, -1 without one."""
        return self._offset_in(HIGH_WATERMARK_CHECKPOINT, broker, topic_partition)

    def _new_reader(self, broker: int, partition: str) -> LogReader:
        directory = self._directory_of(broker, partition)
        return LogReader(
            self._eyes[broker], directory,
            is_compacted=partition in self._compacted, is_preallocated=partition in self._preallocated,
        )  # fmt: skip

    def _directory_of(self, broker: int, partition: str) -> str:
        """Returns the directory of the log's files; before there are any, the first one where they may be made.

        A directory that was offline when its topic was deleted still has the log of that one; if its disk has damaged
        the topic id too, the other one counts. One that failed while the log was made in it has an empty log beside the
        log that was made in the next.
        """
        first = join(self._directories[0], partition)
        if len(self._directories) == 1:
            return first
        there = self._directories_with(broker, partition)
        if len(there) > 1:
            there = [each for each in there if self._may_be_present(broker, partition, each)] or there
            there = [each for each in there if self._is_used(broker, each)] or there
            there = [each for each in there if self._written_id(broker, each) is not None] or there
        return there[0] if there else first

    def _directories_with(self, broker: int, partition: str) -> list[str]:
        """Returns the directories of that name on the broker's disk."""
        file_system = self._eyes[broker].file_system
        places = [join(directory, partition) for directory in self._directories]
        return [place for place in places if file_system.exists(place)]

    def _is_used(self, broker: int, directory: str) -> bool:
        """Whether anything was written to a segment in the directory."""
        file_system = self._eyes[broker].file_system
        names = [name for name in file_system.list(directory) if name.endswith(LOG_SUFFIX)]
        nodes = [file_system.file_at(join(directory, name)) for name in names]
        return any(node is not None and node.data_end > 0 for node in nodes)

    def _written_id(self, broker: int, directory: str) -> str | None:
        """Returns the topic id in the directory; None where there is none, or where the disk has damaged it."""
        try:
            return PartitionMetadataFile(self._eyes[broker].file_system, directory).read()
        except CorruptCheckpoint:
            return None

    def _may_be_present(self, broker: int, partition: str, directory: str) -> bool:
        written_id = self._written_id(broker, directory)
        return self.lives.may_be_present(partition, written_id)

    def whole(
        self, broker: int, partition: str, marks: Sequence[Mark], start: int | None = None, end: int = 0
    ) -> Marks:
        """Returns the marks as they were before compaction, from `start` on (None: the log's start).

        The log ends at `end` (exclusive) at least, also where compaction left no batch directly before it.
        """
        compacted = self._compacted.get(partition)
        if compacted is None:
            return tuple(marks)
        told = self._told(broker, partition)
        return compacted.whole(marks, told[0].start if start is None else start, told, end, broker=broker)

    def opened(
        self, broker: int, partition: str, reader: LogReader, found: Marks, start: int
    ) -> tuple[Marks, int]:
        """Returns the batches that a start of the broker finds, as they were before compaction, and the removed end.

        `found` is what `reader` has read from `start` on. What compaction had removed behind it is still below the end
        of the log, if an empty segment begins after it.
        """
        if compacted := self._compacted.get(partition):
            compacted.tombstones.forget(broker)
        marks = self.whole(broker, partition, found, start)
        last_base = reader.last_base_offset()
        removed_end = self.removed_end(broker, partition, marks, start)
        removed_end = max(
            removed_end, self._skipped_end(broker, partition, Chain(marks, start).end, last_base)
        )
        end = min(removed_end, last_base)
        marks = self.whole(broker, partition, found, start, end)
        if compacted:
            compacted.forget_gaps(broker, marks)
        return marks, removed_end

    def _skipped_end(self, broker: int, partition: str, end: int, last_base: int) -> int:
        """Returns the base of an empty last segment, 0 unless another replica's log has nothing from `end` up to it.

        A follower of that replica has copied nothing of what a compaction had removed there, perhaps in a round that is
        not over, and died in the first append to the segment.
        """
        if partition not in self._compacted or last_base <= end:
            return 0
        for other in self._eyes:
            marks = () if other == broker else self._new_reader(other, partition).read_all()
            is_between = [end <= mark.base_offset < last_base for mark in marks]
            if marks and marks[-1].base_offset >= last_base and not any(is_between):
                return last_base
        return 0

    def removed_end(self, broker: int, partition: str, marks: Sequence[Mark], start: int) -> int:
        """Returns the offset (exclusive) up to which compaction had removed all that followed `marks`; 0 if nothing."""
        compacted = self._compacted.get(partition)
        if compacted is None:
            return 0
        end = Chain(marks, start).end
        reached = compacted.removed_end(broker, end, self._told(broker, partition)[0])
        return reached if reached > end else 0

    def _told(self, broker: int, partition: str) -> Sequence[Chain]:
        """Returns the logs of all replicas as the checkers believe them to be, that of the broker first."""
        ghost = self._jury.ghost.partition(partition)
        own = ghost.image(broker).chain
        return [own, *(ghost.images[each].chain for each in sorted(ghost.images) if each != broker)]

    def judge_compaction(
        self, broker: int, partition: str, log: HasProducers | None = None, *, ended: Round | None = None
    ) -> None:
        """Report a violation if compaction dropped something of this replica that must stay, or left what must go;
        ignores other logs.

        `log` has what the broker holds of producers, if it was just compacted by a round that has `ended`. What
        is below the start of a leader's log may differ: a cut inside a batch there leaves a hole. Of a disk that lied
        about a sync or was replaced nothing is reported: it may have lost a compacted segment. The same holds where the
        partition is judged no further.
        """
        compacted = self._compacted.get(partition)
        if compacted is None:
            return
        reader = self._new_reader(broker, partition)
        reader.read_all()
        ghost = self._jury.ghost.partition(partition)
        image = ghost.image(broker)
        what = compacted.judge(
            broker,
            reader,
            reader.base_offset(),
            self._told(broker, partition),
            ghost.excused,
            ended=ended,
            since=ghost.compared_since(image),
        )
        lost = self._lost_producer(broker, compacted, reader, log)
        if (what or lost) and not (image.damage or image.cache_damage or ghost.unjudged):
            self._jury.report("compaction", f"{partition}: broker {broker}: {what or lost}")
        if image.leads:
            compacted.leads(broker)

    def _lost_producer(
        self, broker: int, compacted: CompactedPartition, reader: LogReader, log: HasProducers | None
    ) -> str:
        """Returns which producer's last batch has just been compacted away, if any."""
        batches = [RecordBatch(data, 0, place.size_bytes) for place, data in reader.batches()]
        if log is None:
            compacted.producers.look(broker, batches)
            return ""
        entries = log.producers.producers
        held = {producer: entry.last_offset for producer, entry in entries.items() if not entry.is_empty}
        return compacted.producers.judge(broker, batches, held, log.log_start_offset)

    def on_cut(self, broker: int, partition: str, to_offset: int) -> None:
        """Note that the broker has cut this log to `to_offset`, of which the ghost does not know yet."""
        if compacted := self._compacted.get(partition):
            compacted.producers.on_cut(broker)
            compacted.tombstones.forget(broker)
            reader = self._new_reader(broker, partition)
            reader.read_all()
            log = self._jury.ghost.partition(partition).image(broker).chain
            compacted.note_cut(broker, reader, log, to_offset)

    def leads(self, broker: int, partition: str) -> None:
        """Note that consumers read the log of this replica from now on."""
        if compacted := self._compacted.get(partition):
            compacted.leads(broker)

    def led(self, broker: int, partition: str) -> None:
        """Note what consumers could not read in the log of this replica, which leads no more."""
        if compacted := self._compacted.get(partition):
            reader = self._new_reader(broker, partition)
            reader.read_all()
            compacted.led(broker, reader, reader.base_offset(), self._told(broker, partition))

    def removed_by_leaders(self, partition: str) -> Collection[int]:
        """Returns the offsets that compaction had removed from a log while it led."""
        compacted = self._compacted.get(partition)
        return () if compacted is None else compacted.removed_by_leaders

    def content(self, partition: str, marks: Sequence[Mark]) -> dict[int, Record]:
        """Returns the records of a compacted log as they were before, by offset; an empty dict for other logs."""
        compacted = self._compacted.get(partition)
        return {} if compacted is None else compacted.content(marks)

    def remember(self, partition: str, reader: LogReader, seen: Sequence[Mark]) -> None:
        """Keep the records of the batches that `reader` has just seen, if they may be compacted later."""
        if compacted := self._compacted.get(partition):
            compacted.remember(reader, seen)

    def originals(self, broker: int, partition: str, marks: Marks) -> Marks:
        """Returns each batch of the broker's log as it was before compaction; holes between them stay."""
        compacted = self._compacted.get(partition)
        if compacted is None:
            return marks
        told = self._told(broker, partition)
        return tuple([compacted.original(mark, told) for mark in marks])
