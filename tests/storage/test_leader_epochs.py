"""Leader epochs: rules EP1 to EP12 and Kafka's LeaderEpochFileCacheTest (reference 2.11, 3.16)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.disk.life import Dead, Life
from storage.disk.filesystem import OpenMode, read_file
from storage.errors import CorruptCheckpoint, InvalidRecord
from storage.leader_epochs import UNDEFINED, LeaderEpochCache
from tests.storage.epochs import PATH, A, cache_of, file_content
from tests.storage.producers.producers import new_disk


def test_ep1_a_file_out_of_order_is_put_right_when_loaded() -> None:
    file_system = new_disk()[1]
    file = file_system.open(PATH, OpenMode.CREATE_NEW)
    file.write_at(0, b"0\n4\n1 5\n2 6\n1 7\n3 7\n")
    file.close()
    cache = LeaderEpochCache(file_system, PATH)
    assert cache.entries == [(3, 7)]
    assert not cache.is_dirty


def test_ep1_missing_file_is_created_empty() -> None:
    assert file_content(cache_of()) == b""


@pytest.mark.covers("LeaderEpochFileCacheTest.shouldPersistEpochsBetweenInstances")
def test_ep1_entries_persist_between_instances() -> None:
    file_system = new_disk()[1]
    LeaderEpochCache(file_system, PATH).assign(2, 6)
    assert read_file(file_system, PATH) == b"0\n1\n2 6\n"
    assert LeaderEpochCache(file_system, PATH).entries == [(2, 6)]


def test_ep1_bad_file_is_refused_with_its_line() -> None:
    file_system = new_disk()[1]
    file = file_system.open(PATH, OpenMode.CREATE_NEW)
    file.write_at(0, b"0\n1\nx y\n")
    file.close()
    with pytest.raises(CorruptCheckpoint, match="line 3"):
        LeaderEpochCache(file_system, PATH)


@pytest.mark.parametrize(("epoch", "start_offset"), [(-1, 5), (0, -1), (-1, -1)])
def test_ep2_negative_epoch_or_offset_is_refused_and_changes_nothing(epoch: int, start_offset: int) -> None:
    for cache in (cache_of(), cache_of(*A)):
        before = cache.entries
        with pytest.raises(InvalidRecord):
            cache.assign(epoch, start_offset)
        assert cache.entries == before


@pytest.mark.covers(
    "LeaderEpochFileCacheTest.shouldNotUpdateEpochAndStartOffsetIfItDidNotChange",
    "LeaderEpochFileCacheTest.shouldNotOverwriteOffsetForALeaderEpochOnceItHasBeenAssigned",
)
def test_ep2_assign_says_whether_anything_changed() -> None:
    cache = cache_of()
    assert cache.assign(2, 6)
    assert not cache.assign(2, 6)
    assert not cache.assign(2, 7)
    assert cache.assign(2, 5)
    assert cache.assign(3, 5)
    assert cache.last_epoch == 3


def test_ep2_nothing_is_written_when_nothing_changes() -> None:
    disk, file_system = new_disk()
    cache = LeaderEpochCache(file_system, PATH)
    cache.assign(2, 6)
    before = disk.operations
    for offset in range(7, 50):
        cache.assign(2, offset)
    assert disk.operations == before


@pytest.mark.covers(
    "LeaderEpochFileCacheTest.shouldNotOverwriteLogEndOffsetForALeaderEpochOnceItHasBeenAssigned",
    "LeaderEpochFileCacheTest.shouldEnforceMonotonicallyIncreasingStartOffsets",
    "LeaderEpochFileCacheTest.shouldEnforceMonotonicallyIncreasingEpochs",
    "LeaderEpochFileCacheTest.shouldEnforceOffsetsIncreaseMonotonically",
    "LeaderEpochFileCacheTest.shouldTruncateIfMatchingEpochButEarlierStartingOffset",
)
@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(2, 9), (2, 10)], [(2, 9)]),  # the first start of an epoch wins
        ([(2, 9), (3, 9)], [(3, 9)]),  # no data was written in epoch 2
        ([(1, 5), (2, 6), (1, 7)], [(1, 7)]),  # epochs must rise
        ([(2, 6), (3, 5)], [(3, 5)]),  # offsets must rise
        ([(5, 11), (6, 12), (7, 13), (7, 12)], [(5, 11), (7, 12)]),  # matching epoch, earlier start
        ([(2, 6), (2, 3)], [(2, 3)]),
        ([(0, 0), (1, 0)], [(1, 0)]),
    ],
)
def test_ep3_contradicting_entries_are_dropped(
    entries: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    assert cache_of(*entries).entries == expected


@pytest.mark.covers(
    "LeaderEpochFileCacheTest.shouldAddEpochAndMessageOffsetToCache",
    "LeaderEpochFileCacheTest.shouldReturnLogEndOffsetIfLatestEpochRequested",
    "LeaderEpochFileCacheTest.shouldReturnUndefinedOffsetIfUndefinedEpochRequested",
    "LeaderEpochFileCacheTest.shouldReturnUnsupportedIfNoEpochRecorded",
    "LeaderEpochFileCacheTest.shouldReturnUnsupportedIfNoEpochRecordedAndUndefinedEpochRequested",
    "LeaderEpochFileCacheTest.shouldReturnFirstEpochIfRequestedEpochLessThanFirstEpoch",
    "LeaderEpochFileCacheTest.shouldGetFirstOffsetOfSubsequentEpochWhenOffsetRequestedForPreviousEpoch",
    "LeaderEpochFileCacheTest.shouldReturnNextAvailableEpochIfThereIsNoExactEpochForTheOneRequested",
    "LeaderEpochFileCacheTest.shouldReturnInvalidOffsetIfEpochIsRequestedWhichIsNotCurrentlyTracked",
    "LeaderEpochFileCacheTest.shouldSupportEpochsThatDoNotStartFromZero",
    "LeaderEpochFileCacheTest.shouldIncreaseAndTrackEpochsAsLeadersChangeManyTimes",
    "LeaderEpochFileCacheTest.shouldIncreaseAndTrackEpochsAsFollowerReceivesManyMessages",
    "LeaderEpochFileCacheTest.shouldFetchEndOffsetOfEmptyCache",
)
@pytest.mark.parametrize(
    ("entries", "epoch", "log_end_offset", "expected"),
    [
        ([], 0, 0, UNDEFINED),
        ([], 7, 7, UNDEFINED),
        ([], -1, 73, UNDEFINED),
        ([(2, 11), (3, 12)], -1, 13, UNDEFINED),
        ([(2, 10)], 2, 11, (2, 11)),
        ([(2, 11), (2, 12)], 2, 14, (2, 14)),
        ([(2, 100)], 3, 100, UNDEFINED),
        ([(5, 11), (6, 12), (7, 13)], 4, 15, (4, 11)),
        ([(5, 11), (6, 12), (7, 13), (7, 12)], 5, 15, (5, 12)),
        ([(5, 11), (6, 12), (7, 13), (7, 12)], 6, 15, (5, 12)),
        ([(1, 11), (1, 12), (2, 13), (2, 14), (3, 15), (3, 16)], 2, 17, (2, 15)),
        ([(0, 10), (2, 13), (4, 17)], 1, 20, (0, 13)),
        ([(0, 10), (2, 13), (4, 17)], 2, 20, (2, 17)),
        ([(0, 10), (2, 13), (4, 17)], 3, 20, (2, 17)),
        ([(1, 5), (2, 6), (1, 7)], 1, 8, (1, 8)),
        ([(1, 5), (2, 6), (1, 7)], 2, 8, UNDEFINED),
        ([(0, 0), (1, 0)], 1, 0, (1, 0)),
        ([(0, 0), (1, 0)], 0, 0, (0, 0)),
        ([(0, 0), (1, 0), (2, 5)], 1, 10, (1, 5)),
        ([(0, 0), (1, 3), (2, 6)], 0, 9, (0, 3)),
    ],
)
def test_ep5_end_offset_for_an_epoch(
    entries: list[tuple[int, int]], epoch: int, log_end_offset: int, expected: tuple[int, int]
) -> None:
    assert cache_of(*entries).end_offset_for(epoch, log_end_offset) == expected


@pytest.mark.covers(
    "LeaderEpochFileCacheTest.shouldDropEntriesOnEpochBoundaryWhenRemovingLatestEntries",
    "LeaderEpochFileCacheTest.shouldDropEntriesBetweenEpochBoundaryWhenRemovingNewest",
    "LeaderEpochFileCacheTest.shouldNotResetEpochHistoryTailIfUndefinedPassed",
)
@pytest.mark.parametrize(
    ("end_offset", "expected"),
    [(8, A[:1]), (9, A[:2]), (11, A[:2]), (12, A), (6, []), (0, []), (-1, A)],
)
def test_ep6_truncate_from_end(end_offset: int, expected: list[tuple[int, int]]) -> None:
    cache = cache_of(*A)
    assert cache.truncate_from_end(end_offset) == (expected != A)
    assert cache.entries == expected
    assert cache.latest_epoch == (expected[-1][0] if expected else None)


@pytest.mark.covers(
    "LeaderEpochFileCacheTest.shouldPreserveResetOffsetOnClearEarliestIfOneExists",
    "LeaderEpochFileCacheTest.shouldUpdateSavedOffsetWhenOffsetToClearToIsBetweenEpochs",
    "LeaderEpochFileCacheTest.shouldUpdateOffsetBetweenEpochBoundariesOnClearEarliest",
    "LeaderEpochFileCacheTest.shouldNotClearAnythingIfOffsetToEarly",
    "LeaderEpochFileCacheTest.shouldNotClearAnythingIfOffsetToFirstOffset",
    "LeaderEpochFileCacheTest.shouldRetainLatestEpochOnClearAllEarliest",
    "LeaderEpochFileCacheTest.shouldRetainLatestEpochOnClearAllEarliestAndUpdateItsOffset",
    "LeaderEpochFileCacheTest.shouldNotResetEpochHistoryHeadIfUndefinedPassed",
)
@pytest.mark.parametrize(
    ("start_offset", "expected"),
    [
        (8, A[1:]),
        (9, [(3, 9), (4, 11)]),
        (1, A),
        (6, A),
        (11, A[2:]),
        (15, [(4, 15)]),
        (-1, A),
    ],
)
def test_ep7_truncate_from_start(start_offset: int, expected: list[tuple[int, int]]) -> None:
    cache = cache_of(*A)
    cache.truncate_from_start(start_offset)
    assert cache.entries == expected


@pytest.mark.covers(
    "LeaderEpochFileCacheTest.shouldUpdateOffsetBetweenEpochBoundariesOnClearEarliest2",
    "UnifiedLogTest.shouldUpdateOffsetForLeaderEpochsWhenDeletingSegments",
)
def test_ep7_the_first_of_several_epochs_moves_up() -> None:
    cache = cache_of((0, 0), (1, 7), (2, 10))
    cache.truncate_from_start(5)
    assert cache.entries == [(0, 5), (1, 7), (2, 10)]


def test_ep7_assign_after_the_last_epoch_moved_up_keeps_its_start() -> None:
    cache = cache_of(*A)
    cache.truncate_from_start(15)
    assert not cache.assign(4, 20)
    assert cache.assign(4, 12)
    assert cache.entries == [(4, 12)]


@pytest.mark.covers(
    "LeaderEpochFileCacheTest.shouldFetchLatestEpochOfEmptyCache",
    "LeaderEpochFileCacheTest.shouldClearEarliestOnEmptyCache",
    "LeaderEpochFileCacheTest.shouldClearLatestOnEmptyCache",
)
def test_ep7_an_empty_cache_is_not_touched() -> None:
    cache = cache_of()
    assert not cache.truncate_from_start(7)
    assert not cache.truncate_from_end(7)
    assert not cache.truncate_from_end(0)
    assert cache.entries == [] and not cache.is_dirty


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((2, 6), (2, 7), [(2, 6)]),  # the same epoch, a larger start: the first one wins
        ((2, 6), (2, 5), [(2, 5)]),  # a smaller one replaces it
        ((2, 6), (1, 7), [(1, 7)]),  # a lower epoch removes the higher ones
        ((2, 6), (3, 6), [(3, 6)]),  # an epoch that ends where it begins has no data
    ],
)
def test_ep4_the_effect_of_a_second_start_on_the_first(
    first: tuple[int, int], second: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    assert cache_of(first, second).entries == expected


def test_ep8_a_negative_end_truncates_nothing() -> None:
    cache = cache_of((0, 0), *A)
    for end_offset in (-1, -5):
        assert not cache.truncate_from_end(end_offset)
    assert cache.entries == [(0, 0), *A] and not cache.is_dirty


@pytest.mark.parametrize("position", range(4))
def test_kafka_7415_conflicting_entries_are_removed_when_one_is_assigned(position: int) -> None:
    """A leader notes its epoch when it is elected, before it writes. Entries that contradict it are deleted."""
    cache = cache_of(*A)
    cache.assign(9, [5, 6, 8, 11][position])
    assert cache.entries == [*A[: max(0, position - 1)], (9, [5, 6, 8, 11][position])]


def test_kafka_16541_a_checkpoint_is_synced_before_it_takes_its_name() -> None:
    for kept in ("none", "prefix", "torn"):
        disk, file_system = new_disk()
        LeaderEpochCache(file_system, PATH).assign(2, 6)
        disk.lose_power(kept)
        assert LeaderEpochCache(disk.file_system(Life()), PATH).entries == [(2, 6)]


@pytest.mark.covers("LeaderEpochFileCacheTest.shouldFetchEpochForGivenOffset")
@pytest.mark.parametrize(("offset", "epoch"), [(25, 1), (20, 1), (30, 5), (50, 5), (10, 0), (5, None)])
def test_ep9_epoch_for_offset(offset: int, epoch: int | None) -> None:
    assert cache_of((0, 10), (1, 20), (5, 30)).epoch_for_offset(offset) == epoch


@pytest.mark.covers("LeaderEpochFileCacheTest.shouldClearAllEntries")
def test_ep10_clear_is_in_memory_only_and_clear_and_flush_is_not() -> None:
    cache = cache_of(*A)
    cache.clear()
    assert cache.entries == [] and file_content(cache) == b"0\n3\n2 6\n3 8\n4 11\n"
    cache.clear_and_flush()
    assert file_content(cache) == b"0\n0\n"
    assert len(cache) == 0 and cache.latest_entry is None and cache.earliest_entry is None


def test_ep10_a_copy_is_bound_to_another_file() -> None:
    file_system = new_disk()[1]
    cache = LeaderEpochCache(file_system, PATH)
    cache.assign(2, 6)
    copy = cache.copy_to(file_system, "/log/other")
    copy.assign(3, 9)
    assert cache.entries == [(2, 6)]
    assert read_file(file_system, "/log/other") == b"0\n2\n2 6\n3 9\n"


@pytest.mark.parametrize(
    ("start_offset", "end_offset", "expected"),
    [(0, 100, A), (8, 100, A[1:]), (9, 11, [(3, 9)]), (-1, 8, A[:1]), (9, 9, []), (20, 100, [(4, 20)])],
)
def test_ep11_entries_in_range_leave_the_cache_alone(
    start_offset: int, end_offset: int, expected: list[tuple[int, int]]
) -> None:
    cache = cache_of(*A)
    assert cache.entries_in_range(start_offset, end_offset) == expected
    assert cache.entries == A


@pytest.mark.covers("LeaderEpochFileCacheTest.shouldWriteCheckpointOnTruncation")
def test_ep12_assign_is_on_disk_at_once_and_truncation_after_flush() -> None:
    scheduled: list[str] = []
    file_system = new_disk()[1]
    cache = LeaderEpochCache(file_system, PATH, schedule=lambda: scheduled.append("flush"))
    for epoch, start_offset in A:
        cache.assign(epoch, start_offset)
    assert scheduled == []
    cache.truncate_from_end(11)
    cache.truncate_from_start(8)
    assert scheduled == ["flush", "flush"] and cache.is_dirty
    assert read_file(file_system, PATH) == b"0\n3\n2 6\n3 8\n4 11\n"
    cache.flush()
    assert read_file(file_system, PATH) == b"0\n1\n3 8\n" and not cache.is_dirty


def test_ep12_a_crash_leaves_entries_too_many_never_too_few() -> None:
    disk, file_system = new_disk()
    cache = LeaderEpochCache(file_system, PATH)
    cache.assign(2, 6)
    cache.assign(3, 8)
    cache.truncate_from_end(8)
    disk.lose_power("none")
    assert LeaderEpochCache(disk.file_system(Life()), PATH).entries == [(2, 6), (3, 8)]


def test_ep12_crash_within_assign_leaves_the_old_or_the_new_entries() -> None:
    for nth in range(1, 20):
        disk, file_system = new_disk()
        cache = LeaderEpochCache(file_system, PATH)
        cache.assign(2, 6)
        disk.arm_crash(nth)
        try:
            cache.assign(3, 8)
        except Dead:
            disk.lose_power("torn")
            entries = LeaderEpochCache(disk.file_system(Life()), PATH).entries
            assert entries in ([(2, 6)], [(2, 6), (3, 8)])
        else:
            return
    pytest.fail("assign never came to its end")


def test_ep6_flush_into_a_directory_that_was_deleted_is_no_error() -> None:
    file_system = new_disk()[1]
    cache = LeaderEpochCache(file_system, PATH)
    cache.assign(2, 6)
    cache.truncate_from_end(0)
    file_system.rename("/log", "/log.deleted")
    cache.flush()
    assert cache.entries == [] and not file_system.exists(PATH)


@pytest.mark.covers(
    "LeaderEpochFileCacheTest.testPreviousEpoch",
    "LeaderEpochFileCacheTest.testFindPreviousEpoch",
    "LeaderEpochFileCacheTest.testFindPreviousEntry",
    "LeaderEpochFileCacheTest.testFindNextEpoch",
)
def test_previous_and_next_epochs() -> None:
    cache = cache_of()
    assert cache.previous_epoch() is None
    cache.assign(2, 10)
    assert cache.previous_epoch() is None
    cache.assign(4, 15)
    assert cache.previous_epoch() == 2
    cache.assign(10, 20)
    assert cache.previous_epoch() == 4 and cache.previous_epoch(4) == 2 and cache.previous_epoch(2) is None
    cache.truncate_from_end(18)
    assert cache.previous_entry(4) == (2, 10)
    cache = cache_of((0, 0), (1, 100), (2, 200))
    assert [cache.next_epoch(epoch) for epoch in (-1, 0, 1, 2, 100)] == [0, 1, 2, None, None]


@pytest.mark.covers("LeaderEpochFileCacheTest.testGetEpochEntry")
def test_entry_for_an_epoch() -> None:
    cache = cache_of((2, 100), (3, 500), (5, 1000))
    assert [cache.entry_for(epoch) for epoch in (2, 3, 4, 5, 6)] == [
        (2, 100),
        (3, 500),
        None,
        (5, 1000),
        None,
    ]
    assert cache.latest_entry == (5, 1000) and cache.earliest_entry == (2, 100)


# A model that follows the words of the rules, one entry at a time.


def model_assign(model: dict[int, int], epoch: int, start_offset: int) -> None:
    latest = max(model, default=None)
    if latest is not None and epoch == latest and start_offset >= model[latest]:
        return
    for other in sorted(model, reverse=True):
        if other < epoch and model[other] < start_offset:
            break
        del model[other]
    model[epoch] = start_offset


def model_from_end(model: dict[int, int], end_offset: int) -> None:
    if end_offset < 0:
        return
    for epoch in sorted(model, reverse=True):
        if model[epoch] < end_offset:
            break
        del model[epoch]


def model_from_start(model: dict[int, int], start_offset: int) -> None:
    removed = None
    for epoch in sorted(model):
        if model[epoch] > start_offset:
            break
        removed = epoch
        del model[epoch]
    if removed is not None:
        model[removed] = start_offset


def model_end_offset(model: dict[int, int], epoch: int, log_end_offset: int) -> tuple[int, int]:
    if epoch == -1 or not model or epoch > max(model):
        return UNDEFINED
    if epoch == max(model):
        return epoch, log_end_offset
    above = min(other for other in model if other > epoch)
    below = max((other for other in model if other <= epoch), default=epoch)
    return below, model[above]


OPERATIONS = st.tuples(
    st.sampled_from(["assign", "assign", "assign", "end", "start", "flush", "reopen"]),
    st.integers(0, 8),
    st.integers(-1, 30),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(OPERATIONS, max_size=25), st.integers(-1, 9), st.integers(0, 30))
def test_ep_cache_agrees_with_a_simple_model(
    operations: list[tuple[str, int, int]], asked_epoch: int, asked_offset: int
) -> None:
    file_system = new_disk()[1]
    cache = LeaderEpochCache(file_system, PATH)
    model: dict[int, int] = {}
    for operation, epoch, offset in operations:
        if operation == "assign" and offset >= 0:
            cache.assign(epoch, offset)
            model_assign(model, epoch, offset)
        elif operation == "end":
            cache.truncate_from_end(offset)
            model_from_end(model, offset)
        elif operation == "start":
            cache.truncate_from_start(offset)
            model_from_start(model, offset)
        elif operation == "flush":
            cache.flush()
        elif operation == "reopen":
            cache.flush()
            cache = LeaderEpochCache(file_system, PATH)
        assert cache.entries == sorted(model.items())
        assert cache.latest_epoch == max(model, default=None)
    assert cache.end_offset_for(asked_epoch, 31) == model_end_offset(model, asked_epoch, 31)
    starts = [epoch for epoch, start in model.items() if start <= asked_offset]
    assert cache.epoch_for_offset(asked_offset) == max(starts, default=None)
