"""What the files of a simulated disk hold, and that many un-synced changes are as good as few."""

from __future__ import annotations

import pytest

from sim.disk import PowerLoss
from sim.disk.life import Life
from sim.world.packed import BLOCK_ITEMS, KEPT_ITEMS
from storage.disk.filesystem import OpenMode
from tests.sim.disk.disks import content_after, new_disk, with_durable_file

APPENDS = KEPT_ITEMS + BLOCK_ITEMS + 9


def test_held_bytes_are_those_of_all_files_that_have_a_name() -> None:
    disk = new_disk()
    fs, _ = with_durable_file(disk, b"12345")
    assert disk.held_bytes() == 5
    other = fs.open("d/g", OpenMode.CREATE)
    other.append(b"678")
    other.append(bytes(4))
    other.truncate(5)
    assert disk.held_bytes() == 10
    fs.unlink("d/g")
    assert disk.held_bytes() == 5


@pytest.mark.parametrize(("mode", "kept"), [("none", 0), ("all", APPENDS)])
def test_a_power_loss_undoes_any_number_of_unsynced_appends(mode: PowerLoss, kept: int) -> None:
    disk = new_disk()
    _, file = with_durable_file(disk)
    for number in range(APPENDS):
        file.append(bytes([number % 256]))
    assert disk.pending_count() == APPENDS
    assert content_after(disk, mode) == bytes(number % 256 for number in range(kept))


def test_a_prefix_of_very_many_changes_survives() -> None:
    disk = new_disk()
    _, file = with_durable_file(disk)
    for number in range(APPENDS):
        file.append(bytes([number % 256]))
    pending = disk.pending_sequences()
    disk.lose_power_keeping(pending[:700])
    assert disk.file_system(Life()).stat("d/f").size_bytes == 700


def test_a_failed_sync_loses_every_pending_change_for_good() -> None:
    disk = new_disk()
    fs, file = with_durable_file(disk)
    for _ in range(APPENDS):
        file.append(b"x")
    disk.fail(1, verbs={"sync"})
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    assert disk.has_lost_writes and disk.pending_count() == 0
    # Who opens it again knows nothing of the error.
    file = fs.open(file.path, OpenMode.CREATE)
    file.append(b"y")
    file.sync()
    assert disk.has_lost_writes and disk.deceives
    assert content_after(disk, "none") == bytes(APPENDS) + b"y"
    assert not disk.has_lost_writes
