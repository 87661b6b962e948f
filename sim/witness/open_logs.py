"""Compares what brokers hold of their open logs with the files, after steps that begin roles or cut logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

from cluster.core.broker.broker import Broker
from cluster.core.broker.logs import text_topic_id
from cluster.core.replica.replica import Replica
from sim.checkers.base import Jury
from sim.checkers.log_state import (
    NAME,
    Greatest,
    Timed,
    age_findings,
    cleaned_findings,
    epoch_findings,
    greatest_findings,
    greatest_of,
    index_findings,
    snapshot_findings,
    start_findings,
    topic_id_findings,
    total_findings,
    written_epoch_findings,
)
from sim.witness.disk_logs import DiskLogs
from sim.witness.log_reader import LogReader
from sim.witness.places import Place
from sim.witness.producers import ProducerStates
from storage.config import LogConfig
from storage.disk.filesystem import dirname, join
from storage.producers.snapshot import SNAPSHOT_SUFFIX


@final
class _First(NamedTuple):
    """What a segment begins with: the latest time of its first batch; the properties of its log at the last append."""

    file_number: int
    newest_ms: int
    config: LogConfig


@final
class SegmentAges:
    """Looks at how much later than the first batch of a segment others are appended to it."""

    def __init__(self) -> None:
        # By broker and path.
        self._firsts: dict[tuple[int, str], _First] = {}

    def on_appended(self, broker: int, added: Sequence[Place], config: LogConfig) -> Iterator[str]:
        """Yields what is wrong with the batches that a step has added to a segment."""
        last = added[-1]
        key, first = (broker, last.path), self._firsts.get((broker, last.path))
        if added[0].position == 0:
            # Older segments of the log take no appends any more.
            directory = dirname(last.path)
            for each in [
                each for each in self._firsts if each[0] == broker and dirname(each[1]) == directory
            ]:
                del self._firsts[each]
            self._firsts[key] = _First(last.file_number, added[0].newest_ms, config)
        elif first is not None and first.file_number == last.file_number:
            self._firsts[key] = first._replace(config=config)
            # Nobody outside knows when in a step the properties have changed.
            if first.config is config:
                newest_ms = max([place.newest_ms for place in added])
                yield from age_findings(first.newest_ms, newest_ms, config.max_segment_ms)


@final
class OpenLogs:
    """Looks at logs where they are as the checkers believe them to be."""

    def __init__(self, jury: Jury, logs: DiskLogs, *, may_expire: bool) -> None:
        """`may_expire` says whether brokers may forget producers."""
        self._jury, self._logs = jury, logs
        self.ages = SegmentAges()
        self._producers = ProducerStates(jury, may_expire=may_expire)
        # By broker and partition: what the checkpoint said of a log's start, until its first look after a start.
        self._starts: dict[tuple[int, str], int] = {}

    def expect_expiry(self) -> None:
        """Judge no longer whether a broker forgets a producer."""
        self._producers.expect_expiry()

    def on_loaded(self, broker: int, partition: str, checkpoint: int) -> None:
        """Receive a log that a start has opened, and what the checkpoint of log starts says of it, -1 for nothing."""
        self._starts[broker, partition] = checkpoint

    def forget(self, broker: int, partition: str) -> None:
        """Forget a log that was loaded: the replica has that of another topic of the name."""
        self._starts.pop((broker, partition), None)
        self._producers.forget(broker, partition)

    def forget_producers(self, broker: int, partition: str) -> None:
        """Forget what a log knew of producers, which a start or a cut has changed."""
        self._producers.forget(broker, partition)

    def on_appended(self, broker: int, partition: str, replica: Replica, first_offset: int) -> None:
        """Receive an append of the step that has just ended."""
        ghost = self._jury.ghost.partition(partition)
        image = ghost.image(broker)
        if not (image.damage or image.cache_damage or ghost.unjudged):
            self._producers.on_appended(broker, partition, replica.log, first_offset)

    def on_cut(self, broker: int, replica: Replica, reader: LogReader) -> None:
        """Note whether the last segment of a log has forgotten its latest time by a cut: soon it may be sealed."""
        active = replica.log.local.segments.active
        newest_ms = max([each.newest_ms for each in reader.places if each.path == active.path], default=-1)
        # Only an empty segment that was never looked at does not know it, and that one has nothing to forget.
        is_forgotten = active.is_max_timestamp_known and active.max_timestamp.timestamp < newest_ms
        # A life with shorter indexes than the one before may have cut it to as many entries as there is room for.
        index = active.indexes.lazy_time.index
        is_full = index is not None and index.entries == index.max_entries
        if is_forgotten or (is_full and index is not None and index.last_entry.timestamp < newest_ms):
            self._logs.forget_times(broker, active.path)

    def look(self, core: Broker, partition: str, replica: Replica) -> None:
        """Report where what the broker holds of a replica's log differs from the files.

        Of a log that may be compacted only the cleaner's checkpoint and the topic in its directory are judged, and of
        one that a disk has damaged only the former.
        """
        broker = core.node_id
        findings = [*_cleaned(core, replica)]
        checkpoint = self._starts.pop((broker, partition), None)
        image = self._jury.ghost.partition(partition).image(broker)
        if not (image.damage or image.cache_damage or self._logs.disk(broker).has_lost_writes):
            findings += self._topic_ids(broker, partition, replica)
        reader = self._logs.settled(broker, partition, replica.log.log_end_offset)
        if reader is not None and not image.damage and not image.cache_damage:
            snapshots = self._logs.newest_snapshots(broker, reader.directory, replica.log.log_end_offset)
            self._producers.look(broker, partition, replica.log, reader, snapshots)
            findings += self._times(replica, reader, broker)
            findings += self._snapshots(broker, replica, reader.directory)
            findings += self._written_epochs(broker, replica, reader.directory)
            file_bytes = sum([each.size_bytes for each in reader.places])
            findings += total_findings(replica.log.local.segments.size_bytes, file_bytes)
            # It may have brought back an index from before the cut, with the mark of a clean stop.
            if not self._logs.disk(broker).has_deceived:
                findings += _indexed(replica)
            if checkpoint is not None:
                findings += _started(replica, checkpoint, reader.base_offset())
        elif reader is None:
            # After a cut inside a batch the log ends above its last one, and its segment may have forgotten its times.
            self._logs.forget_times(broker, replica.log.local.segments.active.path)
        for what in findings:
            self._jury.report(NAME, f"{partition}: broker {broker}: {what}")

    def _topic_ids(self, broker: int, partition: str, replica: Replica) -> Iterator[str]:
        """Yields that the directory of a log names another topic than the replica has, or none."""
        written = self._logs.written_topic_ids(broker, partition)
        yield from topic_id_findings(text_topic_id(replica.topic_id), written)

    def _snapshots(self, broker: int, replica: Replica, directory: str) -> Iterator[str]:
        """Yields each snapshot of producers that a power loss may tear: it would count for all below its offset.

        And those that are beyond the end of the log: once other records have come they would count for these.
        """
        disk = self._logs.disk(broker)
        if disk.has_lost_writes:
            return
        names = [name for name in disk.names_in(directory) if name.endswith(SNAPSHOT_SUFFIX)]
        for name in names:
            if not disk.is_synced(join(directory, name)):
                yield f"goes on with a snapshot of its producers that is not synced, {name}"
        yield from snapshot_findings(names, replica.log.log_end_offset)

    def _written_epochs(self, broker: int, replica: Replica, directory: str) -> Iterator[str]:
        """Yields an epoch that only the file has. A disk that has lost writes may give anything back."""
        if not self._logs.disk(broker).has_lost_writes:
            held = [each[0] for each in replica.log.epochs.entries]
            yield from written_epoch_findings(held, self._logs.written_epochs(broker, directory))

    def _times(self, replica: Replica, reader: LogReader, broker: int) -> Iterator[str]:
        """Yields what is wrong with the latest times that segments hold; those not looked up yet are left out."""
        timed: dict[str, list[Timed]] = {}
        for place in reader.places:
            timed.setdefault(place.path, []).append(Timed(place.mark.next_offset - 1, place.newest_ms))
        for segment in replica.log.local.segments:
            if segment.is_max_timestamp_known:
                held, batches = Greatest(*segment.max_timestamp), timed.get(segment.path, [])
                if held.newest_ms < greatest_of(batches).newest_ms:
                    self._logs.forget_times(broker, segment.path)
                yield from greatest_findings(
                    segment.base_offset, held, segment.kept_until_ms, batches,
                    knows_times=self._logs.knows_times(broker, segment.path),
                )  # fmt: skip


def _cleaned(core: Broker, replica: Replica) -> Iterator[str]:
    log = replica.log
    checkpoints = core.maintenance.cleaner_of(log).checkpoints
    yield from cleaned_findings(checkpoints.get((log.topic, log.partition), 0), log.log_end_offset)


def _indexed(replica: Replica) -> Iterator[str]:
    """Yields an entry for what the log does not have, in an index of the active segment that has been opened."""
    log_end, indexes = replica.log.log_end_offset, replica.log.local.segments.active.indexes
    offsets, times = indexes.lazy_offset.index, indexes.lazy_time.index
    if offsets is not None and offsets.entries:
        yield from index_findings("offset", offsets.last_offset, log_end)
    if times is not None and times.entries:
        yield from index_findings("time", times.last_entry.offset, log_end)


def _started(replica: Replica, checkpoint: int, first_base: int) -> Iterator[str]:
    log = replica.log
    leads = -1 if replica.leader is None else replica.leader_epoch
    yield from start_findings(log.log_start_offset, checkpoint, first_base)
    starts = [(each[0], each[1]) for each in log.epochs.entries]
    yield from epoch_findings(starts, log.log_start_offset, log.log_end_offset, leads)
