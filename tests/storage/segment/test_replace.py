"""The crash-safe swap of segments. Kafka: LocalLog.replaceSegments; rules LL28 and LL29."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sim.disk import SimDisk, SimFileSystem
from sim.disk.faults import Applied
from sim.disk.life import Dead, Life
from storage.disk.filesystem import join
from storage.log import PartitionLog
from storage.segment import LogSegment
from storage.segment.replace import replace_segments
from storage.segment.segments import LogSegments
from tests.storage.logs import (
    DIRECTORY,
    THREE,
    new_disk,
    new_file_system,
    offsets_in,
    open_log,
    open_segment,
    read_offsets,
)
from tests.storage.segment.swapped_segments import OLD, cleaned, old_log


def compact_into_one(file_system: SimFileSystem, log: PartitionLog) -> None:
    old = [segment for segment in log.local.segments if segment.base_offset < 9]
    new = [cleaned(file_system, 0, [2, 5, 8])]
    replace_segments(file_system, DIRECTORY, log.local.segments, new, old)


def split_into_three(file_system: SimFileSystem, log: PartitionLog) -> None:
    """Swap one old segment for several new ones, as a split does. Their bytes differ, so that a mixture shows."""
    old = [segment for segment in log.local.segments if segment.base_offset == 3]
    new = [cleaned(file_system, base, [base]) for base in (3, 4, 5)]
    new[2].append(5, b"")
    replace_segments(file_system, DIRECTORY, log.local.segments, new, old)


def names(file_system: SimFileSystem) -> list[str]:
    return [name for name in file_system.list(DIRECTORY) if ".log" in name]


def test_ll28_new_segments_take_the_place_of_old_ones() -> None:
    file_system = new_file_system()
    log = old_log(file_system)
    first = log.local.segments.first
    compact_into_one(file_system, log)
    assert log.local.segments.base_offsets == [0, 9] and log.local.segments.first is not first
    assert names(file_system) == [f"{0:020d}.log", f"{9:020d}.log"]
    assert not [name for name in file_system.list(DIRECTORY) if name.endswith((".swap", ".cleaned"))]
    assert read_offsets(log) == [2, 5, 8, 9, 10, 11]


def test_ll28_returns_the_old_segments_without_a_new_one_at_their_base() -> None:
    file_system = new_file_system()
    log = old_log(file_system)
    old = [segment for segment in log.local.segments if segment.base_offset < 9]
    gone = replace_segments(
        file_system, DIRECTORY, log.local.segments, [cleaned(file_system, 0, [2, 5, 8])], old
    )
    assert [segment.base_offset for segment in gone] == [3, 6]


def test_ll28_old_segments_are_readable_under_their_deleted_names_until_the_caller_deletes_them() -> None:
    file_system = new_file_system()
    log = old_log(file_system)
    old = [segment for segment in log.local.segments if segment.base_offset < 9]
    doomed: list[LogSegment] = []
    new = [cleaned(file_system, 0, [2])]
    replace_segments(file_system, DIRECTORY, log.local.segments, new, old, delete=doomed.append)
    assert doomed == old
    assert [segment.path for segment in doomed] == [
        join(DIRECTORY, f"{base:020d}.log.deleted") for base in (0, 3, 6)
    ]
    assert offsets_in(doomed[1].records.read_slice(0, doomed[1].size_bytes)) == [3, 4, 5]
    for segment in doomed:
        segment.delete()
    assert not [name for name in file_system.list(DIRECTORY) if name.endswith(".deleted")]


def test_kafka_7278_an_old_segment_that_left_the_map_is_not_deleted_again() -> None:
    file_system = new_file_system()
    log = old_log(file_system)
    old = [segment for segment in log.local.segments if segment.base_offset < 9]
    # Retention was faster.
    log.local.segments.remove(0)
    old[0].delete()
    doomed: list[LogSegment] = []
    new = [cleaned(file_system, 0, [5])]
    gone = replace_segments(file_system, DIRECTORY, log.local.segments, new, old, delete=doomed.append)
    assert doomed == gone == old[1:] and log.local.segments.base_offsets == [0, 9]


def test_ll28_a_recovered_swap_is_taken_over_under_its_swap_names() -> None:
    file_system = new_file_system()
    log = old_log(file_system)
    old = [segment for segment in log.local.segments if segment.base_offset == 3]
    new = cleaned(file_system, 3, [4])
    new.change_file_suffixes(".cleaned", ".swap")
    replace_segments(file_system, DIRECTORY, log.local.segments, [new], old, is_recovered_swap=True)
    assert log.local.segments.get(3) is new and new.path == join(DIRECTORY, f"{3:020d}.log")


def test_t54_the_swap_names_come_from_the_highest_base_down_and_go_from_the_lowest_up() -> None:
    renames: list[tuple[str, str]] = []

    class Recorded:
        """A disk that writes down its renames of `.log` files."""

        def __init__(self, file_system: SimFileSystem) -> None:
            self._file_system = file_system

        def rename(self, old: str, new: str) -> None:
            if ".log" in old:
                renames.append((old.rsplit("/", 1)[-1].lstrip("0"), new.rsplit("/", 1)[-1].lstrip("0")))
            self._file_system.rename(old, new)

        def __getattr__(self, name: str) -> object:
            return getattr(self._file_system, name)

    plain = new_file_system()
    old_log(plain).close()
    recorded: SimFileSystem = Recorded(plain)  # type: ignore[assignment]
    segments = LogSegments()
    segments.add(open_segment(recorded, 3, THREE, file_already_exists=True))
    new = [cleaned(recorded, base, [base]) for base in (4, 3, 5)]
    replace_segments(recorded, DIRECTORY, segments, new, list(segments))
    assert renames == [
        ("5.log.cleaned", "5.log.swap"),
        ("4.log.cleaned", "4.log.swap"),
        ("3.log.cleaned", "3.log.swap"),
        ("3.log", "3.log.deleted"),
        ("3.log.swap", "3.log"),
        ("4.log.swap", "4.log"),
        ("5.log.swap", "5.log"),
    ]


def survivor_sets(pending: list[int]) -> Iterator[list[int]]:
    """Yield sets of changes that a power loss may keep: every prefix, all but one, one alone, every second one."""
    yield from (pending[:count] for count in range(len(pending) + 1))
    for index, one in enumerate(pending):
        yield pending[:index] + pending[index + 1 :]
        yield [one]
    yield pending[::2]
    yield pending[1::2]


@pytest.mark.covers(
    "LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase1",
    "LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase2",
    "LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase3",
    "LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase4",
    "LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase5",
)
@pytest.mark.parametrize(
    ("change", "after"), [(compact_into_one, [2, 5, 8, 9, 10, 11]), (split_into_three, OLD)]
)
def test_ll29_a_crash_at_any_renaming_leaves_the_old_segments_or_the_new_ones(
    change: Callable[[SimFileSystem, PartitionLog], None], after: list[int]
) -> None:
    """Each phase of a swap is tried, as the page cache has it: names change in the order of the calls."""
    call, outcomes = 0, set()
    disk = new_disk()
    old_log(new_file_system(disk)).close()
    while True:
        call += 1
        twin = disk.snapshot()
        file_system = twin.file_system(Life())
        log = open_log(file_system, THREE, clean=True)
        twin.arm_crash(call, applied=Applied.ALL, verbs={"rename", "unlink"})
        try:
            change(file_system, log)
        except Dead:
            pass
        else:
            break
        twin.crash_process()
        outcomes.add(tuple(reloaded(twin)))
    assert outcomes == {tuple(OLD), tuple(after)} and call > 10, call


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "after"),
    [(compact_into_one, [2, 5, 8, 9, 10, 11]), (split_into_three, OLD)],
)
def test_ll29_a_power_loss_at_any_call_leaves_the_old_segments_or_the_new_ones(
    change: Callable[[SimFileSystem, PartitionLog], None], after: list[int]
) -> None:
    """Any set of the names that were not synced may survive, also while the start finishes the swap."""
    call, tried, outcomes = 0, 0, set()
    while True:
        call += 1
        disk = new_disk()
        file_system = new_file_system(disk)
        log = old_log(file_system)
        disk.arm_crash(call)
        try:
            change(file_system, log)
        except Dead:
            pass
        else:
            break
        for kept in survivor_sets(disk.pending_sequences()):
            twin = disk.snapshot()
            twin.lose_power_keeping(kept)
            outcomes.add(tuple(reloaded(twin)))
            tried += 1
    assert outcomes == {tuple(OLD), tuple(after)} and call > 10 and tried > 200, (call, tried)


def reloaded(disk: SimDisk) -> list[int]:
    """Return the offsets that a start finds. The log was flushed, so recovery walks the active segment alone."""
    disk.disarm()
    log = open_log(disk.file_system(Life()), THREE, recovery_point=len(OLD))
    found = read_offsets(log, 0)
    log.close_handles()
    return found
