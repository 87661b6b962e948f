"""A partition log against a list of batches: any verbs, in any order, with crashes inside any call of the disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sim.disk import PowerLoss, SimDisk
from sim.disk.life import Dead, Life
from storage.batch import iterate_batches
from storage.config import LogConfig
from storage.draws import Draws
from storage.log import Isolation, PartitionLog
from tests.storage.logs import DIRECTORY, NOW_MS, batch, produced
from tests.storage.machines import SWEEP, assert_machine_holds

CONFIG = LogConfig(segment_bytes=700, segment_index_bytes=240, index_interval_bytes=120)
POWER_LOSSES: list[PowerLoss] = ["none", "prefix", "subset", "torn", "all"]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of the model."""

    base_offset: int
    next_offset: int
    epoch: int
    data: bytes


def batches_of(data: bytes) -> list[Batch]:
    return [
        Batch(each.base_offset, each.next_offset, each.partition_leader_epoch, each.tobytes())
        for each in iterate_batches(data)
    ]


def is_prefix(shorter: list[Batch], longer: list[Batch]) -> bool:
    return longer[: len(shorter)] == shorter


@final
class LogMachine(RuleBasedStateMachine):
    """A log, and its model: the list of batches, the log end, and the offset up to which a flush promised them."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk(Draws(0), lambda: NOW_MS)
        self.model: list[Batch] = []
        self.end = 0
        self.start = 0
        self.epoch = 0
        # A power loss takes nothing below this offset.
        self.flushed = 0
        # The recovery point for the next start.
        self.checkpoint = 0
        self.value = 0
        self.log: PartitionLog

    @initialize(seed=st.integers(0, 1 << 32))
    def begin(self, seed: int) -> None:
        self.disk = SimDisk(Draws(seed), lambda: NOW_MS)
        file_system = self.disk.file_system(Life())
        file_system.make_directory(DIRECTORY)
        file_system.sync_directory("logs")
        file_system.sync_directory("")
        self.open(clean=False)

    def open(self, *, clean: bool) -> None:
        self.log = PartitionLog.open(
            self.disk.file_system(Life()),
            DIRECTORY,
            CONFIG,
            log_start_offset=self.start,
            recovery_point=self.checkpoint,
            clean=clean,
            now_ms=NOW_MS,
            write_lowered_offsets=self._lower_checkpoint,
        )

    def _lower_checkpoint(self) -> None:
        self.checkpoint = min(self.checkpoint, self.log.local.recovery_point)

    # Verbs

    def _next_value_bytes(self, size: int) -> int:
        self.value += 1
        return size + self.value % 7

    @rule(count=st.integers(1, 4), size=st.integers(0, 60))
    def append_as_leader(self, count: int, size: int) -> None:
        data = produced(count, value_bytes=self._next_value_bytes(size), timestamp=NOW_MS + self.value)
        info = self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=NOW_MS)
        assert (info.first_offset, info.last_offset) == (self.end, self.end + count - 1)
        self._note_append()

    @rule(gap=st.integers(0, 3), counts=st.lists(st.integers(1, 3), min_size=1, max_size=4))
    def append_as_follower(self, gap: int, counts: list[int]) -> None:
        data = self._fetched(gap, counts)
        self.log.append_as_follower(data, leader_epoch=self.epoch, now_ms=NOW_MS)
        self._note_append()

    def _fetched(self, gap: int, counts: list[int]) -> bytes:
        offset, parts = self.end + gap, []
        for count in counts:
            size = self._next_value_bytes(10)
            parts.append(
                batch(offset, count, epoch=self.epoch, value_bytes=size, timestamp=NOW_MS + self.value)
            )
            offset += count
        return b"".join(parts)

    def _note_append(self) -> None:
        self.model = self._stored()
        self.end = self.log.log_end_offset
        self.flushed = max(self.flushed, self.log.local.recovery_point)

    def _stored(self) -> list[Batch]:
        found: list[Batch] = []
        for segment in self.log.local.segments:
            found += batches_of(segment.records.read_slice(0, segment.size_bytes))
        return found

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1
        self.log.appends.assign_epoch(self.epoch)

    @rule()
    def roll(self) -> None:
        self.log.flushes.roll(now_ms=NOW_MS)
        self.flushed = max(self.flushed, self.log.local.recovery_point)

    @rule()
    def flush(self) -> None:
        self.log.flushes.flush()
        self.flushed = self.end

    @rule()
    def write_checkpoint(self) -> None:
        self.checkpoint = self.log.local.recovery_point

    @rule(back=st.integers(-2, 12))
    def truncate(self, back: int) -> None:
        offset = max(self.end - back, 0)
        changed = self.log.truncate_to(offset, now_ms=NOW_MS)
        assert changed == (offset < self.end)
        if changed:
            self._note_truncation(offset)

    def _note_truncation(self, offset: int) -> None:
        self.model = [each for each in self.model if each.next_offset <= offset]
        self.end = offset
        self.start = min(self.start, offset)
        self.flushed = min(self.flushed, offset)

    @rule(ahead=st.integers(-5, 5))
    def truncate_fully(self, ahead: int) -> None:
        offset = max(self.end + ahead, 0)
        self.log.truncation.truncate_fully_and_start_at(offset, now_ms=NOW_MS)
        self.model, self.end, self.start, self.flushed = [], offset, offset, 0
        self.checkpoint = min(self.checkpoint, self.log.local.recovery_point)

    @rule(back=st.integers(0, 6))
    def move_high_watermark(self, back: int) -> None:
        self.log.marks.update_high_watermark(max(self.end - back, 0))

    # Reads

    @rule(back=st.integers(0, 40), size=st.integers(0, 400))
    def read(self, back: int, size: int) -> None:
        offset = max(self.end - back, self.start)
        data = self.log.read(offset, max_size=size)
        expected = b"".join(each.data for each in self.model if each.next_offset > offset)
        assert expected.startswith(data.records)
        first = next((each for each in self.model if each.next_offset > offset), None)
        if first is not None:
            assert len(data.records) >= len(first.data)

    @rule(back=st.integers(0, 20))
    def read_committed(self, back: int) -> None:
        offset = max(self.end - back, self.start)
        data = self.log.read(offset, max_size=10_000, isolation=Isolation.HIGH_WATERMARK)
        assert all(each.next_offset <= self.log.high_watermark for each in batches_of(data.records))

    # Ends and beginnings

    @rule()
    def stop_in_order_and_start(self) -> None:
        self.log.close()
        self.open(clean=True)
        assert self._stored() == self.model
        self._take_over()
        self.flushed = self.checkpoint = self.end

    @rule()
    def crash_and_start(self) -> None:
        self.disk.crash_process()
        self.open(clean=False)
        # The page cache survived.
        assert self._stored() == self.model
        self._take_over()

    @rule(mode=st.sampled_from(POWER_LOSSES))
    def lose_power_and_start(self, mode: PowerLoss) -> None:
        self._restart_after_loss(self.model, self.model, self.flushed, mode)

    @rule(
        verb=st.sampled_from(["append", "truncate", "roll", "flush", "close", "full"]),
        call=st.integers(1, 25),
        argument=st.integers(0, 10),
        mode=st.sampled_from([None, *POWER_LOSSES]),
    )
    def crash_inside_a_call(self, verb: str, call: int, argument: int, mode: PowerLoss | None) -> None:
        before, flushed, start = self.model, self.flushed, self.start
        after, target = list(before), max(self.end - argument, 0)
        data = self._fetched(0, [1 + argument % 3, 2])
        if verb == "append":
            after = before + batches_of(data)
        elif verb == "truncate":
            after = [each for each in before if each.next_offset <= target]
            flushed = min(flushed, target)
        elif verb == "full":
            after, flushed = [], 0
        self.disk.arm_crash(call)
        try:
            self._do(verb, data, target)
        except Dead:
            pass
        else:
            self.disk.disarm()
            self.disk.crash_process()
        # The leader moved the log start on; the checkpoint may have it or not.
        if verb == "full":
            self.start = min(start, target)
        self._restart_after_loss(before, after, flushed, mode)

    def _do(self, verb: str, data: bytes, target: int) -> None:
        if verb == "append":
            self.log.append_as_follower(data, leader_epoch=self.epoch, now_ms=NOW_MS)
        elif verb == "truncate":
            self.log.truncate_to(target, now_ms=NOW_MS)
        elif verb == "roll":
            self.log.flushes.roll(now_ms=NOW_MS)
        elif verb == "flush":
            self.log.flushes.flush()
        elif verb == "close":
            self.log.close()
        else:
            self.log.truncation.truncate_fully_and_start_at(target, now_ms=NOW_MS)

    def _restart_after_loss(
        self, before: list[Batch], after: list[Batch], flushed: int, mode: PowerLoss | None
    ) -> None:
        """Start after the loss, killed once or twice, then start again and check that what it finds was there."""
        if mode is None:
            self.disk.crash_process()
        else:
            self.disk.lose_power(mode)
        for call in (3, 11):
            self.disk.arm_crash(call)
            try:
                self.open(clean=False)
            except Dead:
                pass
            self.disk.disarm()
            self.disk.crash_process()
        self.open(clean=False)
        found = self._stored()
        whole = after if is_prefix(before, after) else before
        assert is_prefix(found, whole), (found, whole)
        kept = [each for each in after if each.next_offset <= flushed]
        assert is_prefix(kept, found), (kept, found)
        if mode is None:
            assert is_prefix(after if len(after) < len(before) else before, found) or not after
        self._take_over()

    def _take_over(self) -> None:
        self.model = self._stored()
        self.end = self.log.log_end_offset
        self.start = self.log.log_start_offset
        self.flushed = min(self.flushed, self.end)
        self.checkpoint = min(self.checkpoint, self.log.local.recovery_point)
        self.epoch = max(self.epoch, self.log.epochs.latest_epoch or 0)

    # What always holds

    @invariant()
    @precondition(lambda self: hasattr(self, "log"))
    def the_log_is_the_model(self) -> None:
        log = self.log
        assert log.log_end_offset == self.end
        assert self._stored() == self.model
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.local.recovery_point <= log.log_end_offset
        assert log.local.log_end.segment_base_offset == log.local.segments.active.base_offset
        assert log.local.log_end.position == log.local.segments.active.size_bytes
        assert log.local.segments.size_bytes == sum(each.size_bytes for each in log.local.segments)

    @invariant()
    @precondition(lambda self: hasattr(self, "log"))
    def offsets_strictly_increase(self) -> None:
        ends = [0]
        for each in self.model:
            assert each.base_offset >= ends[-1] and each.next_offset > each.base_offset
            ends.append(each.next_offset)

    @invariant()
    @precondition(lambda self: hasattr(self, "log"))
    def indexes_agree_with_the_log(self) -> None:
        for segment in self.log.local.segments:
            places = {}
            position = 0
            for each in batches_of(segment.records.read_slice(0, segment.size_bytes)):
                places[position] = each
                position += len(each.data)
            index = segment.offset_index
            for slot in range(index.entries):
                entry = index.entry(slot)
                assert entry.position in places, (segment, entry)
                earlier = [each for at, each in places.items() if at < entry.position]
                assert places[entry.position].base_offset <= entry.offset
                assert all(each.next_offset <= entry.offset for each in earlier)

    @invariant()
    @precondition(lambda self: hasattr(self, "log"))
    def epochs_agree_with_the_batches(self) -> None:
        for each in self.model:
            assert self.log.epochs.epoch_for_offset(each.base_offset) == each.epoch


TestLogMachine = pytest.mark.slow(LogMachine.TestCase)
TestLogMachine.settings = SWEEP


def test_a_few_lives_of_a_log() -> None:
    """The same machine, short enough for every run."""
    assert_machine_holds(LogMachine, examples=6)
