"""What the real disk syncs and when: each change once, and again what was written while a sync ran."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from storage.disk import os_filesystem
from storage.disk.filesystem import OpenMode
from storage.disk.os_filesystem import OsFile, OsFileSystem


class Syncs:
    """Counts the syncs of descriptors, which are done as ever; `meanwhile` is called in the middle of the next one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.meanwhile: Callable[[], object] | None = None
        sync = os_filesystem._sync_descriptor

        def counted(descriptor: os_filesystem._Descriptor) -> None:
            self.count += 1
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile is not None:
                meanwhile()
            sync(descriptor)

        monkeypatch.setattr(os_filesystem, "_sync_descriptor", counted)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return Syncs(monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> OsFile:
    return OsFileSystem().open(f"{tmp_path}/f", OpenMode.CREATE, can_rest=True)


def fail() -> None:
    raise OSError(errno.EIO, "broken")


def test_fr7_a_file_that_is_given_up_syncs_what_was_written_once(file: OsFile, syncs: Syncs) -> None:
    file.append(b"one")
    assert file.is_unsynced
    assert file.give_up() and file.give_up()
    assert (syncs.count, file.is_unsynced) == (1, False)
    assert file.read_at(0, 9) == b"one"
    assert file.give_up()
    assert syncs.count == 1
    file.close()


@pytest.mark.parametrize("give_up", [False, True])
def test_fr7_what_is_written_while_a_sync_runs_needs_another_one(
    file: OsFile, syncs: Syncs, give_up: bool
) -> None:
    file.append(b"one")
    descriptor = file._descriptor
    syncs.meanwhile = lambda: file.append(b"two")
    if give_up:
        # The write on another thread uses this descriptor, so it stays.
        assert not file.give_up()
        assert file._descriptor is descriptor
    else:
        file.sync()
    assert file.is_unsynced
    file.rest()
    assert file._descriptor is descriptor
    file.sync()
    assert (syncs.count, file.is_unsynced) == (2, False)
    file.rest()
    assert file._descriptor is None
    file.close()


@pytest.mark.parametrize("gives_up", [False, True])
def test_fr7_after_a_sync_that_failed_the_file_is_not_taken_for_synced(
    file: OsFile, syncs: Syncs, *, gives_up: bool
) -> None:
    """A roll may sync the file again before the log's thread knows what a flush job has met."""
    file.append(b"one")
    syncs.meanwhile = fail
    if gives_up:
        assert not file.give_up()
    else:
        with pytest.raises(OSError, match=r"broken.*/f"):
            file.sync()
    assert file.is_unsynced and file._descriptor is not None
    for _ in range(2):
        # The kernel would report the error once; the file goes on to.
        with pytest.raises(OSError, match=r"broken.*/f"):
            file.sync()
        assert not file.give_up()
    assert syncs.count == 1
    file.close()


def test_fr7_only_bytes_and_a_shorter_length_wait_for_a_sync(file: OsFile, syncs: Syncs) -> None:
    changes: list[tuple[Callable[[], object], bool]] = [
        (lambda: file.set_length(100), False),
        (lambda: file.set_length(100), False),
        (lambda: file.write_at(5, b"x"), True),
        (lambda: file.set_length(99), True),
        (lambda: file.truncate(99), False),
        (lambda: file.read_at(0, 9), False),
        (lambda: file.truncate(0), True),
    ]
    for number, (change, is_unsynced) in enumerate(changes):
        change()
        assert file.is_unsynced == is_unsynced, number
        file.sync()
    # A change that needs no sync does not take away the need of one before it.
    file.append(b"x")
    file.set_length(100)
    assert file.is_unsynced
    assert syncs.count == len(changes)
    file.close()


def test_fr7_a_file_that_rests_is_synced_if_its_owner_asks_for_it(file: OsFile, syncs: Syncs) -> None:
    file.append(b"one")
    file.sync()
    file.rest()
    assert file._descriptor is None
    file.sync()
    assert syncs.count == 2
    file.close()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        file.sync()


def test_a_directory_is_synced_each_time_and_must_be_one(tmp_path: Path, syncs: Syncs) -> None:
    file_system = OsFileSystem()
    for count in (1, 2):
        file_system.sync_directory(str(tmp_path))
        assert syncs.count == count
    with pytest.raises(FileNotFoundError):
        file_system.sync_directory(f"{tmp_path}/none")


@pytest.mark.parametrize("give_up_is_first", [False, True])
def test_fr7_of_two_syncs_beside_each_other_both_hear_of_an_error_that_the_system_reports_once(
    file: OsFile, syncs: Syncs, give_up_is_first: bool
) -> None:
    """A job flushes a log while another thread closes its descriptors."""
    file.append(b"one")
    heard: list[bool] = []

    def give_up() -> None:
        heard.append(not file.give_up())

    def sync() -> None:
        try:
            file.sync()
        except OSError as error:
            heard.append(error.errno == errno.EIO)

    first, second = (give_up, sync) if give_up_is_first else (sync, give_up)
    other = Thread(target=second)

    def fail_beside_the_other() -> None:
        # Bytes that the first sync may leave out, so that the second one has to sync.
        file.append(b"two")
        other.start()
        # It may end meanwhile only if it does not wait for the first one.
        other.join(0.05)
        fail()

    syncs.meanwhile = fail_beside_the_other
    first()
    other.join()
    assert heard == [True, True]
    assert file.is_unsynced and not file.give_up()
    file.close()
