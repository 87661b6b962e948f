"""A reader of a log on a simulated disk sees what is new there, although it does not look at everything each time."""

from __future__ import annotations

import pytest

from sim.disk import SimDisk
from sim.disk.life import Life
from sim.witness.log_reader import NO_BATCHES, DiskEye, LogReader
from storage.batch import Record, build_batch
from storage.disk.filesystem import OpenMode
from storage.draws import Draws


def batch(offset: int, value: bytes = b"v") -> bytes:
    return bytes(build_batch([Record(offset, 5, None, value)], base_offset=offset, partition_leader_epoch=0))


class Log:
    """A log on a disk of its own, and a reader of it."""

    def __init__(self, *, is_compacted: bool = False, is_preallocated: bool = False) -> None:
        self.disk = SimDisk(Draws(1), lambda: 0)
        self.file_system = self.disk.file_system(Life())
        self.file_system.make_directory("data/t-0")
        self.reader = LogReader(
            DiskEye(self.disk), "data/t-0", is_compacted=is_compacted, is_preallocated=is_preallocated
        )

    def append(self, base_offset: int, *batches: bytes, name: str = "") -> None:
        """Append to the segment of that base offset, and make all durable."""
        path = f"data/t-0/{base_offset:020d}.log{name}"
        file = self.file_system.open(path, OpenMode.CREATE)
        file.append(b"".join(batches))
        file.close()
        self.disk.sync_all()

    def lengthen(self, base_offset: int, size_bytes: int) -> None:
        """Give the segment of that base offset this length, with zeros behind what was written to it."""
        file = self.file_system.open(f"data/t-0/{base_offset:020d}.log", OpenMode.CREATE)
        file.set_length(size_bytes)
        file.close()

    def read(self) -> list[int]:
        """Returns the base offsets of the batches that were not read before."""
        return [mark.base_offset for mark in self.reader.read_on()]


def test_a_file_that_follows_later_is_read() -> None:
    log = Log()
    assert log.read() == []
    log.append(0, batch(0), batch(1))
    assert log.read() == [0, 1]
    assert log.read() == []
    log.append(2, batch(2))
    assert log.read() == [2]
    log.append(2, batch(3))
    log.append(4, batch(4))
    assert log.read() == [3, 4]


@pytest.mark.parametrize(
    ("offsets", "base"), [((4, 5, 0), 4), ((4, 5, 5), 4), ((4, 5, 7), None), ((4, 5, 6), None)]
)
def test_ll16_the_segment_is_named_in_which_offsets_go_back(
    offsets: tuple[int, ...], base: int | None
) -> None:
    log = Log()
    log.append(0, *map(batch, range(4)))
    log.append(4, *map(batch, offsets))
    found = log.reader.read_all()
    assert log.reader.step_back == base
    assert [mark.base_offset for mark in found][:6] == [0, 1, 2, 3, 4, 5]
    log.append(4, b"")
    log.file_system.unlink(f"data/t-0/{4:020d}.log")
    log.reader.read_all()
    assert log.reader.step_back is None


def test_after_a_cut_the_files_after_it_are_read_again() -> None:
    log = Log()
    log.append(0, batch(0))
    log.append(1, batch(1))
    assert log.read() == [0, 1]
    log.file_system.unlink(f"data/t-0/{1:020d}.log")
    log.reader.truncated(1)
    assert log.read() == []
    log.append(1, batch(1, b"other"))
    assert log.read() == [1]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_what_a_step_has_appended_after_its_cut_is_new(*, is_compacted: bool) -> None:
    """A follower cuts its log to where the records begin that it gets, and appends them, before anybody looks."""
    log = Log(is_compacted=is_compacted)
    log.append(9, batch(9))
    assert log.read() == [9]
    log.file_system.unlink(f"data/t-0/{9:020d}.log")
    log.append(8, batch(8), batch(9, b"other"))
    log.reader.truncated(8)
    assert log.read() == [8, 9]


def test_batches_that_have_moved_to_another_file_are_found_there() -> None:
    log = Log()
    log.append(0, batch(0), batch(1))
    log.read()
    assert log.reader.durable_end() == 2
    log.append(0, batch(2))
    log.read()
    log.append(0, batch(1), batch(2), name=".swap")
    log.file_system.rename(f"data/t-0/{0:020d}.log.swap", f"data/t-0/{0:020d}.log")
    log.disk.sync_all()
    assert log.reader.durable_end() == 3
    assert [place.mark.base_offset for place in log.reader.places] == [1, 2]


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ((), [3, 4]),
        # The next start deletes old segments in the place of the new one, and keeps what it was made of while it lives.
        (((2, "", 2, 3),), [3, 4]),
        (((1, "", 1, 2, 3),), [1, 2, 3, 4]),
        # One that is not complete makes it undo all.
        (((0, ".cleaned", 3), (2, "", 2, 3)), [2, 3, 4]),
    ],
)
def test_ll28_a_segment_that_waits_as_a_swap_is_one_of_the_log(
    others: tuple[tuple[int, str, *tuple[int, ...]], ...], expected: list[int]
) -> None:
    log = Log(is_compacted=True)
    log.append(1, batch(3), name=".swap")
    log.append(4, batch(4))
    for base_offset, name, *offsets in others:
        log.append(base_offset, *map(batch, offsets), name=name)
    assert [mark.base_offset for mark in log.reader.read_all()] == expected
    if not others:
        assert log.reader.base_offset() == 1
        log.file_system.rename(f"data/t-0/{1:020d}.log.swap", f"data/t-0/{1:020d}.log")
        log.append(4, batch(5))
        assert log.read() == [5]


def test_t25_a_cut_within_a_batch_takes_it_whole_and_the_next_one_begins_behind_a_gap() -> None:
    log = Log()
    two = build_batch(
        [Record(1, 5, None, b"a"), Record(2, 5, None, b"b")], base_offset=1, partition_leader_epoch=0
    )
    log.append(0, batch(0), bytes(two))
    assert log.read() == [0, 1]
    file = log.file_system.open(f"data/t-0/{0:020d}.log", OpenMode.WRITE)
    file.truncate(len(batch(0)))
    file.close()
    log.reader.truncated(2)
    log.append(0, batch(2))
    assert [mark.base_offset for mark in log.reader.read_all()] == [0, 2]
    assert not log.reader.unsound
    # Only there: any other gap is one.
    log.append(0, batch(4))
    log.reader.read_all()
    assert log.reader.unsound.endswith("offset 4 follows 2")


def preallocated(size_bytes: int) -> Log:
    """Returns a log of two batches in a file of that length, of a topic whose segments are preallocated."""
    log = Log(is_preallocated=True)
    log.append(0, batch(0), batch(1))
    log.lengthen(0, size_bytes)
    return log


def test_fr1_the_room_of_a_preallocated_segment_is_no_damage() -> None:
    log = preallocated(1 << 30)
    assert [mark.base_offset for mark in log.reader.read_all()] == [0, 1]
    assert log.reader.unsound == ""
    assert log.reader.durable_end() == 2
    place = log.reader.places[-1]
    file = log.file_system.open(f"data/t-0/{0:020d}.log", OpenMode.WRITE)
    file.write_at(place.position + place.size_bytes, batch(2))
    assert log.read() == [2]


@pytest.mark.parametrize(("missing", "found"), [(1, [0, 1, 2]), (2, [0, 1])])
def test_a_write_into_room_torn_before_the_last_zero_of_a_batch_leaves_it_whole(
    missing: int, found: list[int]
) -> None:
    log = preallocated(4096)
    assert log.read() == [0, 1]
    place, whole = log.reader.places[-1], batch(2)
    assert whole[-2:-1] != b"\0" == whole[-1:]
    file = log.file_system.open(f"data/t-0/{0:020d}.log", OpenMode.WRITE)
    file.write_at(place.position + place.size_bytes, whole[:-missing])
    log.disk.sync_all()
    assert log.read() == found[2:]
    assert log.reader.durable_end() == len(found)
    assert [data for _, data in log.reader.batches(1)] == [whole if missing == 1 else batch(1)]
    assert [mark.base_offset for mark in log.reader.read_all()] == found


def test_zeros_at_the_end_of_any_other_segment_are_damage() -> None:
    log = Log()
    log.append(0, batch(0), batch(1))
    log.lengthen(0, 4096)
    log.reader.read_all()
    assert "no batch" in log.reader.unsound


def test_bytes_in_the_room_of_a_preallocated_segment_are_damage() -> None:
    log = preallocated(4096)
    log.append(0, b"x")
    log.reader.read_all()
    assert "no batch" in log.reader.unsound


def test_fr6_a_sealed_segment_that_keeps_its_room_is_damaged() -> None:
    log = preallocated(4096)
    log.append(2, batch(2))
    log.reader.read_all()
    assert log.reader.unsound.endswith(NO_BATCHES)
    assert [place.mark.base_offset for place in log.reader.places] == [0, 1]


def test_the_room_of_a_deleted_segment_s_successor_is_no_part_of_the_log_s_size() -> None:
    log = preallocated(4096)
    file = log.file_system.open(f"data/t-0/{0:020d}.log", OpenMode.WRITE)
    file.set_length(2 * len(batch(0)))
    log.append(2, batch(2))
    log.lengthen(2, 4096)
    log.reader.read_on()
    log.file_system.unlink(f"data/t-0/{0:020d}.log")
    path = log.reader.places[0].path
    assert log.reader.deleted_segments() == ((path, 2, 5, len(batch(2))),)
