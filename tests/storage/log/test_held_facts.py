"""What a log holds in memory against its files, after any verbs in any order, with descriptors that run out.

`test_log_machine.py` judges which batches survive; here the judge is of what is known about them: greatest timestamps,
index entries, sizes, epochs, producers, snapshots.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from functools import partial
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

from sim.disk.life import Life
from storage.batch import Record, build_batch
from storage.cleaner.plan import CleanerConfig
from storage.config import LogConfig
from storage.errors import StorageError
from storage.log import PartitionLog
from tests.storage.log.file_facts import check_log
from tests.storage.logs import NOW_MS, durable_file_system, new_disk, open_log
from tests.storage.machines import SWEEP, assert_machine_holds

CONFIG = LogConfig(
    segment_bytes=700, segment_index_bytes=60, index_interval_bytes=80, cleanup_policy="compact,delete"
)
# Offsets from a point in time, in the order of nothing.
TIMES = st.integers(0, 9)
PRODUCERS = st.integers(-1, 2)


@final
class HeldFacts(RuleBasedStateMachine):
    """A log, and which of its segments Kafka's rules let hold a timestamp that is too low."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = new_disk()
        self.file_system = durable_file_system(self.disk)
        self.config = CONFIG
        self.epoch = 0
        # At which call for which files the next change finds no descriptor; 0 for none.
        self.lack_at, self.lack_of = 0, ""
        # The base offsets of segments that were cut in this life, or in an earlier one, before a look at their times.
        self.cut_unseen: set[int] = set()
        self.untimed: set[int] = set()
        self.log: PartitionLog

    @initialize()
    def begin(self) -> None:
        self.log = open_log(self.file_system, self.config)

    # Appends

    def batch(self, base_offset: int, times: list[int], producer_id: int = -1, sequence: int = -1) -> bytes:
        records = [
            Record(base_offset + place, NOW_MS + at, b"%d" % (at % 4), b"v" * (10 + at))
            for place, at in enumerate(times)
        ]
        return build_batch(
            records,
            base_offset=base_offset,
            partition_leader_epoch=self.epoch,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=sequence,
        )

    @rule(times=st.lists(TIMES, min_size=1, max_size=3), producer_id=PRODUCERS)
    def lead(self, times: list[int], producer_id: int) -> None:
        sequence = -1 if producer_id < 0 else self.next_sequence(producer_id)
        data = self.batch(0, times, producer_id, sequence)
        self.attempt(lambda: self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=NOW_MS))

    def next_sequence(self, producer_id: int) -> int:
        entry = self.log.producers.producers.get(producer_id)
        return 0 if entry is None or entry.last_sequence < 0 else entry.last_sequence + 1

    @rule(gap=st.integers(0, 3), times=st.lists(TIMES, min_size=1, max_size=12))
    def follow(self, gap: int, times: list[int]) -> None:
        start = self.log.log_end_offset + gap
        data = b"".join(self.batch(start + number, [at]) for number, at in enumerate(times))
        append = partial(self.log.append_as_follower, leader_epoch=self.epoch, now_ms=NOW_MS)
        self.attempt(lambda: append(data, may_exceed_segment=True))

    @rule()
    def begin_an_epoch(self) -> None:
        self.epoch += 1
        self.attempt(lambda: self.log.appends.assign_epoch(self.epoch))

    # Changes

    @rule()
    def roll(self) -> None:
        self.attempt(lambda: self.log.flushes.roll(now_ms=NOW_MS))

    @rule()
    def flush(self) -> None:
        self.attempt(self.log.flushes.flush)

    @rule(back=st.integers(0, 15), in_slices=st.booleans())
    def truncate(self, back: int, in_slices: bool) -> None:
        log, offset = self.log, max(self.log.log_end_offset - back, 0)
        segment = log.local.segments.floor(offset)
        is_cut = segment is not None and segment.base_offset < offset < log.log_end_offset
        if segment is not None and is_cut and not segment.is_max_timestamp_known:
            self.cut_unseen.add(segment.base_offset)
        if in_slices:
            log.truncation.batches_a_slice = 1
            while not log.truncation.prepare(offset, now_ms=NOW_MS):
                pass
        self.attempt(lambda: log.truncate_to(offset, now_ms=NOW_MS))

    @precondition(lambda self: self.log.log_end_offset % 4 == 3)
    @rule(ahead=st.integers(-4, 4))
    def truncate_fully(self, ahead: int) -> None:
        offset = max(self.log.log_end_offset + ahead, 0)
        self.attempt(lambda: self.log.truncation.truncate_fully_and_start_at(offset, now_ms=NOW_MS))
        self.forget_segments()

    @rule(back=st.integers(0, 6))
    def move_high_watermark(self, back: int) -> None:
        self.log.marks.update_high_watermark(max(self.log.log_end_offset - back, 0))

    @rule(ahead=st.integers(0, 8))
    def move_log_start(self, ahead: int) -> None:
        offset = min(self.log.log_start_offset + ahead, self.log.high_watermark)
        self.attempt(lambda: self.log.marks.maybe_increment_log_start_offset(offset))

    @rule()
    def retain(self) -> None:
        self.attempt(lambda: self.log.retention.delete_old(NOW_MS))

    @rule()
    def compact(self) -> None:
        offsets = self.log.compactions.cleanable_offsets(None, NOW_MS)
        # Nothing is dirty, or no whole segment.
        if not self.log.compactions.log_to_clean(offsets, NOW_MS).cleanable_bytes:
            return
        round_of_work = self.log.compactions.prepare(offsets, CleanerConfig(dedupe_buffer_bytes=4096), NOW_MS)
        for work in round_of_work:
            work()
        # A segment that was written again has looked at each batch.
        active = self.log.local.segments.active.base_offset
        self.cut_unseen &= {active}
        self.untimed &= {active}

    @rule(
        segment_bytes=st.sampled_from([300, 1500, 5000]),
        index_bytes=st.sampled_from([24, 48, 60, 240]),
        interval=st.sampled_from([0, 0, 80, 300]),
        retention_bytes=st.sampled_from([-1, 400]),
    )
    def configure(self, segment_bytes: int, index_bytes: int, interval: int, retention_bytes: int) -> None:
        self.config = replace(
            CONFIG,
            segment_bytes=segment_bytes,
            segment_index_bytes=index_bytes,
            index_interval_bytes=interval,
            retention_bytes=retention_bytes,
        )
        self.log.update_config(self.config)

    @rule(call=st.integers(1, 6), suffix=st.sampled_from([".log", "index", "checkpoint"]))
    def run_out_of_descriptors(self, call: int, suffix: str) -> None:
        """The next change finds none at its `call`-th call for a file of that kind, which may rest."""
        self.lack_at, self.lack_of = call, suffix

    # Ends and beginnings

    def attempt(self, change: Callable[[], object]) -> None:
        """Make a change, which may be refused; a log that goes offline by it is opened again."""
        if self.lack_at:
            self.disk.fail(self.lack_at, errno.EMFILE, path_suffix=self.lack_of)
        self.lack_at = 0
        try:
            change()
        except StorageError:
            pass
        self.disk.disarm()
        if self.log.online.reason is not None:
            self.crash_and_start()

    @rule()
    def stop_in_order_and_start(self) -> None:
        self.log.close()
        self.start(clean=True)

    @rule()
    def crash_and_start(self) -> None:
        self.disk.crash_process()
        self.start(clean=False)

    @rule(
        times=st.lists(TIMES, min_size=5, max_size=9),
        index_bytes=st.sampled_from([24, 48]),
        back=st.integers(0, 6),
    )
    def crash_and_truncate_with_smaller_indexes(self, times: list[int], index_bytes: int, back: int) -> None:
        """Recovery leaves out entries for which there is no room, and a cut follows."""
        self.follow(gap=0, times=times)
        self.config = replace(self.config, segment_index_bytes=index_bytes, index_interval_bytes=0)
        self.crash_and_start()
        self.truncate(back=back, in_slices=False)

    def start(self, *, clean: bool) -> None:
        before = self.log
        # A start may walk segments from the recovery point on, but need not walk the others.
        self.untimed |= self.cut_unseen
        self.cut_unseen = set()
        self.file_system = self.disk.file_system(Life())
        self.log = open_log(
            self.file_system,
            self.config,
            clean=clean,
            recovery_point=min(before.local.recovery_point, before.log_end_offset),
            log_start_offset=before.log_start_offset,
        )
        self.epoch = max(self.epoch, self.log.epochs.latest_epoch or 0)

    def forget_segments(self) -> None:
        self.cut_unseen, self.untimed = set(), set()

    # What always holds

    @invariant()
    @precondition(lambda self: hasattr(self, "log"))
    def the_log_holds_what_its_files_say(self) -> None:
        bases = set(self.log.local.segments.base_offsets)
        self.cut_unseen &= bases
        self.untimed &= bases
        check_log(self.log, self.cut_unseen, self.untimed)


TestHeldFacts = pytest.mark.slow(HeldFacts.TestCase)
TestHeldFacts.settings = SWEEP


def test_a_few_lives_of_what_a_log_holds() -> None:
    """The same machine, short enough for every run."""
    assert_machine_holds(HeldFacts, examples=6)
