"""Judges what the clients of a run claim: what was delivered, refused, sent in order, and read without gaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

from sim.checkers.ghost import ASTRAY, ROTTEN, Ghost
from sim.checkers.history import ONE_LIFE, FinalLog, Lives
from sim.hosts.history import History, Outcome, SendOperation, differs, shown


@final
class ClientHistoryCheck:
    """Seven rules over the whole history.

    A record that was acknowledged without an offset is in the log; with acks=0, it was in a request at least. A
    record whose send was refused, or that nobody sent, was never read, and each is read with the key, the number of
    headers and the time with which it was sent. The records of one life of an idempotent producer are in each log
    in the order of their sends, unless a log began between them, and so are the acknowledged ones of a producer
    with one request in flight. A consumer reads no offset twice unless its position moved back. It has read every
    record below its position, unless the log of a leader began after the record or had it compacted away: the log
    of a later leader, or its files, may begin before, or have it still. Of a topic that was created again it may
    have left out what is before the first record that it read. Every send has its outcome in time. Excused losses
    (see the ghost) break no rule. What Jepsen's Kafka workload has a name for begins with that name.
    """

    name = "client-history"

    def __init__(
        self, history: History, ghost: Ghost, final_logs: Mapping[str, FinalLog], lives: Lives = ONE_LIFE,
        *, log_starts: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        self._history, self._ghost, self._logs, self._lives = history, ghost, final_logs, lives
        self._log_starts = log_starts or {}
        self._sends = {send.value: send for send in history.sends}

    def findings(self, kept: Mapping[str, FinalLog]) -> Iterator[str]:
        """Yields what is wrong. `kept` has the records of each log that the compaction of every leader has left."""
        yield from self._unplaced()
        yield from self._refused_but_read()
        yield from self._out_of_order()
        yield from self._skipped(kept)
        yield from self._read_again()
        yield from self._late()

    def _unplaced(self) -> Iterator[str]:
        placed = {partition: set(log.values()) for partition, log in self._logs.items()}
        exposed = {(read.partition, read.value) for read in self._history.reads}
        for send in self._history.sends:
            if send.outcome is not Outcome.OK or send.offset >= 0:
                continue
            if send.acks == 0:
                if send.value not in self._history.handed_over:
                    yield f"{send.partition}: {shown(send.value)} was reported as delivered and was in no request"
                continue
            if not self._lives.was_acknowledged_by_present(send.partition, send.value):
                continue
            is_kept = send.value in placed.get(send.partition, set()) or send.partition in self._log_starts
            may_be_lost = send.acks == 1 and (send.partition, send.value) not in exposed
            if not is_kept and not may_be_lost and not self._has_excuse(send.partition):
                what = f"{shown(send.value)}, acknowledged without an offset, is nowhere in the log"
                yield f"lost-write: {send.partition}: {what}"

    def _has_excuse(self, partition: str) -> bool:
        """Whether any record of the partition may be lost: which offset this one had is not known."""
        name = self._ghost.partition(partition).name
        return any(excuse.partition == name for excuse in self._ghost.excuses)

    def _refused_but_read(self) -> Iterator[str]:
        for read in self._history.reads:
            send = self._sends.get(read.value)
            if send is None:
                yield f"unsent-read: {read.partition}: {read.consumer} read {shown(read.value)}, which nobody sent"
            elif send.outcome is Outcome.FAIL:
                yield f"G1a: {read.partition}: {read.consumer} read {shown(read.value)}, whose send was refused"
            elif differs(send.stamp, read.stamp):
                what = f"read {shown(read.value)} with key, headers and time {read.stamp!r}, sent as {send.stamp!r}"
                yield f"{read.partition}: {read.consumer} {what}"

    def _out_of_order(self) -> Iterator[str]:
        places = {send.value: place for place, send in enumerate(self._history.sends)}
        for partition, log in self._logs.items():
            latest: dict[tuple[str, int], tuple[int, SendOperation]] = {}
            firsts: dict[tuple[str, int], int] = {}
            ghost = self._ghost.partition(partition)
            for offset in sorted(log):
                send = self._sends.get(log[offset])
                if send is None or not self._keeps_order(send, offset):
                    continue
                at, before = latest.setdefault((send.producer, send.life), (offset, send))
                first = firsts.setdefault((send.producer, send.life), offset)
                is_late = places[send.value] < places[before.value] and not ghost.may_forget(at, offset)
                if is_late and not self._was_forgotten(partition, send, first):
                    what = f"offset {offset} holds {shown(send.value)}, sent before {shown(before.value)}"
                    yield f"nonmonotonic-send: {partition}: {what}"
                latest[send.producer, send.life] = offset, send

    def _was_forgotten(self, partition: str, late: SendOperation, first: int) -> bool:
        """Whether all replicas have lost what the partition had of the producer of `late`, and know it no more.

        Then the leader took the first batch that came, with any sequence (KIP-360). It was one of several on their way,
        so some had been acknowledged before: these are what is lost. What is left of the life begins at `first`.
        """
        name, log = self._ghost.partition(partition).name, self._logs[partition]
        losses = [
            (excuse.start, excuse.end)
            for excuse in self._ghost.excuses
            if excuse.partition == name and excuse.start <= first
        ]
        return late.is_idempotent and any(
            send.outcome is Outcome.OK
            and (send.producer, send.life, send.partition) == (late.producer, late.life, partition)
            and log.get(send.offset) != send.value
            and any(start <= send.offset < end for start, end in losses)
            for send in (self._history.sends if losses else ())
        )

    def _keeps_order(self, send: SendOperation, offset: int) -> bool:
        """Whether the record at `offset` has its place by the order of sends.

        Without idempotence a late copy of a record may follow later ones, but not the copy that was acknowledged.
        """
        is_acknowledged = send.outcome is Outcome.OK and send.offset == offset
        return send.is_idempotent or (send.is_one_at_a_time and is_acknowledged)

    def _read_again(self) -> Iterator[str]:
        for read in self._history.reads:
            # A write that landed elsewhere may have put a whole batch in the place of another one, and the offset of a
            # batch has no checksum.
            if read.offset <= read.after and not self._ghost.was_given_up(read.partition, (ASTRAY, ROTTEN)):
                what = f"{read.consumer} read offset {read.offset} after offset {read.after}"
                yield f"nonmonotonic-poll: {read.partition}: {what}"

    def _late(self) -> Iterator[str]:
        for send in self._history.sends:
            took_us = send.completed_us - send.invoked_us
            if send.outcome is not Outcome.OPEN and 0 < send.within_us < took_us:
                yield f"{send.producer} learned the fate of {shown(send.value)} after {took_us / 1e6:g} s"

    def _skipped(self, kept: Mapping[str, FinalLog]) -> Iterator[str]:
        seen: dict[tuple[str, str], set[int]] = {reader: set() for reader in self._history.positions}
        # The readers whose last record of a partition was of a topic that exists no more.
        astray: dict[tuple[str, str], None] = {}
        for read in self._history.reads:
            reader = read.consumer, read.partition
            if self._lives.was_read_from_present(read.partition, read.offset, read.value):
                seen[reader].add(read.offset)
                astray.pop(reader, None)
            else:
                astray[reader] = None
        for reader, position in self._history.positions.items():
            consumer, partition = reader
            read_offsets, start = seen[reader], self._ghost.partition(partition).leader_log_start
            if self._lives.was_deleted(partition):
                if reader in astray or not read_offsets:
                    continue
                # Its position was from the topic before until it read its first record of this one.
                start = max(start, min(read_offsets))
            log = kept.get(partition, {})
            missing = [offset for offset in sorted(log) if start <= offset < position]
            missing = [offset for offset in missing if offset not in read_offsets]
            missing = [offset for offset in missing if not self._is_excused(partition, offset)]
            if missing:
                yield (
                    f"poll-skip: {partition}: {consumer} is at {position} and has never read {len(missing)} of the "
                    f"records before it, the first at offset {missing[0]}"
                )

    def _is_excused(self, partition: str, offset: int) -> bool:
        name = self._ghost.partition(partition).name
        return any(
            excuse.partition == name and excuse.start <= offset < excuse.end for excuse in self._ghost.excuses
        )
