"""A process without a descriptor left: what is done to a whole log fails alone, and no log directory goes offline."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.directory.directories import LogDirectories
from storage.directory.manager import LogManager
from storage.disk.handle_pool import HandlePool
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from storage.errors import OutOfHandles
from tests.storage.directory.directories import TOPIC_ID
from tests.storage.log.test_out_of_handles import descriptors_left
from tests.storage.logs import NOW_MS, SMALL, append_each, read_offsets

OTHER_ID = "B" * 21 + "w"
Verb = Callable[[LogManager], object]


def create(logs: LogManager) -> None:
    logs.create("new", 0, topic_id=TOPIC_ID)


def create_again(logs: LogManager) -> None:
    """Create a log of the name of one that was deleted, whose offsets the checkpoints still have."""
    if logs.get("old", 0) is not None:
        logs.delete("old", 0)
    logs.create("old", 0, topic_id=OTHER_ID)


def delete(logs: LogManager) -> None:
    logs.delete("t", 0)


def begin_deletion(logs: LogManager) -> None:
    delete_files = logs.begin_deletion("t", 0)
    assert delete_files is not None
    delete_files()


def delete_later(logs: LogManager) -> None:
    logs.delete_later("t", 0, NOW_MS)


def set_aside(logs: LogManager) -> None:
    logs.set_aside("t", 0)


def checkpoint(logs: LogManager) -> None:
    logs.checkpoint_recovery_points()
    logs.checkpoint_log_start_offsets()
    logs.checkpoint_high_watermarks()


VERBS = (create, create_again, delete, begin_deletion, delete_later, set_aside, checkpoint)


def opened(root: Path, *names: str) -> LogDirectories:
    file_system = OsFileSystem(handles=HandlePool(100))
    paths = [str(root / name) for name in names]
    logs = LogDirectories(file_system, paths, SMALL, NOW_MS, Draws(1))
    logs.load(NOW_MS)
    return logs


def fails_alone(root: Path, verb: Verb, left: int) -> bool:
    """Whether `verb` finds too few descriptors; check that nothing is changed then, and that a second call does all."""
    directories = opened(root, "data")
    logs = directories.online[0]
    append_each(logs.create("t", 0, topic_id=TOPIC_ID), 30)
    append_each(logs.create("old", 0, topic_id=TOPIC_ID), 3)
    checkpoint(logs)
    directories._file_system.handles.make_room(100)
    before, failure = set(os.listdir(root / "data")), None
    with descriptors_left(left):
        try:
            verb(logs)
        except OutOfHandles as error:
            failure = error
    if failure is not None:
        if verb is not create_again:
            assert set(os.listdir(root / "data")) == before
            assert read_offsets(logs.logs["t-0"]) == list(range(30))
        verb(logs)
    assert [log.online.reason for log in logs.logs.values()] == [None] * len(logs.logs)
    known = {name: (log.log_end_offset, logs.topic_ids[name]) for name, log in logs.logs.items()}
    assert logs.shutdown()
    check_known(root, known)
    return failure is not None


def check_known(root: Path, known: dict[str, tuple[int, str]]) -> None:
    """Check that a start finds the same logs, and none of them in two directories."""
    again = opened(root, *sorted(os.listdir(root)))
    found = {
        name: (log.log_end_offset, logs.topic_ids[name])
        for logs in again.online
        for name, log in logs.logs.items()
    }
    assert found == known
    again.close_handles()


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_ll4_without_a_descriptor_left_a_log_is_neither_made_nor_removed_in_half(
    tmp_path: Path, verb: Verb
) -> None:
    assert fails_alone(tmp_path, verb, left=0)


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_ll4_whichever_file_finds_no_descriptor_no_log_is_made_or_removed_in_half(
    tmp_path: Path, verb: Verb
) -> None:
    """Another file is the first that cannot be opened, with 1, 2 … descriptors left."""
    left = 1
    while fails_alone(tmp_path / str(left), verb, left):
        left += 1
    assert left < 20


def test_ll4_a_creation_without_a_descriptor_takes_no_directory_offline(tmp_path: Path) -> None:
    directories = opened(tmp_path, "one", "two")
    with descriptors_left(0), pytest.raises(OutOfHandles, match="ulimit -n"):
        directories.create("t", 0, topic_id=TOPIC_ID)
    assert (len(directories.online), directories.offline) == (2, [])
    append_each(directories.create("t", 0, topic_id=TOPIC_ID), 3)
    assert directories.shutdown()
    check_known(tmp_path, {"t-0": (3, TOPIC_ID)})


def test_a_start_without_a_descriptor_fails_whole_and_takes_no_directory_offline(tmp_path: Path) -> None:
    opened(tmp_path, "one", "two").shutdown()
    with descriptors_left(1), pytest.raises(OutOfHandles, match="ulimit -n"):
        opened(tmp_path, "one", "two")
    again = opened(tmp_path, "one", "two")
    assert (len(again.online), again.offline) == (2, [])
    again.shutdown()
