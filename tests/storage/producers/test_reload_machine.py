"""A log that truncates in slices against one that does it in one step: any appends, in any order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from storage.config import LogConfig
from storage.errors import StorageError
from storage.log import PartitionLog
from tests.storage.log.appends import end_transaction
from tests.storage.logs import NOW_MS, append_each, new_file_system, open_log
from tests.storage.machines import SWEEP, assert_machine_holds
from tests.storage.producers.producer_logs import send
from tests.storage.producers.reloads import prepare_all, state_of

CONFIG = LogConfig(segment_bytes=1500, segment_index_bytes=1200, index_interval_bytes=300)
PRODUCERS = st.integers(1, 4)
EXPIRATION_MS = 86_400_000


@final
class ReloadMachine(RuleBasedStateMachine):
    """Two logs that get the same calls; only the first one prepares its truncations and writes snapshots in jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.logs = [open_log(new_file_system(), CONFIG, recalls_batches=True) for _ in range(2)]
        self.sliced, self.plain = self.logs
        self.sliced.truncation.batches_a_slice = 3
        self.sliced.flushes.most_in_a_roll = 2
        self.now_ms = NOW_MS

    def both(self) -> Iterator[PartitionLog]:
        """Each log, for one call; the job of the first one is done at once, so that both have the same snapshots."""
        for log in self.logs:
            yield log
            job = log.flushes.begin_snapshot()
            if job is not None:
                job()
                log.flushes.snapshot_done()

    @rule(
        pid=PRODUCERS,
        count=st.integers(1, 3),
        batches=st.integers(1, 7),
        bump=st.integers(0, 9),
        is_transactional=st.booleans(),
    )
    def append(self, pid: int, count: int, batches: int, bump: int, is_transactional: bool) -> None:
        for _ in range(batches):
            entry = self.plain.producers.last_entry(pid)
            epoch = max(0, entry.producer_epoch) if entry is not None else 0
            sequence = entry.last_sequence + 1 if entry is not None else 0
            if entry is not None and entry.transaction_first_offset is not None:
                is_transactional = True
            if bump == 0:
                epoch, sequence, bump = epoch + 1, 0, 1
            for log in self.both():
                send(
                    log,
                    sequence,
                    count,
                    pid=pid,
                    epoch=epoch,
                    is_transactional=is_transactional,
                    timestamp=self.now_ms,
                    now_ms=self.now_ms,
                )

    @rule(batches=st.integers(1, 5))
    def append_without_a_producer(self, batches: int) -> None:
        for log in self.both():
            append_each(log, batches)

    @rule(pid=PRODUCERS, is_commit=st.booleans(), coordinator_epoch=st.integers(0, 2))
    def end(self, pid: int, is_commit: bool, coordinator_epoch: int) -> None:
        entry = self.plain.producers.last_entry(pid)
        epoch = max(0, entry.producer_epoch) if entry is not None else 0
        refused = []
        for log in self.both():
            try:
                end_transaction(
                    log, pid, is_commit=is_commit, producer_epoch=epoch, coordinator_epoch=coordinator_epoch
                )
            except StorageError as error:
                refused.append(str(error))
        assert refused in ([], [refused[0]] * 2 if refused else [])

    @rule()
    def roll(self) -> None:
        for log in self.both():
            log.flushes.roll(now_ms=self.now_ms)

    @rule(part=st.floats(0, 1))
    def replicate(self, part: float) -> None:
        for log in self.both():
            log.marks.update_high_watermark(int(log.log_end_offset * part))

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        for log in self.both():
            log.marks.maybe_increment_log_start_offset(int(log.high_watermark * part))

    @rule(age_ms=st.sampled_from([1000, EXPIRATION_MS // 2]))
    def expire(self, age_ms: int) -> None:
        self.now_ms += age_ms
        for log in self.both():
            log.producers.remove_expired(self.now_ms)

    @rule(cut=st.integers(1, 12), given_up=st.booleans())
    def truncate(self, cut: int, given_up: bool) -> None:
        offset = max(0, self.plain.log_end_offset - cut)
        before = state_of(self.sliced)
        if given_up:
            self.sliced.truncation.prepare(max(0, offset - 1), now_ms=self.now_ms)
        prepare_all(self.sliced, offset, now_ms=self.now_ms)
        assert state_of(self.sliced) == before
        for log in self.both():
            log.truncate_to(offset, now_ms=self.now_ms)

    @rule(part=st.floats(0, 1))
    def truncate_far(self, part: float) -> None:
        self.truncate(max(1, int(self.plain.log_end_offset * part)), given_up=False)

    @invariant()
    def both_know_the_same(self) -> None:
        assert state_of(self.sliced) == state_of(self.plain)
        assert self.sliced.marks.last_stable_offset == self.plain.marks.last_stable_offset

    def teardown(self) -> None:
        for log in self.logs:
            log.close_handles()


TestReloadMachine = pytest.mark.slow(ReloadMachine.TestCase)
TestReloadMachine.settings = SWEEP


def test_ps24_a_few_truncations_in_slices_equal_those_in_one_step() -> None:
    """The same machine, short enough for every run."""
    assert_machine_holds(ReloadMachine, examples=4)
