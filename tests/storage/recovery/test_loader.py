"""Start-up of a partition. Kafka: LogLoaderTest; rules LL6 to LL26."""

from __future__ import annotations

import pytest

from sim.disk.life import Dead, Life
from storage.config import LogConfig
from storage.disk.filesystem import join, read_file
from storage.errors import CorruptBatch, CorruptCheckpoint, StorageError
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    SIZE,
    THREE,
    append_each,
    batch,
    new_disk,
    new_file_system,
    open_log,
    open_segment,
    produced,
    read_offsets,
)
from tests.storage.recovery.stopped_logs import batches, copy, file_of, poke, raw_segment, reopen, stopped

# Nothing, and after an orderly stop


def test_ll19_a_new_log_starts_at_the_log_start_offset() -> None:
    log, cuts = reopen(new_file_system(), log_start_offset=500)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (500, 500, 500)
    assert log.local.segments.base_offsets == [500] and cuts == []


def test_ll17_after_an_orderly_stop_nothing_is_scanned() -> None:
    file_system = new_file_system()
    stopped(file_system, clean=True)
    poke(file_system, file_of(3), 70, b"\x77")
    log, cuts = reopen(file_system, clean=True)
    assert cuts == [] and log.log_end_offset == 12 and log.local.recovery_point == 12


def test_ll20_a_clean_start_takes_the_end_as_recovery_point_and_an_unclean_one_the_lesser() -> None:
    file_system = new_file_system()
    stopped(file_system)
    log, _ = reopen(file_system, recovery_point=5)
    assert log.local.recovery_point == 5
    log.close_handles()
    assert reopen(file_system, recovery_point=500)[0].local.recovery_point == 12


def test_a_crash_and_an_orderly_stop_end_in_the_same_log() -> None:
    contents = []
    for clean in (False, True):
        file_system = new_file_system()
        stopped(file_system, clean=clean)
        log, _ = reopen(file_system, clean=clean)
        log.close()
        contents.append(
            {name: read_file(file_system, join(DIRECTORY, name)) for name in file_system.list(DIRECTORY)}
        )
    names = {name for name in contents[0] if not name.endswith(".snapshot")}
    assert {name: contents[0][name] for name in names} == {name: contents[1][name] for name in names}


def test_ll21_the_active_segment_has_room_in_its_indexes_again() -> None:
    file_system = new_file_system()
    stopped(file_system, clean=True)
    log, _ = reopen(file_system, clean=True)
    assert not log.local.segments.active.offset_index.is_full
    append_each(log, 9)
    assert read_offsets(log) == list(range(21))


def test_ll21_a_log_started_again_has_both_its_indexes_from_the_start() -> None:
    """An empty log that opens and closes again and again keeps the same files."""
    file_system = new_file_system()
    before = None
    for _ in range(3):
        log, _ = reopen(file_system)
        log.close()
        names = file_system.list(DIRECTORY)
        assert {f"{0:020d}.{kind}" for kind in ("log", "index", "timeindex")} < set(names)
        assert before in (None, names)
        before = names


def test_indexes_with_more_entries_than_the_configuration_allows_are_rebuilt() -> None:
    file_system = new_file_system()
    stopped(file_system, clean=True)
    poke(file_system, file_of(9, "index"), 0, b"\x00\x00\x00\x01" * 400)
    log, _ = reopen(file_system, clean=True)
    assert read_offsets(log) == list(range(12))


@pytest.mark.parametrize(
    ("sound", "back"),
    [((0, 1, 2, 3), (1, 2, 3)), ((0, 1, 2), (1,))],
    ids=["at an index entry", "between two"],
)
def test_where_indexes_are_rebuilt_offsets_that_go_back_cost_only_what_follows(
    sound: tuple[int, ...], back: tuple[int, ...]
) -> None:
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(*sound, *back))
    poke(file_system, file_of(0, "index"), 0, b"\x00\x00\x00\x01" * 400)
    log, cuts = reopen(file_system, clean=True)
    assert log.log_end_offset == len(sound) and read_offsets(log) == list(sound)
    assert [(cut.position, cut.removed_bytes) for cut in cuts] == [(len(sound) * SIZE, len(back) * SIZE)]


def test_ll14_a_segment_that_is_cut_twice_deletes_the_later_ones_once() -> None:
    file_system = new_file_system()
    # More batches than the index has room for, one that goes back between two entries, and a torn one.
    raw_segment(file_system, 0, batches(*range(311), 5) + bytes(70))
    raw_segment(file_system, 400, batches(400, 401))
    log, cuts = reopen(file_system)
    assert (log.local.segments.base_offsets, log.log_end_offset) == ([0], 311)
    assert [(cut.path, cut.position, cut.removed_bytes) for cut in cuts] == [
        (file_of(0), 312 * SIZE, 70),
        (file_of(400), 0, 2 * SIZE),
        (file_of(0), 311 * SIZE, SIZE),
    ]
    assert log.recovered_bytes_removed == 70 + 3 * SIZE


def test_ls9_after_an_orderly_stop_an_index_that_no_batch_bears_out_ends_the_log_at_its_base() -> None:
    """The end is looked for from the last index entry on, as in Kafka; it is not found if offsets go back."""
    file_system = new_file_system()
    data = b"".join(batch(offset, count=3) for offset in (0, 3, 6))
    raw_segment(file_system, 0, data + batch(1))
    third = (8).to_bytes(4, "big") + (2 * len(data) // 3).to_bytes(4, "big")
    poke(file_system, file_of(0, "index"), 0, third)
    log, _ = reopen(file_system, clean=True)
    assert log.local.segments.active.offset_index.last_offset == 8 and log.log_end_offset == 0


@pytest.mark.parametrize("position", [-100, 2**31 - 1])
def test_ll17_an_index_entry_outside_the_log_is_no_error_after_an_orderly_stop(position: int) -> None:
    file_system = new_file_system()
    stopped(file_system, 3, clean=True)
    entry = (2**30).to_bytes(4, "big") + position.to_bytes(4, "big", signed=True)
    poke(file_system, file_of(0, "index"), 0, entry)
    log, _ = reopen(file_system, clean=True)
    assert log.log_end_offset == 0 and log.local.segments.active.size_bytes == 3 * SIZE


# Recovery


def test_ll14_damage_in_an_unflushed_segment_ends_the_log_there() -> None:
    file_system = new_file_system()
    stopped(file_system)
    poke(file_system, file_of(3), SIZE + 70, b"\x77")
    log, cuts = reopen(file_system)
    assert log.log_end_offset == 4 and read_offsets(log) == [0, 1, 2, 3]
    assert [(cut.path, cut.position, cut.removed_bytes) for cut in cuts] == [
        (file_of(3), SIZE, 2 * SIZE),
        (file_of(9), 0, 3 * SIZE),
        (file_of(6), 0, 3 * SIZE),
    ]
    assert log.recovered_bytes_removed == 8 * SIZE
    append_each(log, 3)
    assert read_offsets(log) == list(range(7))


def test_ll15_segments_below_the_recovery_point_are_trusted_and_its_own_is_walked_whole() -> None:
    file_system = new_file_system()
    stopped(file_system)
    poke(file_system, file_of(3), 70, b"\x77")
    log, cuts = reopen(file_system, recovery_point=8)
    assert cuts == [] and log.log_end_offset == 12
    log.close_handles()
    # Offset 6 is below the recovery point 8, but in its segment.
    poke(file_system, file_of(6), 70, b"\x77")
    log, cuts = reopen(file_system, recovery_point=8)
    assert log.log_end_offset == 6 and cuts[0].path == file_of(6)


def test_ll16_a_segment_whose_offsets_decrease_is_emptied() -> None:
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(0, 1, 2, 9, 10, 11, 4, 5))
    open_segment(file_system, 20, THREE).close_handlers()
    log, cuts = reopen(file_system)
    assert log.log_end_offset == 0 and log.local.segments.base_offsets == [0]
    assert (cuts[0].position, cuts[0].removed_bytes) == (0, 8 * SIZE)


def test_ll10_a_missing_offset_index_is_rebuilt_even_after_an_orderly_stop() -> None:
    file_system = new_file_system()
    stopped(file_system, clean=True)
    before = read_file(file_system, file_of(3, "index"))
    file_system.unlink(file_of(3, "index"))
    log, cuts = reopen(file_system, clean=True)
    assert cuts == [] and read_offsets(log) == list(range(12))
    log.close()
    assert read_file(file_system, file_of(3, "index")) == before


def test_t39_a_missing_time_index_becomes_an_empty_one_after_an_orderly_stop() -> None:
    file_system = new_file_system()
    stopped(file_system, clean=True)
    file_system.unlink(file_of(3, "timeindex"))
    log, _ = reopen(file_system, clean=True)
    segment = log.local.segments.get(3)
    assert segment is not None and segment.time_index.entries == 0


def test_ll10_an_index_without_its_log_is_deleted() -> None:
    file_system = new_file_system()
    stopped(file_system)
    for suffix in ("index", "timeindex", "txnindex"):
        poke(file_system, file_of(100, suffix), 0, b"x")
    reopen(file_system)
    assert not [name for name in file_system.list(DIRECTORY) if name.startswith(f"{100:020d}")]


def test_ll16_a_greatest_timestamp_below_the_last_index_entry_empties_the_segment() -> None:
    """Kafka's time index refuses its last entry, as the offset index refuses one that goes back."""
    file_system = new_file_system()
    rising = b"".join(batch(offset, timestamp=NOW_MS + offset) for offset in (0, 3, 6, 9))
    raw_segment(file_system, 0, rising + batch(1, timestamp=NOW_MS + 50))
    index_every_third = LogConfig(segment_index_bytes=1200, index_interval_bytes=2 * SIZE)
    log = open_log(file_system, index_every_third)
    assert log.log_end_offset == 0 and log.local.segments.active.size_bytes == 0


def test_ll14_the_snapshots_of_deleted_segments_are_deleted_with_them() -> None:
    """A snapshot at the very offset of the cut is deleted, too.

    Producers are then read from all batches of the log.
    """
    file_system = new_file_system()
    stopped(file_system)
    poke(file_system, file_of(0), 3 * SIZE, b"\x00" * 30)
    poke(file_system, join(DIRECTORY, f"{3:020d}.snapshot"), 0, b"old")
    log, _ = reopen(file_system)
    assert log.log_end_offset == 3
    names = [name for name in file_system.list(DIRECTORY) if name.endswith(".snapshot")]
    assert names == [f"{3:020d}.snapshot"]
    assert read_file(file_system, join(DIRECTORY, names[0])) != b"old"


def test_garbage_in_a_flushed_segment_without_an_index_is_refused_with_its_place() -> None:
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(0, 1, 2**31 + 7, 3, 4), with_index=False)
    raw_segment(file_system, 5, batches(5, 6))
    before = read_file(file_system, file_of(0))
    # The recovery point may be the base of the next segment, as after each roll.
    for clean, recovery_point in ((True, 6), (False, 6), (False, 5)):
        with pytest.raises(CorruptBatch, match="does not fit") as caught:
            reopen(file_system, clean=clean, recovery_point=recovery_point)
        assert (caught.value.path, caught.value.position) == (file_of(0), 2 * SIZE)
        file_system.unlink(file_of(0, "index"))
    assert read_file(file_system, file_of(0)) == before and file_system.exists(file_of(5))


def test_damage_below_the_recovery_point_is_refused_where_it_is_met_and_nothing_is_lost() -> None:
    file_system = new_file_system()
    stopped(file_system)
    poke(file_system, file_of(3), 8, bytes(4))
    for name in file_system.list(DIRECTORY):
        if name.endswith(".snapshot"):
            file_system.unlink(join(DIRECTORY, name))
    with pytest.raises(CorruptBatch) as caught:
        reopen(file_system, recovery_point=9)
    assert (caught.value.path, caught.value.position) == (file_of(3), 0)
    assert file_system.stat(file_of(9)).size_bytes == 3 * SIZE


def test_a_refused_start_leaves_no_handle_that_keeps_the_next_one_away() -> None:
    file_system = new_file_system()
    stopped(file_system)
    poke(file_system, join(DIRECTORY, "leader-epoch-checkpoint"), 0, b"1\n0\n" + b"\n" * 10)
    with pytest.raises(CorruptCheckpoint):
        reopen(file_system)
    file_system.unlink(join(DIRECTORY, "leader-epoch-checkpoint"))
    assert reopen(file_system)[0].log_end_offset == 12


def test_an_error_of_the_disk_while_loading_is_one_clear_error() -> None:
    disk = new_disk()
    file_system = new_file_system(disk)
    stopped(file_system)
    disk.fail(1, verbs={"read"}, path_suffix=".log")
    with pytest.raises(StorageError, match=DIRECTORY):
        reopen(file_system)
    assert reopen(file_system)[0].log_end_offset == 12


# Log start, epochs, producers


def test_ll23_the_log_start_is_the_greater_of_checkpoint_and_first_base() -> None:
    file_system = new_file_system()
    stopped(file_system)
    file_system.unlink(file_of(0))
    log, _ = reopen(file_system)
    assert log.log_start_offset == 3
    log.close_handles()
    assert reopen(file_system, log_start_offset=5)[0].log_start_offset == 5


def test_t43_a_log_start_beyond_the_end_empties_the_log() -> None:
    file_system = new_file_system()
    stopped(file_system)
    log, cuts = reopen(file_system, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert log.local.segments.base_offsets == [50] and sum(cut.removed_bytes for cut in cuts) == 12 * SIZE
    assert log.epochs.entries == []


def test_t44_epochs_are_clipped_at_both_ends() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    for epoch in (1, 2, 3):
        append_each(log, 3, epoch=epoch)
    log.appends.assign_epoch(9, 9)
    log.close_handles()
    log, _ = reopen(file_system, log_start_offset=4)
    assert [tuple(entry) for entry in log.epochs.entries] == [(2, 4), (3, 6)]


def test_epochs_are_found_again_in_the_log() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    for epoch in (1, 2, 3):
        append_each(log, 3, epoch=epoch)
    log.close_handles()
    file_system.unlink(join(DIRECTORY, "leader-epoch-checkpoint"))
    log, _ = reopen(file_system)
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0), (2, 3), (3, 6)]


@pytest.mark.parametrize("clean", [False, True])
def test_ll25_producers_are_as_before_with_snapshots_damaged_or_lost(clean: bool) -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    for sequence in range(10):
        data = produced(producer_id=3, producer_epoch=1, sequence=sequence)
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    log.close()
    newest = f"{10:020d}.snapshot"
    poke(file_system, join(DIRECTORY, newest), 12, b"\xff\xff")
    log, _ = reopen(file_system, clean=clean)
    entry = log.producers.last_entry(3)
    assert entry is not None and (entry.producer_epoch, entry.last_sequence) == (1, 9)


# Leftovers of a crash


def test_ll6_deleted_and_cleaned_files_are_removed() -> None:
    file_system = new_file_system()
    stopped(file_system)
    for suffix in ("deleted", "cleaned"):
        copy(file_system, file_of(3), file_of(3, "log." + suffix))
        copy(file_system, file_of(3, "index"), file_of(3, "index." + suffix))
    poke(file_system, join(DIRECTORY, "0-0.checkpoint.deleted"), 0, b"x")
    log, _ = reopen(file_system)
    assert read_offsets(log) == list(range(12))
    left = [name for name in file_system.list(DIRECTORY) if name.endswith((".deleted", ".cleaned"))]
    assert left == ["0-0.checkpoint.deleted"]


def test_ll6_a_swap_at_or_above_the_least_cleaned_file_is_undone() -> None:
    file_system = new_file_system()
    stopped(file_system)
    copy(file_system, file_of(3), file_of(3, "log.cleaned"))
    poke(file_system, file_of(6, "log.swap"), 0, b"unfinished")
    log, _ = reopen(file_system)
    assert read_offsets(log) == list(range(12))


def test_ll8_a_whole_swap_replaces_all_files_in_its_range() -> None:
    file_system = new_file_system()
    stopped(file_system)
    # Offsets 3 to 8 were compacted into one segment of the offsets 4 and 8.
    swap = file_of(3, "log.swap")
    poke(file_system, swap, 0, batch(4) + batch(8))
    log, _ = reopen(file_system)
    assert read_offsets(log) == [0, 1, 2, 4, 8, 9, 10, 11]
    assert log.local.segments.base_offsets == [0, 3, 9]
    assert not [name for name in file_system.list(DIRECTORY) if name.endswith(".swap")]


def test_t42_a_file_that_is_named_by_a_number_alone_is_not_replaced_by_a_swap() -> None:
    file_system = new_file_system()
    stopped(file_system)
    poke(file_system, file_of(3, "log.swap"), 0, batch(4) + batch(8))
    for name in ("4", "5.mine"):
        poke(file_system, join(DIRECTORY, name), 0, b"mine")
    reopen(file_system)
    # All that has a number before a dot counts as a file of the segments that the swap replaces.
    assert {"4", "5.mine"} & set(file_system.list(DIRECTORY)) == {"4"}


def test_t42_unknown_files_are_left_alone() -> None:
    file_system = new_file_system()
    stopped(file_system)
    for name in ("notes.txt", "partition.metadata.tmp", "x.log.bak"):
        poke(file_system, join(DIRECTORY, name), 0, b"mine")
    reopen(file_system)
    assert {"notes.txt", "partition.metadata.tmp", "x.log.bak"} <= set(file_system.list(DIRECTORY))


def test_ll13_a_directory_about_to_be_deleted_is_not_recovered() -> None:
    file_system = new_file_system()
    directory = "logs/topic-0." + "a" * 32 + "-delete"
    file_system.make_directory(directory)
    log = open_log(file_system, THREE, directory=directory)
    assert (log.local.segments.base_offsets, log.log_end_offset) == ([0], 0)


def test_a_power_loss_at_any_call_of_a_start_can_be_recovered_from() -> None:
    disk = new_disk()
    file_system = new_file_system(disk)
    stopped(file_system)
    poke(file_system, file_of(6), SIZE + 70, b"\x77")
    file_system.sync_directory("")
    file_system.sync_directory("logs")
    call = 0
    while True:
        call += 1
        twin = disk.snapshot()
        twin.arm_crash(call)
        try:
            open_log(twin.file_system(Life()), THREE)
        except Dead:
            pass
        else:
            break
        twin.crash_process()
        log = open_log(twin.file_system(Life()), THREE)
        assert read_offsets(log) == list(range(7)), call
    assert call > 20
