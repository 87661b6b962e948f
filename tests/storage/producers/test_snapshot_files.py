"""The snapshot files of one log: which are known, read and deleted, and what is on the disk then."""

from __future__ import annotations

import pytest

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.disk.filesystem import FileSystem, OpenMode
from storage.producers.entry import ProducerStateEntry
from storage.producers.rows import encode_entries
from storage.producers.snapshot_files import SnapshotFiles
from storage.segment import LogSegment
from tests.storage.logs import SMALL
from tests.storage.producers.producers import NOW, names, new_disk, write_garbage


def with_snapshots(*offsets: int) -> tuple[SimDisk, FileSystem, SnapshotFiles]:
    """Return snapshots at `offsets`, each with a producer of that number."""
    disk, file_system = new_disk()
    files = SnapshotFiles(file_system, "/log")
    for offset in offsets:
        files.write(offset, encode_entries([ProducerStateEntry(offset, last_timestamp=NOW)]))
    file_system.sync_directory("/log")
    return disk, file_system, files


def survivors(disk: SimDisk) -> list[int]:
    """Return the snapshots that a power loss leaves which keeps nothing that was not synced."""
    disk.lose_power("none")
    return names(disk.file_system(Life()))


def test_offsets_are_known_in_ascending_order_whatever_the_order_of_writing() -> None:
    _, file_system, files = with_snapshots(30, 10, 20)
    assert files.offsets == names(file_system) == [10, 20, 30]
    assert (files.oldest_offset, files.latest_offset) == (10, 30)
    assert SnapshotFiles(file_system, "/log").offsets == [10, 20, 30]


def test_without_snapshots_there_is_no_oldest_no_latest_and_none_to_read() -> None:
    _, _, files = with_snapshots()
    assert (files.oldest_offset, files.latest_offset, files.read_newest()) == (None, None, None)


def test_a_list_that_is_handed_over_is_believed_and_not_changed() -> None:
    _, file_system, _ = with_snapshots(10, 20)
    given = [20]
    files = SnapshotFiles(file_system, "/log", given)
    assert files.offsets == [20]
    files.delete_all()
    assert (given, names(file_system)) == ([20], [10])
    files.offsets.append(5)
    assert files.offsets == []


def test_a_snapshot_that_is_written_again_is_known_once() -> None:
    _, _, files = with_snapshots(10, 10)
    files.note(10)
    assert files.offsets == [10]


def test_ps16_only_snapshots_above_the_log_start_and_not_above_the_end_count() -> None:
    _, _, files = with_snapshots(10, 20, 30, 40)
    assert files.offsets_within(10, 30) == [20, 30]
    assert files.offsets_within(9, 29) == [10, 20]
    assert files.offsets_within(40, 50) == []


def test_ps16_snapshots_outside_the_log_are_deleted() -> None:
    disk, file_system, files = with_snapshots(10, 20, 30, 40)
    files.delete_outside(10, 30)
    assert files.offsets == names(file_system) == [20, 30]
    assert survivors(disk) == [20, 30]


@pytest.mark.parametrize(("start", "end"), [(40, 50), (0, 9), (20, 20)])
def test_ps16_a_log_that_holds_no_snapshot_keeps_none(start: int, end: int) -> None:
    _, file_system, files = with_snapshots(10, 20, 30, 40)
    files.delete_outside(start, end)
    assert files.offsets == names(file_system) == []


def test_the_newest_snapshot_that_loads_is_read_and_those_above_it_are_deleted() -> None:
    disk, file_system, files = with_snapshots(10, 20)
    write_garbage(file_system, 30, b"\0\1")
    files.reload()
    # It is known, and somebody else has deleted it.
    files.note(40)
    read = files.read_newest()
    assert read is not None
    offset, rows = read
    assert (offset, list(rows.producer_ids())) == (20, [20])
    assert files.offsets == names(file_system) == [10, 20]
    assert survivors(disk) == [10, 20]


def test_ps20_the_snapshot_at_the_offset_itself_is_kept() -> None:
    disk, file_system, files = with_snapshots(10, 20, 30)
    files.delete_before(20)
    assert files.offsets == names(file_system) == [20, 30]
    assert survivors(disk) == [20, 30]


def test_ps19_snapshots_at_no_segment_are_deleted_but_the_newest_above_all() -> None:
    _, file_system, files = with_snapshots(5, 10, 15, 20, 25, 30)
    files.delete_strays([0, 10, 20])
    assert files.offsets == names(file_system) == [10, 20, 30]


def test_ps19_a_newest_snapshot_below_the_last_segment_is_a_stray_too() -> None:
    _, file_system, files = with_snapshots(5, 10)
    files.delete_strays([0, 10, 20])
    assert files.offsets == names(file_system) == [10]
    files.delete_strays([])
    # Without a segment it may be that of the stop.
    assert files.offsets == [10]


def test_ps19_strays_are_looked_for_on_the_disk() -> None:
    _, file_system, files = with_snapshots(10, 20)
    SnapshotFiles(file_system, "/log").write(15, b"")
    files.delete_strays([10, 20])
    assert names(file_system) == [10, 20]


def test_ps20_a_snapshot_that_is_marked_for_deletion_is_forgotten_and_renamed() -> None:
    _, file_system, files = with_snapshots(10, 20)
    marked = files.mark_for_deletion(10)
    assert marked is not None and marked.endswith("00010.snapshot.deleted")
    assert file_system.exists(marked)
    assert files.offsets == names(file_system) == [20]
    assert files.mark_for_deletion(10) is None
    # One that somebody else has deleted is forgotten all the same.
    files.note(5)
    assert (files.mark_for_deletion(5), files.offsets) == (None, [20])


def test_snapshots_of_deleted_segments_are_deleted_and_no_others() -> None:
    _, file_system, files = with_snapshots(10, 20, 30)
    segments = [LogSegment.open(file_system, "/log", offset, SMALL, NOW) for offset in (10, 25, 30)]
    files.delete_of(segments)
    assert files.offsets == [20]
    assert [name for name in file_system.list("/log") if ".snapshot" in name] == [f"{20:020d}.snapshot"]


def test_files_are_looked_for_under_the_new_name_of_the_directory() -> None:
    _, file_system, files = with_snapshots(10)
    file_system.rename("/log", "/moved")
    files.update_parent_directory("/moved")
    assert files.read_newest() is not None
    files.delete_all()
    assert file_system.list("/moved") == []


def test_a_snapshot_is_on_the_disk_once_it_is_written() -> None:
    disk, file_system, files = with_snapshots()
    path = files.write(10, encode_entries([ProducerStateEntry(1)]))
    assert path == f"/log/{10:020d}.snapshot"
    file_system.sync_directory("/log")
    disk.lose_power("none")
    assert SnapshotFiles(disk.file_system(Life()), "/log").read_newest() is not None


def test_an_error_at_the_write_leaves_the_snapshot_unknown() -> None:
    disk, _, files = with_snapshots(10)
    disk.fail(1)
    with pytest.raises(OSError):
        files.write(20, b"")
    assert files.offsets == [10]


def test_deleting_nothing_does_not_touch_the_disk() -> None:
    disk, _, files = with_snapshots(10)
    disk.fail(1)
    files.delete_before(10)
    files.delete_outside(0, 10)
    files.delete_strays([10])
    files.delete_of([])
    assert files.offsets == [10]
    with pytest.raises(OSError):
        files.delete_all()


def test_rows_of_an_empty_snapshot_are_none() -> None:
    _, file_system, files = with_snapshots()
    files.write(10, encode_entries([]))
    read = files.read_newest()
    assert read is not None and read[1].left == 0
    file = file_system.open(f"/log/{10:020d}.snapshot", OpenMode.READ)
    assert file.size() > 0
    file.close()
