"""Start-up of one partition, one step to either side of each rule. Rules LL6 to LL26."""

from __future__ import annotations

from typing import cast

import pytest

from sim.disk import SimDisk, SimFileSystem
from storage.config import LogConfig
from storage.disk.filesystem import OpenMode, join, read_file
from storage.producers.rows import encode_snapshot
from storage.recovery.cut import RecoveryCut
from tests.storage.disk.recorded_calls import recorded
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    ROOMY,
    SIZE,
    THREE,
    append_each,
    bases,
    batch,
    new_disk,
    new_file_system,
    open_log,
    produced,
    read_offsets,
)
from tests.storage.recovery.stopped_logs import file_of, names, put, stopped

EPOCHS = join(DIRECTORY, "leader-epoch-checkpoint")


def settled(disk: SimDisk, *, clean: bool = False) -> SimFileSystem:
    """Write twelve records in four segments, all of it on the disk."""
    file_system = new_file_system(disk)
    stopped(file_system, clean=clean)
    disk.sync_all()
    return file_system


# Leftovers


def test_ll6_a_swap_at_the_least_cleaned_base_or_above_is_removed_and_one_below_is_finished() -> None:
    file_system = new_file_system()
    stopped(file_system)
    put(file_system, file_of(0, "log.swap"), batch(1))
    for offset in (3, 6):
        put(file_system, file_of(offset, "log.swap"), batch(offset))
        put(file_system, file_of(offset, "log.cleaned"), batch(offset))
    log = open_log(file_system, THREE)
    assert read_offsets(log) == [1, *range(3, 12)]
    assert not [name for name in file_system.list(DIRECTORY) if name.endswith((".swap", ".cleaned"))]


def test_ll6_the_cleaned_files_that_condemn_a_swap_are_deleted_after_it() -> None:
    calls: list[str] = []
    file_system = new_file_system()
    stopped(file_system)
    put(file_system, file_of(3, "log.cleaned"), batch(3))
    put(file_system, file_of(6, "log.swap"), batch(6))
    assert read_offsets(open_log(recorded(file_system, calls), THREE)) == list(range(12))
    begin = calls.index("unlink 6.log.swap")
    assert calls[begin : begin + 3] == ["unlink 6.log.swap", "sync", "unlink 3.log.cleaned"]


# Swaps


def test_ll7_the_range_counts_every_swap_whatever_their_order_and_length() -> None:
    file_system = new_file_system()
    stopped(file_system)
    # The first swap reaches beyond the second.
    put(file_system, file_of(0, "log.swap"), batch(1) + batch(8))
    put(file_system, file_of(3, "log.swap"), batch(4))
    log = open_log(file_system, THREE)
    assert log.local.segments.base_offsets == [0, 3, 9] and names(file_system, f"{6:020d}.log") == []


def test_ll7_the_end_of_a_swap_is_read_from_its_records_not_from_its_sparse_index() -> None:
    config = LogConfig(segment_bytes=3 * SIZE, segment_index_bytes=1200, index_interval_bytes=4096)
    file_system = new_file_system()
    log = open_log(file_system, config)
    append_each(log, 12)
    log.close()
    for suffix in ("log", "index", "timeindex"):
        file_system.rename(file_of(3, suffix), file_of(3, suffix + ".swap"))
    for offset in (3, 4, 5, 6):
        put(file_system, file_of(offset, "anything"), b"x")
    open_log(file_system, config, clean=True)
    assert names(file_system, ".anything") == [f"{6:020d}.anything"]


def test_ll7_the_range_is_whole_from_the_least_base_to_the_end_of_the_last_record() -> None:
    file_system = new_file_system()
    stopped(file_system)
    put(file_system, file_of(0, "log.swap"), batch(1))
    put(file_system, file_of(6, "log.swap"), batch(7) + batch(10))
    for offset in (1, 5, 10, 11):
        put(file_system, file_of(offset, "anything"), b"x")
    open_log(file_system, THREE)
    assert names(file_system, ".anything") == [f"{11:020d}.anything"]


def test_ll8_a_swap_deletes_files_of_every_kind_from_its_base_up_to_its_end() -> None:
    calls: list[str] = []
    file_system = new_file_system()
    stopped(file_system)
    put(file_system, file_of(3, "log.swap"), batch(4) + batch(8))
    for offset in (3, 5, 9):
        put(file_system, file_of(offset, "snapshot"), b"x")
    file_system.make_directory(file_of(7, "log"))
    open_log(recorded(file_system, calls), THREE, clean=True)
    end = calls.index("rename 3.log.swap 3.log")
    replaced = [call.removeprefix("unlink ") for call in calls[:end] if call.startswith("unlink")]
    assert {"3.log", "3.index", "3.timeindex", "3.snapshot", "5.snapshot", "6.log"} <= set(replaced)
    assert not {"9.snapshot", "9.log", "7.log", "2.log"} & set(replaced)
    # The deletions are durable before the swap loses the name that says what it replaces.
    assert calls[end - 1] == "sync"


def test_ll9_each_swap_is_live_for_good_before_the_next_loses_its_name() -> None:
    calls: list[str] = []
    file_system = new_file_system()
    stopped(file_system)
    put(file_system, file_of(3, "log.swap"), batch(4))
    put(file_system, file_of(6, "log.swap"), batch(7))
    open_log(recorded(file_system, calls), THREE)
    begin = calls.index("rename 3.log.swap 3.log")
    assert calls[begin : begin + 4] == [
        "rename 3.log.swap 3.log",
        "sync",
        "rename 6.log.swap 6.log",
        "sync",
    ]


# Segments and their indexes


def test_ll10_a_damaged_transaction_index_is_rebuilt_after_an_orderly_stop() -> None:
    file_system = new_file_system()
    stopped(file_system, clean=True)
    # This is not version 0.
    put(file_system, file_of(3, "txnindex"), b"\x07" * 34)
    log = open_log(file_system, THREE, clean=True)
    segment = log.local.segments.get(3)
    assert segment is not None
    segment.sanity_check()
    assert list(segment.transaction_index.entries()) == [] and read_offsets(log) == list(range(12))


def test_ll10_a_rebuilt_index_gets_its_name_when_it_is_on_the_disk() -> None:
    calls: list[str] = []
    file_system = new_file_system()
    stopped(file_system, clean=True)
    file_system.unlink(file_of(3, "index"))
    open_log(recorded(file_system, calls), THREE, clean=True)
    place = calls.index("rename 3.index.cleaned 3.index")
    assert calls[place - 1] == "sync"


def test_ll10_segments_load_in_the_order_of_their_offsets_and_other_names_are_none() -> None:
    file_system = new_file_system()
    stopped(file_system, clean=True)
    # The name has too few digits.
    put(file_system, join(DIRECTORY, "15.log"), batch(15))
    put(file_system, join(DIRECTORY, "notes.log"), b"x")
    log = open_log(file_system, THREE, clean=True)
    assert log.local.segments.base_offsets == [0, 3, 6, 9] and read_offsets(log) == list(range(12))


def test_ll10_a_missing_index_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def is_told(*, clean: bool, recovery_point: int) -> bool:
        caplog.clear()
        file_system = new_file_system()
        stopped(file_system, clean=True)
        file_system.unlink(file_of(3, "index"))
        open_log(file_system, THREE, clean=clean, recovery_point=recovery_point)
        return any("offset index missing" in record.getMessage() for record in caplog.records)

    assert is_told(clean=True, recovery_point=0)
    assert is_told(clean=False, recovery_point=4)
    # The segment may have been in the making when the process crashed.
    assert not is_told(clean=False, recovery_point=3)


def test_ll10_segments_are_opened_as_files_that_are_there() -> None:
    config = LogConfig(segment_bytes=3 * SIZE, segment_index_bytes=1200, preallocate=True)
    file_system = new_file_system()
    stopped(file_system, clean=True)
    log = open_log(file_system, config, clean=True)
    assert log.local.segments.active.size_bytes == 3 * SIZE and read_offsets(log) == list(range(12))


def with_producer(file_system: SimFileSystem, count: int = 10) -> None:
    log = open_log(file_system, THREE)
    for sequence in range(count):
        data = produced(producer_id=3, producer_epoch=1, sequence=sequence)
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    log.close()


def test_ll11_the_snapshot_at_its_end_includes_earlier_segments() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    for producer_id, sequence in ((3, 0), (3, 1), (3, 2), (4, 0), (4, 1), (4, 2)):
        data = produced(producer_id=producer_id, producer_epoch=1, sequence=sequence)
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    append_each(log, 6)
    log.close()
    before = read_file(file_system, file_of(6, "snapshot"))
    assert before != encode_snapshot([])
    file_system.unlink(file_of(3, "index"))
    file_system.unlink(file_of(6, "snapshot"))
    open_log(file_system, THREE, clean=True)
    assert read_file(file_system, file_of(6, "snapshot")) == before


# A directory about to be deleted


DOOMED = "logs/topic-0." + "a" * 32 + "-delete"


def test_ll13_logs_in_a_directory_to_be_deleted_are_neither_walked_nor_counted() -> None:
    file_system = new_file_system()
    stopped(file_system)
    put(file_system, file_of(3), batch(3)[:-1] + b"\xff" + batch(4))
    file_system.rename(DIRECTORY, DOOMED)
    cuts: list[RecoveryCut] = []
    log = open_log(file_system, THREE, directory=DOOMED, recovery_point=7, cuts=cuts)
    assert cuts == [] and log.local.segments.base_offsets == [0, 3, 6, 9]
    assert (log.local.recovery_point, log.log_end_offset) == (0, 0)


def test_ll13_a_directory_about_to_be_deleted_begins_at_0_when_empty() -> None:
    file_system = new_file_system()
    file_system.make_directory(DOOMED)
    log = open_log(file_system, THREE, directory=DOOMED, log_start_offset=5)
    assert log.local.segments.base_offsets == [0]


# Recovery


def test_ll14_after_a_cut_segments_and_snapshots_are_deleted_from_the_last_on_each_durably() -> None:
    calls: list[str] = []
    file_system = new_file_system()
    with_producer(file_system, 12)
    damaged = bytearray(read_file(file_system, file_of(3)))
    damaged[-1] ^= 0xFF
    put(file_system, file_of(3), bytes(damaged))
    log = open_log(recorded(file_system, calls), THREE)
    assert read_offsets(log) == list(range(5)) and log.local.segments.base_offsets == [0, 3]
    last, middle = calls.index("unlink 9.log"), calls.index("unlink 6.log")
    assert last < middle and "sync" in calls[last:middle] and "sync" in calls[middle:]
    assert [name for name in file_system.list(DIRECTORY) if name[:20] in (f"{6:020d}", f"{9:020d}")] == []


def test_ll14_a_cut_tail_does_not_return_after_a_power_loss() -> None:
    for kept in ("none", "prefix", "torn"):
        disk = new_disk()
        file_system = settled(disk)
        put(file_system, file_of(9), read_file(file_system, file_of(9))[:-5])
        disk.sync_all()
        log = open_log(file_system, THREE)
        assert log.log_end_offset == 11
        size = log.local.segments.active.size_bytes
        assert len(disk.durable_bytes(file_of(9))) == size, kept


def test_ll14_a_cut_that_a_dead_process_did_not_sync_is_synced_before_the_next_append() -> None:
    disk = new_disk()
    file_system = settled(disk)
    file = file_system.open(file_of(9), OpenMode.WRITE)
    # The cut is at the end of a batch, so nothing shows it.
    file.set_length(2 * SIZE)
    file.close()
    assert len(disk.durable_bytes(file_of(9))) == 3 * SIZE
    assert open_log(file_system, THREE).log_end_offset == 11
    assert len(disk.durable_bytes(file_of(9))) == 2 * SIZE


def test_ll14_the_segment_that_holds_the_recovery_point_as_its_last_offset_is_walked() -> None:
    file_system = new_file_system()
    stopped(file_system)
    damaged = bytearray(read_file(file_system, file_of(6)))
    damaged[-1] ^= 0xFF
    put(file_system, file_of(6), bytes(damaged))
    assert open_log(file_system, THREE, recovery_point=8).log_end_offset == 8


@pytest.mark.parametrize("with_index", [True, False])
def test_ll12_a_segment_that_cannot_be_split_is_not_tried_again_but_cut(with_index: bool) -> None:
    """The new segments would share a base offset."""
    compacted = LogConfig(segment_bytes=1 << 20, segment_index_bytes=1200, cleanup_policy="compact")
    file_system = new_file_system()
    put(file_system, file_of(0), b"".join(batch(offset) for offset in (0, 1 << 31, 0, 1 << 31)))
    if with_index:
        for suffix in ("index", "timeindex"):
            put(file_system, file_of(0, suffix), b"")
    cuts: list[RecoveryCut] = []
    log = open_log(file_system, compacted, cuts=cuts)
    assert read_offsets(log) == [0] and log.log_end_offset == 1
    assert sum(cut.removed_bytes for cut in cuts) == 3 * SIZE


def test_ll14_the_segment_that_begins_at_the_recovery_point_is_walked() -> None:
    file_system = new_file_system()
    stopped(file_system)
    damaged = bytearray(read_file(file_system, file_of(9)))
    damaged[SIZE - 1] ^= 0xFF
    put(file_system, file_of(9), bytes(damaged))
    assert open_log(file_system, THREE, recovery_point=9).log_end_offset == 9


def test_ll16_the_bytes_of_an_emptied_segment_are_reported_and_later_segments_deleted_first() -> None:
    calls: list[str] = []
    cuts: list[RecoveryCut] = []
    file_system = new_file_system()
    stopped(file_system)
    put(file_system, file_of(3), b"".join(map(batch, (3, 4, 5, 9, 10, 11, 4, 5))))
    file_system.sync_directory("")
    log = open_log(recorded(file_system, calls), THREE, cuts=cuts)
    assert log.local.segments.base_offsets == [0, 3] and log.log_end_offset == 3
    assert log.local.segments.active.size_bytes == 0
    assert [cut.removed_bytes for cut in cuts if cut.path.endswith("3.log")] == [8 * SIZE]
    assert sum(cut.removed_bytes for cut in cuts) == 14 * SIZE
    assert calls.index("unlink 9.log") < calls.index("unlink 6.log")


# What the load returns


def test_ll18_a_log_that_ends_at_its_start_keeps_its_segments() -> None:
    file_system = new_file_system()
    stopped(file_system)
    log = open_log(file_system, THREE, log_start_offset=12)
    assert log.local.segments.base_offsets == [0, 3, 6, 9] and log.log_end_offset == 12


def test_ll18_no_snapshot_outlives_a_log_that_starts_again() -> None:
    file_system = new_file_system()
    with_producer(file_system, 12)
    log = open_log(file_system, THREE, log_start_offset=100)
    assert log.local.segments.base_offsets == [100] and log.producers.producers == {}
    assert [name for name in names(file_system, ".snapshot") if int(name[:20]) < 100] == []


def test_ll20_a_recovery_point_beyond_the_end_is_lowered_to_it_and_one_within_stays() -> None:
    for recovery_point, expected in ((50, 12), (12, 12), (7, 7)):
        file_system = new_file_system()
        stopped(file_system)
        assert open_log(file_system, THREE, recovery_point=recovery_point).local.recovery_point == expected


def test_ll21_an_index_fuller_than_the_configuration_allows_is_rebuilt() -> None:
    file_system = new_file_system()
    log = open_log(file_system, LogConfig(segment_index_bytes=1200, index_interval_bytes=0))
    append_each(log, 12)
    log.close()
    log = open_log(file_system, LogConfig(segment_index_bytes=40, index_interval_bytes=0), clean=True)
    assert read_offsets(log) == list(range(12))
    assert log.local.segments.active.offset_index.length_bytes == 40


def test_ll21_indexes_are_resized_only_after_the_log_end_was_found_with_them() -> None:
    """The last entry of an index too long for its configuration is beyond the log.

    The log end then counts as the base, which is below the log start, so the log starts again there, as in Kafka.
    That index never needs more room (LL18).
    """
    file_system = new_file_system()
    log = open_log(file_system, ROOMY)
    append_each(log, 12)
    log.close()
    put(file_system, file_of(0, "index"), bytes(1200) + b"\x11\x04\xce\x96\x00\x00\x00\x00")
    log = open_log(file_system, ROOMY, clean=True, log_start_offset=5)
    assert bases(log) == [5] and log.log_end_offset == 5


@pytest.mark.parametrize(("start_offset", "stays"), [(11, True), (12, False), (13, False)])
def test_ll22_an_epoch_that_starts_at_the_end_is_deleted_and_one_before_it_stays(
    start_offset: int, stays: bool
) -> None:
    file_system = new_file_system()
    stopped(file_system)
    put(file_system, EPOCHS, b"0\n2\n0 0\n4 %d\n" % start_offset)
    log = open_log(file_system, THREE, clean=True)
    expected = [(0, 0), (4, start_offset)] if stays else [(0, 0)]
    assert log.epochs.entries == expected


def test_ll24_epochs_clipped_at_the_start_are_clipped_on_the_disk_too() -> None:
    file_system = new_file_system()
    stopped(file_system)
    put(file_system, EPOCHS, b"0\n3\n0 0\n4 2\n5 6\n")
    open_log(file_system, THREE, log_start_offset=4, clean=True)
    assert read_file(file_system, EPOCHS) == b"0\n2\n4 4\n5 6\n"


def test_ll25_stray_snapshots_are_deleted_and_those_of_segments_stay() -> None:
    file_system = new_file_system()
    with_producer(file_system, 12)
    for offset in (1, 4):
        put(file_system, file_of(offset, "snapshot"), b"")
    put(file_system, file_of(3, "snapshot"), encode_snapshot([]))
    open_log(file_system, THREE, clean=True)
    assert [int(name[:20]) for name in names(file_system, ".snapshot")] == [3, 6, 9, 12]


def test_ll25_no_snapshot_means_a_scan_after_a_crash_and_no_producer_after_an_orderly_stop() -> None:
    for clean in (False, True):
        file_system = new_file_system()
        with_producer(file_system, 9)
        for name in names(file_system, ".snapshot"):
            file_system.unlink(join(DIRECTORY, name))
        log = open_log(file_system, THREE, clean=clean, recovery_point=9)
        assert (log.producers.last_entry(3) is None) == clean


def test_ll25_the_producers_of_records_below_the_log_start_are_not_looked_for() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    for producer_id in (3, 3, 3, 4, 5):
        sequence = log.log_end_offset if producer_id == 3 else 0
        data = produced(producer_id=producer_id, producer_epoch=1, sequence=sequence)
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    log.close_handles()
    for name in names(file_system, ".snapshot"):
        file_system.unlink(join(DIRECTORY, name))
    log = open_log(file_system, THREE, recovery_point=5, log_start_offset=3)
    assert sorted(log.producers.producers) == [4, 5]


def test_ll19_an_empty_directory_that_was_left_in_order_begins_at_its_start_too() -> None:
    log = open_log(new_file_system(), THREE, clean=True, log_start_offset=7)
    assert log.local.segments.base_offsets == [7] and log.local.recovery_point == 7


def test_ll26_the_high_watermark_of_a_new_start_is_the_log_start_not_the_end() -> None:
    file_system = new_file_system()
    stopped(file_system, clean=True)
    log = open_log(file_system, THREE, clean=True, log_start_offset=2)
    assert (log.high_watermark, log.log_start_offset, log.log_end_offset) == (2, 2, 12)


def test_ll11_the_directory_is_listed_equally_often_for_few_and_for_many_segments() -> None:
    """A list for each segment makes an unclean start quadratic."""

    def listings(count: int) -> int:
        fs = new_file_system()
        stopped(fs, count)
        listed: list[str] = []
        counting = _Listing(fs, listed)
        log = open_log(cast(SimFileSystem, counting), THREE)
        assert (len(log.local.segments), log.log_end_offset) == (count // 3, count)
        return len(listed)

    assert listings(12) == listings(90) < 10


class _Listing:
    def __init__(self, file_system: SimFileSystem, listed: list[str]) -> None:
        self._file_system, self._listed = file_system, listed

    def list(self, path: str) -> list[str]:
        self._listed.append(path)
        return self._file_system.list(path)

    def __getattr__(self, name: str) -> object:
        return getattr(self._file_system, name)
