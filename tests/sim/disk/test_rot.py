"""Bytes that change on a disk at rest: only what was synced, always the same, and through every power loss."""

from __future__ import annotations

import pytest

from sim.disk import SimDisk, SimFile
from sim.disk.life import Life
from sim.disk.rot import Extent
from storage.disk.filesystem import OpenMode
from storage.draws import Draws


def disk_with(synced: bytes, pending: bytes = b"") -> tuple[SimDisk, SimFile]:
    disk = SimDisk(Draws(1), lambda: 0)
    files = disk.file_system(Life("first"))
    file = files.open("a", OpenMode.CREATE_NEW)
    files.sync_directory("")
    file.append(synced)
    file.sync()
    file.append(pending)
    return disk, file


@pytest.mark.parametrize(("extent", "size"), [("bit", 1), ("sector", 512), ("block", 4_096)])
def test_rot_changes_one_place_of_what_was_synced_for_good(extent: Extent, size: int) -> None:
    before = bytes(range(1, 251)) * 40
    disk, file = disk_with(before, b"pending")
    place = disk.rot("a", extent, Draws(3))
    assert place is not None
    start, end = place
    after = file.read_at(0, 1 << 20)
    assert 0 < end - start <= size and end <= len(before)
    assert after[:start] == before[:start] and after[end:] == before[end:] + b"pending"
    assert after[start:end] != before[start:end]
    if extent == "bit":
        assert (after[start] ^ before[start]).bit_count() == 1
    disk.lose_power("none")
    assert disk.durable_bytes("a") == after[: len(before)]


def test_what_was_not_synced_does_not_rot() -> None:
    disk, file = disk_with(b"", b"pending")
    assert disk.rot("a", "block", Draws(3)) is None and disk.rot("missing", "bit", Draws(3)) is None
    assert (disk.synced_bytes("a"), disk.synced_bytes("missing")) == (0, 0)
    assert (disk.is_synced("a"), disk.is_synced("missing")) == (False, True)
    assert file.read_at(0, 9) == b"pending"


def test_bytes_below_a_pending_overwrite_rot_and_the_overwrite_is_undone_as_before() -> None:
    disk, file = disk_with(b"abcdefgh")
    file.write_at(4, b"EFGH")
    assert disk.synced_bytes("a") == 4
    assert not disk.is_synced("a")
    place = disk.rot("a", "block", Draws(3))
    assert place == (0, 4) and file.read_at(0, 9) == b"\0\0\0\0EFGH"
    disk.lose_power("none")
    assert disk.durable_bytes("a") == b"\0\0\0\0efgh"


def test_a_lost_write_is_seen_until_power_is_lost_and_no_sync_saves_it() -> None:
    disk, file = disk_with(b"abcd")
    disk.lose_writes(100)
    file.append(b"efgh")
    disk.lose_writes(0)
    file.append(b"ijkl")
    file.sync()
    assert file.read_at(0, 20) == b"abcdefghijkl" and disk.deceives and disk.has_lost_writes
    disk.lose_power("all")
    assert disk.durable_bytes("a") == b"abcd\0\0\0\0ijkl"


def test_a_stray_write_is_told_with_its_bytes_and_lands_on_what_was_synced() -> None:
    disk, file = disk_with(b"abcd")
    strays: list[tuple[str, bytes]] = []
    disk.lose_writes(100, lambda path, data: strays.append((path, data)))
    file.append(b"efghij")
    assert strays == [("a", b"efghij")]
    assert disk.overwrite("a", b"efghij", Draws(3)) == (0, 4)
    assert file.read_at(0, 20) == b"efghefghij"
    disk.lose_power("none")
    assert disk.durable_bytes("a") == b"efgh"
    assert disk.overwrite("missing", b"x", Draws(3)) is None
