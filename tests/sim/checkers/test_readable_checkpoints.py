"""Checkpoints are whole whenever a process ends: each is written beside the one before, and renamed."""

from __future__ import annotations

import pytest

from cluster.core.messages import TopicPartition
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.disk import SimDisk
from sim.disk.life import Life
from sim.witness.disk_logs import DiskLogs
from sim.witness.ends import READABLE, EndWitness
from sim.witness.flushes import FlushWitness
from sim.witness.open_logs import OpenLogs
from storage.disk.checkpoints import HIGH_WATERMARK_CHECKPOINT, LEADER_EPOCH_CHECKPOINT
from storage.disk.filesystem import write_synced
from storage.draws import Draws

SOUND = b"0\n1\nt 0 5\n"
# A longer content before was not cut off.
WITH_A_TAIL = SOUND + b"t 1 7\n"


class Story:
    """A broker with a checkpoint of high watermarks and one of leader epochs, at the end of its process."""

    def __init__(self) -> None:
        self.disk = disk = SimDisk(Draws(1), lambda: 0)
        self.files = disk.file_system(Life("broker"))
        self.files.make_directory("data/t-0")
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        logs = DiskLogs(self.jury, {1: disk}, ("data",))
        names = {"t-0": TopicPartition("t", 0)}
        flushes = FlushWitness(self.jury, logs, names)
        open_logs = OpenLogs(self.jury, logs, may_expire=False)
        self.ends = EndWitness(self.jury, logs, open_logs, flushes, names)

    def found(self, *, is_stop: bool = False, damage: str = "") -> list[str]:
        if is_stop:
            self.ends.on_stopped(1)
        else:
            self.ends.on_died(1, lost_power=False, damage=damage)
        assert all(each.checker == READABLE for each in self.jury.violations)
        return [each.what for each in self.jury.violations]


@pytest.mark.parametrize("is_stop", [True, False])
@pytest.mark.parametrize(
    ("path", "sound"),
    [
        (f"data/{HIGH_WATERMARK_CHECKPOINT}", SOUND),
        (f"data/t-0/{LEADER_EPOCH_CHECKPOINT}", b"0\n1\n3 5\n"),
    ],
)
def test_a_checkpoint_with_a_tail_is_found_as_its_process_ends(
    path: str, sound: bytes, *, is_stop: bool
) -> None:
    story = Story()
    write_synced(story.files, path, sound)
    assert story.found(is_stop=is_stop) == []
    write_synced(story.files, path, sound + b"7 7 7\n")
    (what,) = story.found(is_stop=is_stop)
    assert what.startswith(f"broker 1: {path}")


def test_a_disk_that_has_damaged_it_excuses_the_broker() -> None:
    story = Story()
    write_synced(story.files, f"data/{HIGH_WATERMARK_CHECKPOINT}", WITH_A_TAIL)
    assert story.found(damage="a disk was set back to an older image") == []
    story.jury.ghost.partition("t-0").image(1).cache_damage = "it has rotten"
    assert story.found() == []


def test_rot_excuses_a_broker_without_a_log_too() -> None:
    story = Story()
    path = f"data/{HIGH_WATERMARK_CHECKPOINT}"
    write_synced(story.files, path, SOUND)
    assert story.disk.rot(path, "sector", Draws(2)) is not None
    assert story.found() == []
