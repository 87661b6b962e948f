"""Start-up of a partition. Kafka: LogLoaderTest; rules LL6 to LL26."""

from __future__ import annotations

import pytest

from sim.crash import Dead, Life
from sim.disk import SimFileSystem
from storage.config import LogConfig
from storage.errors import CorruptBatch, CorruptCheckpoint, StorageError
from storage.filesystem import join, read_file
from storage.log import PartitionLog
from storage.recovery_cut import RecoveryCut
from tests.storage.log_helpers import (
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
from tests.storage.start_up_helpers import copy, file_of, poke, stopped


def raw_segment(
    file_system: SimFileSystem, base_offset: int, data: bytes, *, with_index: bool = True
) -> None:
    segment = open_segment(file_system, base_offset, THREE)
    segment.records.append(data)
    if with_index:
        assert segment.offset_index.entries == segment.time_index.entries == 0
        segment.offset_index.resize(0)
        segment.time_index.resize(0)
    segment.close_handlers()


def batches(*offsets: int) -> bytes:
    return b"".join(batch(offset) for offset in offsets)


def reopen(file_system: SimFileSystem, **fields: int | bool) -> tuple[PartitionLog, list[RecoveryCut]]:
    cuts: list[RecoveryCut] = []
    log = open_log(
        file_system,
        THREE,
        clean=bool(fields.get("clean", False)),
        recovery_point=int(fields.get("recovery_point", 0)),
        log_start_offset=int(fields.get("log_start_offset", 0)),
        cuts=cuts,
    )
    return log, cuts


# Nothing, and after an orderly stop


def test_ll19_a_new_log_starts_at_the_log_start_offset() -> None:
    log, cuts = reopen(new_file_system(), log_start_offset=500)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (500, 500, 500)
    assert log.segments.base_offsets == [500] and cuts == []


def test_ll17_after_an_orderly_stop_nothing_is_scanned() -> None:
    file_system = new_file_system()
    stopped(file_system, clean=True)
    poke(file_system, file_of(3), 70, b"\x77")
    log, cuts = reopen(file_system, clean=True)
    assert cuts == [] and log.log_end_offset == 12 and log.recovery_point == 12


def test_ll20_a_clean_start_takes_the_end_as_recovery_point_and_an_unclean_one_the_lesser() -> None:
    file_system = new_file_system()
    stopped(file_system)
    log, _ = reopen(file_system, recovery_point=5)
    assert log.recovery_point == 5
    log.close_handles()
    assert reopen(file_system, recovery_point=500)[0].recovery_point == 12


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
    assert not log.active_segment.offset_index.is_full
    append_each(log, 9)
    assert read_offsets(log) == list(range(21))


def test_indexes_with_more_entries_than_the_configuration_allows_are_made_anew() -> None:
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
def test_where_indexes_are_made_anew_offsets_that_go_back_cost_only_what_follows(
    sound: tuple[int, ...], back: tuple[int, ...]
) -> None:
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(*sound, *back))
    poke(file_system, file_of(0, "index"), 0, b"\x00\x00\x00\x01" * 400)
    log, cuts = reopen(file_system, clean=True)
    assert log.log_end_offset == len(sound) and read_offsets(log) == list(sound)
    assert [(cut.position, cut.removed_bytes) for cut in cuts] == [(len(sound) * SIZE, len(back) * SIZE)]


def test_ls9_after_an_orderly_stop_an_index_that_no_batch_bears_out_ends_the_log_at_its_base() -> None:
    """As Kafka: the end is looked for from the last index entry on, and where offsets go back it is not found."""
    file_system = new_file_system()
    data = b"".join(batch(offset, count=3) for offset in (0, 3, 6))
    raw_segment(file_system, 0, data + batch(1))
    third = (8).to_bytes(4, "big") + (2 * len(data) // 3).to_bytes(4, "big")
    poke(file_system, file_of(0, "index"), 0, third)
    log, _ = reopen(file_system, clean=True)
    assert log.active_segment.offset_index.last_offset == 8 and log.log_end_offset == 0


@pytest.mark.parametrize("position", [-100, 2**31 - 1])
def test_ll17_an_index_entry_outside_the_log_is_no_error_after_an_orderly_stop(position: int) -> None:
    file_system = new_file_system()
    stopped(file_system, 3, clean=True)
    entry = (2**30).to_bytes(4, "big") + position.to_bytes(4, "big", signed=True)
    poke(file_system, file_of(0, "index"), 0, entry)
    log, _ = reopen(file_system, clean=True)
    assert log.log_end_offset == 0 and log.active_segment.size_bytes == 3 * SIZE


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
    poke(file_system, file_of(6), 70, b"\x77")  # offset 6, below the recovery point 8, in its segment
    log, cuts = reopen(file_system, recovery_point=8)
    assert log.log_end_offset == 6 and cuts[0].path == file_of(6)


def test_ll16_a_segment_whose_offsets_go_back_is_emptied() -> None:
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(0, 1, 2, 9, 10, 11, 4, 5))
    open_segment(file_system, 20, THREE).close_handlers()
    log, cuts = reopen(file_system)
    assert log.log_end_offset == 0 and log.segments.base_offsets == [0]
    assert (cuts[0].position, cuts[0].removed_bytes) == (0, 8 * SIZE)


def test_ll10_a_missing_offset_index_is_built_anew_even_after_an_orderly_stop() -> None:
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
    segment = log.segments.get(3)
    assert segment is not None and segment.time_index.entries == 0


def test_ll10_an_index_without_its_log_is_deleted() -> None:
    file_system = new_file_system()
    stopped(file_system)
    for suffix in ("index", "timeindex", "txnindex"):
        poke(file_system, file_of(100, suffix), 0, b"x")
    reopen(file_system)
    assert not [name for name in file_system.list(DIRECTORY) if name.startswith(f"{100:020d}")]


# Offsets that do not fit their segment

FAR = 2**31
COMPACTED = LogConfig(segment_bytes=3 * SIZE, segment_index_bytes=1200, cleanup_policy="compact")


@pytest.mark.covers("LogLoaderTest.testRecoveryOfSegmentWithOffsetOverflow")
@pytest.mark.parametrize("with_index", [True, False])
def test_ll12_a_segment_that_overflows_is_split(with_index: bool) -> None:
    """With an index it is met in recovery, without one as the segments are opened."""
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(0, 1, FAR - 2))
    raw_segment(
        file_system, FAR, batches(FAR, FAR + 1, 2 * FAR - 1, 2 * FAR, 2 * FAR + 1), with_index=with_index
    )
    raw_segment(file_system, 3 * FAR, batches(3 * FAR, 3 * FAR + 1))
    log, cuts = reopen(file_system)
    assert log.segments.base_offsets == [0, FAR, 2 * FAR, 3 * FAR] and cuts == []
    assert read_offsets(log) == [
        *(0, 1, FAR - 2),
        *(FAR, FAR + 1, 2 * FAR - 1, 2 * FAR, 2 * FAR + 1),
        *(3 * FAR, 3 * FAR + 1),
    ]
    assert not [name for name in file_system.list(DIRECTORY) if name.count(".") > 1]


def test_kafka_6264_a_compacted_log_whose_last_batch_alone_overflows_is_split_too() -> None:
    file_system = new_file_system()
    raw_segment(file_system, 0, ended_by_garbage(505))
    log = open_log(file_system, COMPACTED)
    assert log.segments.base_offsets == [0, 0x3F52_0000_0000_001C]


def test_ll12_a_split_forgets_the_snapshot_of_a_base_offset_that_is_gone() -> None:
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(FAR + 5, FAR + 6))  # nothing fits: one new segment, none at 0
    poke(file_system, join(DIRECTORY, f"{0:020d}.snapshot"), 0, b"junk")
    log, _ = reopen(file_system)
    assert log.segments.base_offsets == [FAR + 5] and read_offsets(log) == [FAR + 5, FAR + 6]
    assert f"{0:020d}.snapshot" not in file_system.list(DIRECTORY)


def ended_by_garbage(position: int) -> bytes:
    """Offsets 0 to 2, then at byte `position` a sound batch at an offset of garbage."""
    front = batches(0, 1) + batch(2, value_bytes=8 + position - 3 * SIZE)  # two lengths take a byte more
    assert len(front) == position, (len(front), position)
    return front + batch(0x3F52_0000_0000_001C)


@pytest.mark.parametrize("position", [505, 510, 1023])
def test_a_torn_header_at_the_end_of_the_log_is_cut(position: int) -> None:
    """No checksum covers the base offset: a tear inside it leaves a sound batch at an offset of garbage."""
    file_system = new_file_system()
    raw_segment(file_system, 0, ended_by_garbage(position))
    log, cuts = reopen(file_system)
    assert read_offsets(log) == [0, 1, 2] and log.log_end_offset == 3
    assert [(cut.position, cut.removed_bytes) for cut in cuts] == [(position, SIZE)]
    assert "does not fit" in cuts[0].reason
    append_each(log, 1)
    assert read_offsets(log) == [0, 1, 2, 3]


@pytest.mark.parametrize("position", [503, 512])
def test_ll12_where_no_sector_ends_in_the_offset_it_cannot_be_torn_and_the_segment_is_split(
    position: int,
) -> None:
    file_system = new_file_system()
    raw_segment(file_system, 0, ended_by_garbage(position))
    log, cuts = reopen(file_system)
    assert log.segments.base_offsets == [0, 0x3F52_0000_0000_001C] and cuts == []


def test_ll12_before_the_last_segment_nothing_is_torn_and_an_overflow_is_split() -> None:
    file_system = new_file_system()
    raw_segment(file_system, 0, ended_by_garbage(505))
    raw_segment(file_system, 3, batches(3, 4))
    log, cuts = reopen(file_system)
    assert log.segments.base_offsets == [0, 3, 0x3F52_0000_0000_001C] and cuts == []


def test_kafka_905_offsets_that_go_back_in_a_segment_without_an_index_cost_only_what_follows() -> None:
    """With the index there the segment is emptied, as Kafka does (LL16); without it Kafka does not start."""
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(0, 1, 2, 3, 4, 5, 2, 3, 6), with_index=False)
    log, cuts = reopen(file_system)
    assert read_offsets(log) == [0, 1, 2, 3, 4, 5]
    assert [(cut.position, cut.removed_bytes) for cut in cuts] == [(6 * SIZE, 3 * SIZE)]


@pytest.mark.parametrize("with_index", [True, False])
def test_garbage_that_a_split_cannot_help_is_cut_with_all_that_follows(with_index: bool) -> None:
    """Kafka: a split of a segment that does not overflow, and no start."""
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(0, 1, FAR + 7, 3, 4), with_index=with_index)
    raw_segment(file_system, 5, batches(5, 6))
    log, cuts = reopen(file_system)
    assert read_offsets(log) == [0, 1] and log.segments.base_offsets == [0]
    assert {(cut.path, cut.position, cut.removed_bytes) for cut in cuts} == {
        (file_of(5), 0, 2 * SIZE),
        (file_of(0), 2 * SIZE, 3 * SIZE),
    }


@pytest.mark.parametrize("tail", [b"\x00" * 70, b"\x01" * 5, batch(9)[:40]])
def test_a_segment_that_overflows_and_is_torn_is_cut_and_then_split(tail: bytes) -> None:
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(0, 1, FAR, FAR + 1) + tail)
    log, cuts = reopen(file_system)
    assert read_offsets(log) == [0, 1, FAR, FAR + 1] and log.segments.base_offsets == [0, FAR]
    assert [(cut.position, cut.removed_bytes) for cut in cuts] == [(4 * SIZE, len(tail))]


def test_garbage_and_a_torn_tail_behind_it_are_cut_one_after_the_other() -> None:
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(0, 1, FAR + 7, 3, 4) + b"\x00" * 70)
    log, cuts = reopen(file_system)
    assert read_offsets(log) == [0, 1]
    assert [(cut.position, cut.removed_bytes) for cut in cuts] == [(5 * SIZE, 70), (2 * SIZE, 3 * SIZE)]


def test_ll16_a_greatest_timestamp_below_the_last_index_entry_empties_the_segment() -> None:
    """Kafka: the time index refuses its last entry as the offset index refuses one that goes back."""
    file_system = new_file_system()
    rising = b"".join(batch(offset, timestamp=NOW_MS + offset) for offset in (0, 3, 6, 9))
    raw_segment(file_system, 0, rising + batch(1, timestamp=NOW_MS + 50))
    index_every_third = LogConfig(segment_index_bytes=1200, index_interval_bytes=2 * SIZE)
    log = open_log(file_system, index_every_third)
    assert log.log_end_offset == 0 and log.active_segment.size_bytes == 0


def test_ll14_the_snapshots_of_deleted_segments_go_with_them() -> None:
    """Also one at the very offset of the cut: producers are read from the log then, all their batches."""
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
    raw_segment(file_system, 0, batches(0, 1, FAR + 7, 3, 4), with_index=False)
    raw_segment(file_system, 5, batches(5, 6))
    before = read_file(file_system, file_of(0))
    for clean in (True, False):
        with pytest.raises(CorruptBatch, match="does not fit") as caught:
            reopen(file_system, clean=clean, recovery_point=6)
        assert (caught.value.path, caught.value.position) == (file_of(0), 2 * SIZE)
        file_system.unlink(file_of(0, "index"))
    assert read_file(file_system, file_of(0)) == before and file_system.exists(file_of(5))


def test_a_split_onto_another_segment_is_no_split() -> None:
    """Its files would replace that segment's."""
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(0, 1, FAR, FAR + 1))
    raw_segment(file_system, FAR, batches(FAR, FAR + 1, FAR + 2))
    log, cuts = reopen(file_system)
    assert read_offsets(log) == [0, 1] and sum(cut.removed_bytes for cut in cuts) == 5 * SIZE


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
    assert log.segments.base_offsets == [50] and sum(cut.removed_bytes for cut in cuts) == 12 * SIZE
    assert log.leader_epochs.entries == []


def test_t44_epochs_are_clipped_at_both_ends() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    for epoch in (1, 2, 3):
        append_each(log, 3, epoch=epoch)
    log.assign_epoch(9, 9)
    log.close_handles()
    log, _ = reopen(file_system, log_start_offset=4)
    assert [tuple(entry) for entry in log.leader_epochs.entries] == [(2, 4), (3, 6)]


def test_epochs_are_found_again_in_the_log() -> None:
    file_system = new_file_system()
    log = open_log(file_system, THREE)
    for epoch in (1, 2, 3):
        append_each(log, 3, epoch=epoch)
    log.close_handles()
    file_system.unlink(join(DIRECTORY, "leader-epoch-checkpoint"))
    log, _ = reopen(file_system)
    assert [tuple(entry) for entry in log.leader_epochs.entries] == [(1, 0), (2, 3), (3, 6)]


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
    entry = log.producer_state.last_entry(3)
    assert entry is not None and (entry.producer_epoch, entry.last_sequence) == (1, 9)


# Leftovers of a crash


def test_ll6_deleted_and_cleaned_files_go() -> None:
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


def test_ll8_a_whole_swap_wins_over_what_lies_in_its_range() -> None:
    file_system = new_file_system()
    stopped(file_system)
    # 3 to 8 were compacted into one segment of the offsets 4 and 8
    swap = file_of(3, "log.swap")
    poke(file_system, swap, 0, batch(4) + batch(8))
    log, _ = reopen(file_system)
    assert read_offsets(log) == [0, 1, 2, 4, 8, 9, 10, 11]
    assert log.segments.base_offsets == [0, 3, 9]
    assert not [name for name in file_system.list(DIRECTORY) if name.endswith(".swap")]


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
    assert (log.segments.base_offsets, log.log_end_offset) == ([0], 0)


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
