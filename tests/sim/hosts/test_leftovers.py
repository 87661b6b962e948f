"""What an earlier life leaves in the directories of a node: no more than a death in the midst of a change may leave."""

from __future__ import annotations

import pytest

from sim.buggify.buggify import Buggify
from sim.buggify.disks import DiskPoints
from sim.disk import SimDisk
from sim.disk.life import Life
from sim.hosts.leftovers import leave_over
from storage.batch import Record, build_batch
from storage.disk.checkpoints import RECOVERY_POINT_CHECKPOINT, CleanShutdownFile, OffsetCheckpoint
from storage.disk.filesystem import OpenMode, read_file
from storage.draws import Draws
from storage.log import PartitionLog
from tests.sim.disk.disks import new_disk
from tests.storage.logs import NOW_MS, THREE, append_each, read_offsets

PATH = "data/t-0"


def machine(*points: str, seed: int = 1) -> SimDisk:
    """Returns the disk of a machine that has died with a log of five segments and a checkpoint."""
    disk = new_disk()
    file_system = disk.file_system(Life())
    file_system.make_directory(PATH)
    log = PartitionLog.open(file_system, PATH, THREE, clean=True, now_ms=NOW_MS)
    append_each(log, 13)
    OffsetCheckpoint(file_system, f"data/{RECOVERY_POINT_CHECKPOINT}").write({("t", 0): 12})
    disk.points = DiskPoints(Buggify(Draws(seed), points, percent=100), "node-1")
    return disk


def swaps(disk: SimDisk) -> list[str]:
    return [name for name in disk.names_in(PATH) if name.endswith(".swap")]


def test_a_longer_file_beside_a_checkpoint_is_taken_away_by_the_next_write() -> None:
    disk = machine("leftover-file")
    leave_over(disk, ["data"], ())
    assert f"{RECOVERY_POINT_CHECKPOINT}.tmp" in disk.names_in("data")
    checkpoint = OffsetCheckpoint(disk.file_system(Life()), f"data/{RECOVERY_POINT_CHECKPOINT}")
    checkpoint.write({("t", 0): 13})
    assert checkpoint.read() == {("t", 0): 13}
    assert f"{RECOVERY_POINT_CHECKPOINT}.tmp" not in disk.names_in("data")


@pytest.mark.parametrize("seed", range(8))
def test_a_start_finishes_the_swap_of_a_sealed_segment_of_a_compacted_log(seed: int) -> None:
    disk = machine("leftover-swap", seed=seed)
    before = [name for name in disk.names_in(PATH) if name.endswith(".log")]
    leave_over(disk, ["data"], ("t",))
    assert [name for name in swaps(disk) if ".log" in name] != []
    is_merged = any(name.removesuffix(".swap") in disk.names_in(PATH) for name in swaps(disk))
    log = PartitionLog.open(
        disk.file_system(Life()), PATH, THREE, clean=False, recovery_point=12, now_ms=NOW_MS
    )
    assert read_offsets(log) == list(range(13))
    after = [name for name in disk.names_in(PATH) if name.endswith(".log")]
    # Two of the segments are one now where they were left beside it.
    assert set(after) <= set(before) and len(after) == len(before) - is_merged and not swaps(disk)


@pytest.mark.parametrize("byte", [0, 3, 4, 23, 40])
def test_damaged_segments_are_merged_into_none(byte: int) -> None:
    """A compaction that finds damage leaves no segment, and a point that fails would end the whole run."""
    for seed in range(6):
        disk = machine("leftover-swap", seed=seed)
        for name in disk.names_in(PATH):
            if name.endswith(".log"):
                found = disk.file_system(Life()).open(f"{PATH}/{name}", OpenMode.WRITE)
                whole = bytearray(found.read_at(0, found.size()))
                whole[byte] ^= 1
                found.write_at(0, bytes(whole))
                found.sync()
                found.close()
        leave_over(disk, ["data"], ("t",))
        assert not any(name.removesuffix(".swap") in disk.names_in(PATH) for name in swaps(disk))
        assert not any(name.endswith(".cleaned") for name in disk.names_in(PATH))


@pytest.mark.parametrize("why", ["not-compacted", "clean", "under-way", "faulty"])
def test_no_swap_is_left_where_no_death_leaves_one(why: str) -> None:
    disk = machine("leftover-swap")
    file_system = disk.file_system(Life())
    if why == "clean":
        CleanShutdownFile(file_system, "data").write()
    elif why == "under-way":
        file_system.rename(f"{PATH}/{0:020d}.timeindex", f"{PATH}/{0:020d}.timeindex.cleaned")
    elif why == "faulty":
        disk.fail(1)
    leave_over(disk, ["data"], () if why == "not-compacted" else ("t",))
    assert swaps(disk) == []


def snapshots(disk: SimDisk) -> dict[str, bytes]:
    names = [name for name in disk.names_in(PATH) if name.endswith(".snapshot")]
    return {name: read_file(disk.file_system(Life()), f"{PATH}/{name}") for name in names}


@pytest.mark.parametrize("are_torn", [False, True])
@pytest.mark.parametrize("topics", [(), ("t",)])
def test_ps16_a_start_without_snapshots_knows_its_producers_by_the_log(
    topics: tuple[str, ...], are_torn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.buggify.disks.DiskPoints.tears_snapshots", lambda points: are_torn)
    disk = machine("snapshots-gone")
    file_system = disk.file_system(Life())
    log = PartitionLog.open(file_system, PATH, THREE, clean=False, recovery_point=12, now_ms=NOW_MS)
    data = build_batch([Record(0, NOW_MS, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    log.flushes.flush()
    before = snapshots(disk)
    leave_over(disk, ["data"], topics)
    torn = {name: data[: len(data) // 2] for name, data in before.items()} if are_torn else {}
    # A compaction may have taken what a start would need.
    assert before and snapshots(disk) == (before if topics else torn)
    log = PartitionLog.open(
        disk.file_system(Life()), PATH, THREE, clean=False, recovery_point=14, now_ms=NOW_MS
    )
    assert [(entry.last_sequence, entry.last_offset) for entry in log.producers.producers.values()] == [
        (0, 13)
    ]
