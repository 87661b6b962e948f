"""What the machine refuses, and what is there in place of a log: names, rights, links, devices, files that vanish."""

from __future__ import annotations

import os
import shutil
import struct
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from storage.batch import Compression
from storage.directory.manager import LogManager
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from storage.errors import StorageError
from storage.inspection.verify.partition import verify_partition
from tests.storage.hostile.produced_sets import framed
from tests.storage.hostile.tools import READERS, WRITERS, make_sound
from tests.storage.logs import NOW_MS, ROOMY, SMALL, append_each, batch, new_disk, new_file_system, open_log

SEGMENT = f"{0:020d}"
NOBODY = 65_534


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    make_sound(path, 4)
    return path


def as_nobody(work: Callable[[], str]) -> str:
    """Return what `work` returns in a process that has no rights of its own."""
    if os.geteuid() != 0:
        return work()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            said = work()
        except BaseException as error:
            said = f"{type(error).__name__} {error}"
        os.write(writing, said.encode()[:60_000])
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read().decode()


def outcome_of(tool: Callable[[Path], object], directory: Path) -> str:
    try:
        tool(directory)
    except (StorageError, OSError) as error:
        return f"refused: {error}"
    return "done"


def open_to_all(path: Path) -> None:
    """Let everyone reach the directory and read what is in it."""
    for each in (path, *path.rglob("*")):
        each.chmod(0o777 if each.is_dir() else 0o666)
    for parent in path.parents:
        if parent.stat().st_uid == os.geteuid() and str(parent) != "/":
            parent.chmod(parent.stat().st_mode | 0o711)


@pytest.mark.parametrize("tool", [*READERS, *WRITERS])
@pytest.mark.parametrize(
    "name", [f"t-0/{SEGMENT}.log", f"t-0/{SEGMENT}.index", "t-0", "t-0/leader-epoch-checkpoint"]
)
def test_what_may_not_be_read_is_an_error_that_names_it(directory: Path, name: str, tool: str) -> None:
    open_to_all(directory)
    (directory / name).chmod(0)
    run = READERS.get(tool) or WRITERS[tool]
    said = as_nobody(lambda: outcome_of(run, directory))
    (directory / name).chmod(0o777)
    assert said.startswith(("done", "refused: ")), said
    assert "\n" not in said
    if said != "done":
        assert Path(name).name in said or str(directory) in said, said


def test_a_directory_that_may_not_be_written_is_verified_and_not_loaded(directory: Path) -> None:
    open_to_all(directory)
    for each in (directory, directory / "t-0"):
        each.chmod(0o555)
    for tool in READERS:
        assert as_nobody(partial(outcome_of, READERS[tool], directory)) == "done", tool
    for tool in ("load", "use"):
        said = as_nobody(partial(outcome_of, WRITERS[tool], directory))
        assert said.startswith("refused: ") and "ermission" in said, said
    for each in (directory, directory / "t-0"):
        each.chmod(0o777)


@pytest.mark.slow
def test_names_up_to_the_limits_work_and_longer_ones_are_refused_by_name(tmp_path: Path) -> None:
    logs = LogManager(OsFileSystem(), str(tmp_path / "data"), SMALL, NOW_MS, Draws(1))
    logs.load(NOW_MS)
    topic = "x" * 249
    for partition in (0, 9, 99_999):
        log = logs.create(topic, partition)
        append_each(log, 30)
        assert log.log_end_offset == 30
    # The name of its directory has more than 255 bytes, as in Kafka.
    with pytest.raises((StorageError, OSError)) as raised:
        logs.create(topic, (1 << 31) - 1)
    assert len(str(raised.value)) < 2000 and "\n" not in str(raised.value)
    with pytest.raises((StorageError, ValueError)):
        logs.create("x" * 250, 0)
    logs.shutdown()
    logs = LogManager(OsFileSystem(), str(tmp_path / "data"), SMALL, NOW_MS, Draws(1))
    logs.load(NOW_MS)
    assert len(logs.logs) == 3
    logs.shutdown()


@pytest.mark.parametrize("tool", READERS)
def test_files_that_vanish_or_shrink_while_a_tool_reads_end_no_tool(
    directory: Path, tool: str, tmp_path: Path
) -> None:
    """Each file is deleted, or cut, before the tool has seen it and after it has seen its name."""
    for path in sorted((directory / "t-0").iterdir()):
        for damage in (Path.unlink, lambda each: os.truncate(each, each.stat().st_size // 2)):
            copy = tmp_path / "copy"
            shutil.copytree(directory, copy)
            damage(copy / "t-0" / path.name)
            said = outcome_of(READERS[tool], copy)
            assert said.startswith(("done", "refused: ")), said
            shutil.rmtree(copy)


def test_rd8_a_disk_that_fails_a_look_up_by_time_takes_the_log_offline() -> None:
    disk = new_disk()
    log = open_log(new_file_system(disk), ROOMY)
    append_each(log, 5)
    disk.break_directory("logs")
    with pytest.raises(StorageError, match="read failed"):
        log.reads.offset_for_timestamp(NOW_MS)
    assert log.online.reason is not None
    with pytest.raises(StorageError, match="offline"):
        log.reads.offset_for_timestamp(NOW_MS)


def test_verify_lists_the_first_contradictions_of_a_log_in_bounded_memory(tmp_path: Path) -> None:
    count = 5_000
    same = b"\x0c\x00\x00\x00\x01\x01\x00"
    data = bytearray(framed(same * count, count, Compression.ZSTD))
    struct.pack_into(">i", data, 12, 0)
    directory = tmp_path / "t-0"
    directory.mkdir()
    path = directory / f"{SEGMENT}.log"
    path.write_bytes(bytes(data) + batch(count))
    tracemalloc.start()
    report = verify_partition(OsFileSystem(), str(directory), deep=True)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    found = [problem for problem in report.problems if problem.path == str(path)]
    assert len(found) == 1002 and "no more contradictions" in found[-1].message
    assert report.records == count + 1
    assert peak_bytes < 4 << 20, peak_bytes


def test_ep9_verify_compares_many_epochs_in_little_time(tmp_path: Path) -> None:
    count = 3_000
    directory = tmp_path / "t-0"
    directory.mkdir()
    sets = b"".join(batch(offset, epoch=offset) for offset in range(count))
    (directory / f"{SEGMENT}.log").write_bytes(sets)
    lines = "".join(f"{epoch} {epoch}\n" for epoch in range(count))
    (directory / "leader-epoch-checkpoint").write_text(f"0\n{count}\n{lines}")
    report = verify_partition(OsFileSystem(), str(directory))
    assert not [problem for problem in report.problems if problem.rule.startswith("EP")]
    lines = lines.replace("\n7 7\n", "\n6 7\n")
    (directory / "leader-epoch-checkpoint").write_text(f"0\n{count}\n{lines}")
    report = verify_partition(OsFileSystem(), str(directory))
    assert [problem.rule for problem in report.problems if problem.rule.startswith("EP")] == ["EP1", "EP9"]
