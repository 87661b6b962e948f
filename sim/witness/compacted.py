"""Shows compacted logs to the checkers as they were before compaction, from the records that were once appended.

Each replica compacts its own log, so the replicas' bytes differ. A replica may drop a record only if a later record
of the same key follows, in its log or in the committed one, or followed until its loss was excused; this is checked
here. A tombstone may go too, unless `delete.retention.ms` is longer than any run. A committed record is replaced by
committed ones only: others may be lost with their leader. All other records keep their offsets, content and order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import final

from sim.checkers.chain import Chain, Mark
from sim.witness.kept_producers import KeptProducers
from sim.witness.log_reader import LogReader
from sim.witness.tombstones import Round, Tombstones
from storage.batch import Record, RecordBatch


@final
class CompactedPartition:
    """One partition whose logs are compacted. `truth` is the committed log; compaction changes no other records."""

    def __init__(self, truth: Chain, *, keeps_tombstones: bool = True) -> None:
        self._truth = truth
        # Whether no tombstone may go before the run ends. Where they may, a round that is broken off may have set the
        # time for it, and tells nobody.
        self.keeps_tombstones = keeps_tombstones
        # The records of every batch as its leader appended it.
        self._records: dict[Mark, tuple[Record, ...]] = {}
        # The offsets that compaction has removed from each broker's log, when it was last judged.
        self._removed: dict[int, frozenset[int]] = {}
        # Those that a log lacked while it led: a consumer may have gone past them there.
        self.removed_by_leaders: set[int] = set()
        self.producers = KeptProducers()
        self.tombstones = Tombstones()
        # By broker: the holes that cuts inside a batch have left. Each ends at its cut, where the log goes on (RT9).
        self._gaps: dict[int, list[tuple[int, int]]] = {}

    def forget_gaps(self, broker: int, marks: Sequence[Mark] = ()) -> None:
        """Forget the holes of a broker's log after which none of `marks` begins: the log goes on without them."""
        begun = {mark.base_offset for mark in marks}
        self._gaps[broker] = [gap for gap in self._gaps.get(broker, ()) if gap[1] in begun]

    def remember(self, reader: LogReader, marks: Sequence[Mark]) -> None:
        """Keep the records of the batches that `reader` has just seen, unless they were compacted before."""
        for place, data in reader.batches(last=len(marks)):
            if place.mark.is_dense and place.mark not in self._records:
                self._records[place.mark] = tuple(RecordBatch(data, 0, len(data)).records())

    def whole(
        self,
        marks: Iterable[Mark],
        start: int,
        told: Sequence[Chain] = (),
        end: int = 0,
        *,
        broker: int | None = None,
    ) -> tuple[Mark, ...]:
        """Returns the marks as they were before compaction, from `start` on; a hole of unknown content stays a hole.

        `told` is what the replica was seen to hold before, and then what the others hold. After an unclean election the
        truth lacks some of it. The log ends at `end` (exclusive) at least: a cut may leave no batch directly before it.
        A hole that a cut has left in the log of `broker` stays.
        """
        gaps = () if broker is None else tuple(self._gaps.get(broker, ()))
        found: list[Mark] = []
        reached = start
        for mark in marks:
            if mark.base_offset > reached:
                found += self._filling(reached, mark.base_offset, told, gaps, mark.epoch)
            found.append(self.original(mark, told))
            reached = mark.next_offset
        if end > reached:
            found += self._filling(reached, end, told, gaps)
        return tuple(found)

    def original(self, mark: Mark, told: Sequence[Chain] = ()) -> Mark:
        """Returns the mark of the batch that compaction reduced to `mark`; `mark` itself if it is unchanged."""
        if mark.is_dense:
            return mark
        for chain in self._sources(told):
            before = chain.at(mark.base_offset)
            if before is not None and (before.next_offset, before.epoch) == (mark.next_offset, mark.epoch):
                return before
        return mark

    def _filling(
        self,
        start: int,
        end: int,
        told: Sequence[Chain],
        gaps: Sequence[tuple[int, int]],
        epoch: int | None = None,
    ) -> list[Mark]:
        """Returns the batches of the hole, of no later epoch than `epoch`, that of what follows it; [] if unknown.

        A log that was cut inside a batch goes on at the cut (RT9): of the batch, what others have fills nothing.
        """
        for base_offset, cut in gaps:
            if base_offset < end and start < cut <= end:
                before = self._filling(start, base_offset, told, gaps, epoch)
                return before + self._filling(cut, end, told, gaps, epoch)
        if start >= end:
            return []
        for chain in self._sources(told):
            between = chain.between(start, end)
            if _fills(between, start, end, epoch):
                return between
        return []

    def _sources(self, told: Sequence[Chain]) -> Sequence[Chain]:
        """Returns the logs that may know what compaction removed: the replica's own, the committed one, the others."""
        return (*told[:1], self._truth, *told[1:])

    def removed_end(self, broker: int, reached: int, log: Chain) -> int:
        """Returns the offset (exclusive) up to which compaction had removed all records from `reached` on; else it.

        `log` is what the broker was seen to hold. A log that is cut right behind such records ends before them after
        its next start, in Kafka too: nothing on its disk says that they were there.
        """
        removed = self._removed.get(broker, frozenset())
        for mark in log.between(reached, log.end):
            records = self.content([mark])
            if not records or not removed.issuperset(records):
                break
            reached = mark.next_offset
        return reached

    def note_cut(self, broker: int, reader: LogReader, log: Chain, to_offset: int) -> None:
        """Notes what compaction had removed below a cut at `to_offset`; `log` is as it was, `reader` has what is left.

        A round that the cut has broken off told nobody what it had done, and the log may have lost the later values.
        """
        kept = [gap for gap in self._gaps.get(broker, ()) if gap[1] < to_offset]
        if (end := log.end_below(to_offset)) < to_offset <= log.end:
            kept.append((end, to_offset))
        self._gaps[broker] = kept
        if reader.unsound:
            return
        before = self.content(log.between(reader.base_offset(), log.end))
        last_of_key = {record.key: offset for offset, record in before.items()}
        left = _offsets_left(reader)
        superseded = [
            offset for offset, record in before.items() if offset < min(to_offset, last_of_key[record.key])
        ]
        self._removed[broker] = self._removed.get(broker, frozenset()).union(superseded) - left

    def content(self, marks: Iterable[Mark]) -> dict[int, Record]:
        """Returns the records of these batches as they were before compaction, by offset."""
        return {
            record.offset: record for mark in marks for record in self._records.get(self.original(mark), ())
        }

    def leads(self, broker: int) -> None:
        """Notes that consumers read the broker's log from now on, or go on reading it after a compaction."""
        self.removed_by_leaders |= self._removed.get(broker, frozenset())

    def led(self, broker: int, reader: LogReader, start: int, told: Sequence[Chain] = ()) -> None:
        """Notes what is missing in the broker's log, read to its end, that led until now; `told` as for `whole`.

        A compaction that goes on, or was broken off, may have replaced some segments already and told nobody.
        """
        before = self._before(broker, reader, start, told)
        left = _offsets_left(reader)
        self.removed_by_leaders |= before.keys() - left

    def _before(self, broker: int, reader: LogReader, start: int, told: Sequence[Chain]) -> dict[int, Record]:
        """Returns the records that the broker's log had before compaction, by offset."""
        marks = [place.mark for place in reader.places]
        return self.content(self.whole(marks, start, told, broker=broker))

    def judge(
        self,
        broker: int,
        reader: LogReader,
        start: int,
        told: Sequence[Chain] = (),
        excused: Collection[Mark] = (),
        *,
        ended: Round | None = None,
        since: int = 0,
    ) -> str | None:
        """Returns what is wrong with the broker's log, read to its end, or None; `told` as for `whole`.

        The batches in `excused` were committed and may be lost; what is below `since` may be missing. Remembers what
        compaction has removed from the log. `ended` is a round that has just ended, None without one. Only then it is
        known whether what was removed is replaced by committed records, which may be lost later, as by an unclean
        election, and whether all was removed that has to go.
        """
        if reader.unsound:
            return reader.unsound
        before = self._before(broker, reader, start, told)
        last_of_key = {record.key: offset for offset, record in before.items()}
        left: dict[int, bytes | None] = {}
        moved = self._look_at_horizons(broker, reader, told, ended)
        for place, data in reader.batches():
            unchanged = self._records.get(place.mark)
            if unchanged is not None:
                # By its checksum it holds what its leader appended.
                left.update([(record.offset, record.key) for record in unchanged])
                continue
            for record in RecordBatch(data, 0, place.size_bytes).records():
                expected = before.get(record.offset)
                if expected is None or (record.key, record.value) != (expected.key, expected.value):
                    return f"offset {record.offset} holds {record.value!r}, which was not written there"
                left[record.offset] = record.key
        removed_before = self._removed.get(broker, frozenset())
        end = reader.places[-1].mark.next_offset if reader.places else start
        # What it had removed behind the last batch that is left is not in `before`.
        last_base_offset = reader.last_base_offset()
        behind = {offset for offset in removed_before if end <= offset < last_base_offset}
        removed = self._removed[broker] = frozenset(before).difference(left) | behind
        gone: dict[int, Record] = {}
        for offset, record in before.items():
            is_missing = offset not in left and last_of_key[record.key] == offset >= since
            if is_missing and not (
                self._is_superseded(record.key, end, told) or self._was_superseded(record, excused)
            ):
                if not self._may_be_gone(record):
                    return f"the last value of key {record.key!r}, at offset {offset}, was deleted"
                gone[offset] = record
        if ended is None:
            return None
        early = self.tombstones.gone_too_early(gone, ended)
        fresh = {offset: before[offset] for offset in sorted(removed - removed_before)}
        lost = self._lost_committed(before, fresh, excused)
        return moved or early or lost or _superseded_left(left, ended)

    def _lost_committed(
        self, before: Mapping[int, Record], fresh: Mapping[int, Record], excused: Collection[Mark]
    ) -> str | None:
        """Returns which of the `fresh` removals took the last committed value of a key, or None (KAFKA-13194).

        What was committed and lost since with an excuse counts as committed: the broker may not know of the loss yet.
        """
        committed_end = self._truth.end
        last_of_key = {record.key: offset for offset, record in before.items() if offset < committed_end}
        suspects = [
            record
            for offset, record in fresh.items()
            if last_of_key.get(record.key) == offset
            and not self._was_superseded(record, excused)
            and not self._may_be_gone(record)
        ]
        if not suspects:
            return None
        later = self.content(self._truth.between(suspects[0].offset, committed_end))
        last_later = {record.key: offset for offset, record in later.items()}
        for lost in suspects:
            if last_later.get(lost.key, -1) <= lost.offset:
                return (
                    f"the last committed value of key {lost.key!r}, at offset {lost.offset}, was deleted; the "
                    f"committed log ends at {committed_end}"
                )
        return None

    def _look_at_horizons(
        self, broker: int, reader: LogReader, told: Sequence[Chain], ended: Round | None
    ) -> str | None:
        """Remember when tombstones may go. Returns what is wrong with these times, or None."""
        again = (
            (self.original(place.mark, told), RecordBatch(data, 0, place.size_bytes))
            for place, data in reader.batches()
            if not place.mark.is_dense
        )
        return self.tombstones.look(broker, again, ended)

    def _may_be_gone(self, record: Record) -> bool:
        """Whether it is a tombstone whose time may have come (CL16)."""
        return record.value is None and not self.keeps_tombstones

    def _is_superseded(self, key: bytes | None, end: int, told: Sequence[Chain]) -> bool:
        """Whether the committed log, or another replica's, has a record of the key at `end` or later.

        A follower that is behind copies what its leader has compacted, and gets that record later.
        """
        return any(
            record.key == key
            for chain in self._sources(told)
            for record in self.content(chain.between(end, chain.end)).values()
        )

    def _was_superseded(self, record: Record, excused: Collection[Mark]) -> bool:
        """Whether a later record of the key was committed and is lost since, after an unclean election for example.

        A log that was compacted before it was cut has lost both.
        """
        # Not by `content`: of batches that were lost at one offset in two epochs it knows the last only.
        return any(
            later.key == record.key and later.offset > record.offset
            for mark in excused
            for later in self._records.get(self.original(mark), ())
        )


def _superseded_left(left: Mapping[int, bytes | None], ended: Round) -> str | None:
    """Returns which record that a round has left, each with its key, a later one of its supersedes, or None (CL15).

    `left` is in the order of offsets. Records that a leader's compaction took before are in no offset map.
    """
    last_of_key: dict[bytes | None, int] = {}
    for offset, key in left.items():
        if offset >= ended.end:
            break
        if offset < ended.start:
            continue
        if (earlier := last_of_key.get(key)) is not None:
            superseded = f"key {key!r} at offset {earlier}, which offset {offset} supersedes"
            return f"compaction up to {ended.end} left {superseded}"
        last_of_key[key] = offset
    return None


def _offsets_left(reader: LogReader) -> set[int]:
    """Returns the offsets of the records that a log has."""
    return {
        record.offset
        for place, data in reader.batches()
        for record in RecordBatch(data, 0, place.size_bytes).records()
    }


def _fills(marks: Sequence[Mark], start: int, end: int, epoch: int | None) -> bool:
    """Whether these batches go from `start` to `end` (exclusive) in epochs that may come before `epoch`."""
    if not marks or marks[0].base_offset != start or marks[-1].next_offset != end:
        return False
    return epoch is None or marks[-1].epoch <= epoch
