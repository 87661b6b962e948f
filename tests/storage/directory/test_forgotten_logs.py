"""The offsets of deleted logs: no later log of the name begins with them, and many deletions write no checkpoints."""

from __future__ import annotations

import errno

import pytest

from sim.disk import SimDisk
from storage.directory import manager
from storage.directory.manager import LogManager
from storage.errors import OutOfHandles
from tests.storage.directory.directories import content, started
from tests.storage.logs import NOW_MS, append_each, new_disk

CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)


def with_a_flushed_log(disk: SimDisk) -> LogManager:
    """Records 0 to 49 of `a-0`, all committed; those below 30 are deleted, in the middle of a segment."""
    logs = started(disk)
    log = logs.create("a", 0)
    append_each(log, 50)
    log.marks.update_high_watermark(50)
    log.marks.maybe_increment_log_start_offset(30)
    log.flushes.flush()
    logs.checkpoint_recovery_points()
    logs.checkpoint_log_start_offsets()
    logs.checkpoint_high_watermarks()
    assert all(b"a 0 " in content(disk, name) for name in CHECKPOINTS)
    return logs


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("is_later", [False, True])
def test_ll4_a_log_of_a_deleted_name_begins_with_nothing_of_it_after_a_crash(
    is_later: bool, restarts: bool
) -> None:
    disk = new_disk()
    logs = with_a_flushed_log(disk)
    assert logs.delete_later("a", 0, NOW_MS) if is_later else logs.delete("a", 0)
    if restarts:
        logs.close_handles()
        logs = started(disk)
    append_each(logs.create("a", 0), 3)
    assert not any(b"a 0 " in content(disk, name) for name in CHECKPOINTS)
    logs.close_handles()
    log = started(disk).get("a", 0)
    assert log is not None
    assert (log.log_start_offset, log.high_watermark, log.local.recovery_point) == (0, 0, 0)
    assert log.log_end_offset == 3


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_ll4_a_creation_whose_checkpoints_found_no_descriptor_writes_them_when_it_is_tried_again(
    name: str,
) -> None:
    disk = new_disk()
    logs = with_a_flushed_log(disk)
    logs.delete("a", 0)
    disk.fail(1, errno.EMFILE, path_suffix=f"{name}.tmp")
    with pytest.raises(OutOfHandles):
        logs.create("a", 0)
    assert b"a 0 " in content(disk, name)
    logs.create("a", 0)
    assert not any(b"a 0 " in content(disk, each) for each in CHECKPOINTS)


def test_ll4_many_deletions_write_no_checkpoint() -> None:
    """One of each after every deletion takes longer the more partitions there are."""
    disk = new_disk()
    logs = started(disk)
    for partition in range(12):
        logs.create("a", partition)
    logs.checkpoint_high_watermarks()
    calls = disk.call_log = []
    for partition in range(10):
        logs.delete_later("a", partition, NOW_MS)
    assert calls and not [call for call in calls if any(name in call for name in CHECKPOINTS)], calls
    logs.create("a", 3)
    assert content(disk, CHECKPOINTS[2]).count(b"\na ") == 2


def test_the_offsets_of_very_many_deleted_logs_are_not_kept_until_the_next_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manager, "MOST_FORGOTTEN", 3)
    disk = new_disk()
    logs = with_a_flushed_log(disk)
    for topic in ("b", "c", "d"):
        logs.create(topic, 0)
    for topic in ("a", "b", "c"):
        logs.delete(topic, 0)
    assert all(b"a 0 " in content(disk, name) for name in CHECKPOINTS)
    logs.delete("d", 0)
    assert not any(b"a 0 " in content(disk, name) for name in CHECKPOINTS)
