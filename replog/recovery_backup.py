"""What a recovery would change, found without a change, and a copy of it made before."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import PurePath

from replog.log_command_options import fail
from sim.interruption import terminated_like_interrupted
from storage.disk.filesystem import OpenMode, dirname
from storage.disk.os_filesystem import OsFileSystem
from storage.disk.overlay import Change, OverlayFileSystem
from storage.errors import reason_of
from storage.inspection.verify.directory import is_log_directory, looks_like_log_directory

LIST_NAME = "BACKUP.json"
_COPIED_AT_ONCE = 1 << 20


@contextmanager
def scratch_directory() -> Iterator[str]:
    """Make a directory for the copies of all overlays of a command, which is deleted at the end.

    The command's own process makes it: one that works on a partition may be ended at any time, and deletes nothing.
    SIGTERM and SIGHUP end the command as Ctrl-C does, for the copies may be as large as the logs.
    """
    with terminated_like_interrupted(), tempfile.TemporaryDirectory(prefix="replog-dry-run-") as scratch:
        yield scratch


@contextmanager
def overlay(scratch: str) -> Iterator[OverlayFileSystem]:
    """Make a file system over the real one that changes nothing; its copies in `scratch` are deleted at the end."""
    with tempfile.TemporaryDirectory(dir=scratch) as copies:
        yield OverlayFileSystem(OsFileSystem(keeps_access_times=True), copies)


def check_target(target: str, directory: str) -> str:
    """Returns `target`. Ends the command if it exists, or is within `directory` or, at any depth, a log directory."""
    if os.path.lexists(target):
        fail(f"--backup {target} exists: no earlier backup is overwritten, name a new directory")
    if _is_within_logs(os.path.realpath(target), os.path.realpath(directory)):
        fail(
            f"--backup {target} is within a log directory, where a node would refuse to start: name one outside"
        )
    return target


def _is_within_logs(target: str, directory: str) -> bool:
    """Whether `target`, which need not exist, is within `directory` or a log directory; both without links."""
    if os.path.commonpath((target, directory)) == directory:
        return True
    file_system, parent = OsFileSystem(), PurePath(target).parent
    while not file_system.exists(str(parent)):
        parent = parent.parent
    if looks_like_log_directory(file_system, str(parent)):
        return True
    return any(is_log_directory(file_system, str(above)) for above in parent.parents)


def make_backup(target: str, directory: str, changes: Mapping[str, str]) -> None:
    """Copy the files that `changes` names, except for those to be created, from `directory` to the new `target`.

    Their paths stay relative to the directory's parent if a checkpoint beside the directory changes, too, else to the
    directory. The copies are on the disk on return. On an error the command ends, the target is deleted, and nothing
    else was changed.
    """
    assert changes and not os.path.lexists(target), (target, len(changes))
    file_system = OsFileSystem(keeps_access_times=True)
    base = directory if all(path.startswith(f"{directory}/") for path in changes) else dirname(directory)
    try:
        os.makedirs(target)
        for path, change in changes.items():
            if change != Change.CREATED.value:
                _copy(file_system, path, f"{target}/{os.path.relpath(path, base)}")
        described = {"directory": base, "changes": {os.path.relpath(p, base): c for p, c in changes.items()}}
        _write(file_system, f"{target}/{LIST_NAME}", json.dumps(described, indent=1).encode() + b"\n")
        _sync_directories(file_system, target)
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        fail(f"--backup: {reason_of(error)}; nothing was changed")
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _copy(file_system: OsFileSystem, source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with (
        closing(file_system.open(source, OpenMode.READ)) as read,
        closing(file_system.open(target, OpenMode.CREATE_NEW)) as written,
    ):
        position = 0
        while data := read.read_at(position, _COPIED_AT_ONCE):
            written.write_at(position, data)
            position += len(data)
        written.sync()
        assert written.size() == position, (target, written.size(), position)
    file_system.set_modified(target, file_system.stat(source).modified_ms)


def _write(file_system: OsFileSystem, path: str, content: bytes) -> None:
    file = file_system.open(path, OpenMode.CREATE_NEW)
    try:
        file.write_at(0, content)
        file.sync()
    finally:
        file.close()


def _sync_directories(file_system: OsFileSystem, target: str) -> None:
    """Sync the target, all directories in it, and the one that has its name."""
    for path, _, _ in os.walk(target):
        file_system.sync_directory(path)
    file_system.sync_directory(os.path.dirname(target))
