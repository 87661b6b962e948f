"""Whatever is in place of a file, each tool ends at once, with one clear error or with findings, in bounded memory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.directory import segment_ranges
from replog.dump_command import dump
from replog.log_commands import log as log_group
from storage.disk.filesystem import OpenMode
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import StorageError
from storage.inspection.stats import partition_stats
from storage.inspection.verify.partition import verify_partition
from tests.storage.hostile.tools import invoked, load, make_sound, recover

LONGEST_S = 10
MOST_BYTES = 64 << 20
SEGMENT = f"{0:020d}"
# Files of the second of two segments, and of the directories.
IN_PARTITION = (
    f"{SEGMENT}.log",
    f"{SEGMENT}.index",
    f"{SEGMENT}.timeindex",
    f"{SEGMENT}.txnindex",
    "snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
)
IN_DIRECTORY = (
    ".lock",
    ".kafka_cleanshutdown",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "meta.properties",
)
NAMES = (*(f"t-0/{name}" for name in IN_PARTITION), *IN_DIRECTORY)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory after an orderly stop; t-0 has three segments, producers and an aborted transaction."""
    path = tmp_path_factory.mktemp("sound") / "data"
    make_sound(path)
    return path


@pytest.fixture
def directory(sound: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it. A tool that waits for ever is ended by a signal."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not done after {LONGEST_S} s")

    copy = tmp_path / "data"
    shutil.copytree(sound, copy)
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LONGEST_S)
    yield copy
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def target(directory: Path, name: str) -> Path:
    if name == "t-0/snapshot":
        return max((directory / "t-0").glob("*.snapshot"))
    return directory / name


def make_socket(path: Path) -> None:
    # The name of a socket has at most 107 bytes.
    before = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(before)


KINDS: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "socket": make_socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "full device": lambda path: path.symlink_to("/dev/full"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "directory": lambda path: path.mkdir(),
    "loop of links": lambda path: path.symlink_to(path.name),
    "link to nothing": lambda path: path.symlink_to("nothing"),
    "name beyond limits": lambda path: path.symlink_to("x" * 300),
    "sparse giant": lambda path: sparse(path, 8 << 30),
    "large sparse file": lambda path: sparse(path, (1 << 31) - 1),
    "garbage": lambda path: path.write_bytes(b"\xff\x00garbage\r" * 90_000),
}


def sparse(path: Path, size_bytes: int) -> None:
    with path.open("wb") as file:
        file.truncate(size_bytes)


TOOLS: dict[str, Callable[[Path], object]] = {
    "verify": lambda path: verify_partition(OsFileSystem(), f"{path}/t-0", deep=True),
    "verify all": lambda path: invoked(log_group, "verify", str(path)),
    "stats": lambda path: partition_stats(OsFileSystem(), f"{path}/t-0"),
    "stats all": lambda path: invoked(log_group, "stats", str(path)),
    "dump": lambda path: invoked(dump, "--files", ",".join(sorted(map(str, (path / "t-0").glob("0*"))))),
    "load": load,
    "recover": recover,
    "recover all": lambda path: invoked(log_group, "recover", str(path)),
    "spark": lambda path: segment_ranges(OsFileSystem(), str(path), {}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.slow
def test_no_tool_waits_or_fills_the_memory_whatever_is_in_place_of_a_file(
    directory: Path, tool: str, kind: str
) -> None:
    # The commands do what the functions do, in processes of their own, which take their time to start.
    for name in NAMES[::4] if tool.endswith("all") else NAMES:
        check(directory, tool, kind, name)


def check(directory: Path, tool: str, kind: str, name: str) -> None:
    copy = directory.parent / "copy"
    shutil.copytree(directory, copy)
    path = target(copy, name)
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    signal.alarm(LONGEST_S)
    tracemalloc.start()
    refusal: Exception | None = None
    try:
        TOOLS[tool](copy)
    except (StorageError, OSError) as error:
        refusal = error
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        signal.alarm(0)
    # A start and a dump of a time index copy the entries of an index, and every slot of a sparse one counts.
    may_copy = kind == "large sparse file" and not tool.startswith(("verify", "stats"))
    assert peak < MOST_BYTES + (1 << 31) * may_copy, (tool, kind, name, peak)
    if refusal is not None:
        shown = str(refusal)
        assert not isinstance(refusal, TimeoutError), (tool, kind, name)
        assert "\n" not in shown and len(shown) < 1000, (tool, kind, name, shown[:200])
        assert path.name in shown or str(copy) in shown, (tool, kind, name, shown)
    shutil.rmtree(copy)


@pytest.mark.parametrize(
    "name", [f"t-0/{SEGMENT}.index", f"t-0/{SEGMENT}.log", "replication-offset-checkpoint"]
)
@pytest.mark.parametrize("tool", ["verify", "stats", "load", "spark"])
def test_a_fifo_in_place_of_a_file_is_one_error_at_once(directory: Path, tool: str, name: str) -> None:
    check(directory, tool, "fifo", name)


@pytest.mark.parametrize("name", IN_PARTITION)
def test_verify_reads_a_sparse_giant_in_slices(directory: Path, name: str) -> None:
    check(directory, "verify", "sparse giant", f"t-0/{name}")


def test_verify_reports_only_the_first_contradictions_of_garbage(directory: Path) -> None:
    path = directory / "t-0" / f"{SEGMENT}.index"
    path.write_bytes(b"\x7f" * 800_000)
    report = verify_partition(OsFileSystem(), f"{directory}/t-0")
    found = [problem for problem in report.problems if problem.path == str(path)]
    assert len(found) == 1001 and "no further after 1000" in found[-1].message


@pytest.mark.parametrize("size_bytes", [(1 << 31), 8 << 30])
@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex"])
def test_an_index_that_no_broker_can_map_is_a_finding(directory: Path, suffix: str, size_bytes: int) -> None:
    sparse(directory / "t-0" / f"{SEGMENT}.{suffix}", size_bytes)
    report = verify_partition(OsFileSystem(), f"{directory}/t-0")
    messages = [
        problem.message for problem in report.problems if problem.path.endswith(f"{SEGMENT}.{suffix}")
    ]
    assert messages[0] == f"{size_bytes} bytes are more than an index may have"


def test_what_is_no_regular_file_is_named(tmp_path: Path) -> None:
    for kind, word in (("fifo", "a FIFO"), ("socket", "socket"), ("device", "a device")):
        path = tmp_path / kind
        KINDS[kind](path)
        for mode in (OpenMode.READ, OpenMode.WRITE, OpenMode.CREATE):
            with pytest.raises(OSError, match=f"expected a regular file, found .*{word}"):
                OsFileSystem().open(str(path), mode)
        with pytest.raises(OSError, match="regular file"):
            OsFileSystem().lock(str(path))


def test_verify_of_a_directory_ends_with_json_whatever_is_in_it(directory: Path) -> None:
    (directory / "t-0" / f"{SEGMENT}.timeindex").unlink()
    os.mkfifo(directory / "t-0" / f"{SEGMENT}.timeindex")
    result = CliRunner().invoke(log_group, ["verify", str(directory), "--json"])
    assert result.exit_code != 0 and "regular file" in result.output
    assert json.loads(result.stdout)


@pytest.mark.parametrize("kind", ["fifo", "device", "garbage"])
def test_ll3_verify_names_what_keeps_a_partition_from_its_directory(directory: Path, kind: str) -> None:
    shutil.rmtree(directory / "t-0")
    KINDS[kind](directory / "t-0")
    (directory / "notes").touch()
    result = CliRunner().invoke(log_group, ["verify", str(directory)])
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "t-0: the name of a partition, but no directory: its log cannot be made [LL3]",
        "0 partitions, 1 problems",
    ]


LINKS = {kind: KINDS[kind] for kind in ("link to nothing", "loop of links", "name beyond limits")}


def lines_of(command: str, directory: Path) -> tuple[int, list[str]]:
    result = CliRunner().invoke(log_group, [command, str(directory)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output.splitlines()


@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize("name", ["x", "meta.properties", "replication-offset-checkpoint"])
def test_ll3_a_name_that_leads_to_nothing_is_a_finding_and_the_rest_is_verified(
    directory: Path, name: str, kind: str
) -> None:
    (directory / name).unlink(missing_ok=True)
    LINKS[kind](directory / name)
    status, lines = lines_of("verify", directory)
    assert (status, lines[-1]) == (1, "1 partitions, 1 problems")
    assert f"{name}: a link that leads to nothing [LL3]" in lines
    assert lines_of("stats", directory)[0] == 0
    # The checkpoints have to be written.
    if not name.endswith("checkpoint"):
        load(directory)


@pytest.mark.parametrize("kind", LINKS)
def test_ll3_a_partition_that_leads_to_nothing_is_an_error_of_that_partition_alone(
    directory: Path, kind: str
) -> None:
    LINKS[kind](directory / "u-0")
    for command in ("verify", "stats"):
        status, lines = lines_of(command, directory)
        assert status == 2
        assert any(line.startswith("t-0: ") and "45 batches" in line for line in lines), lines
        assert any(line.startswith("u-0: ") and f"{directory}/u-0: " in line for line in lines), lines
    # As in Kafka, whose File.isDirectory is false for it.
    load(directory)


@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize("suffix", ["log.deleted", "log.swap", "log.cleaned", "index"])
def test_ll6_a_start_skips_names_that_lead_to_nothing(directory: Path, suffix: str, kind: str) -> None:
    """Kafka: LogLoader asks File.isFile of each name first."""
    name = f"{9:020d}.{suffix}"
    LINKS[kind](directory / "t-0" / name)
    load(directory)
    recover(directory)
    status, lines = lines_of("verify", directory)
    assert status == 1 and f"t-0/{name}: a link that leads to nothing [1.1]" in lines


@pytest.mark.parametrize("kind", LINKS)
def test_ll10_a_segment_that_leads_to_nothing_is_found_and_its_log_not_recovered_without_it(
    directory: Path, kind: str
) -> None:
    """Kafka would load the log without the segment, and nobody would learn of the loss."""
    path = directory / "t-0" / f"{SEGMENT}.log"
    path.unlink()
    LINKS[kind](path)
    _, lines = lines_of("verify", directory)
    assert f"t-0/{path.name}: a link that leads to nothing [1.1]" in lines
    with pytest.raises((OSError, StorageError), match=path.name):
        recover(directory)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("t-0/leader-epoch-checkpoint.tmp", "the next that replaces leader-epoch-checkpoint takes it away"),
        ("replication-offset-checkpoint.tmp", "that replaces replication-offset-checkpoint takes it away"),
        ("log-start-offset-checkpoint.job.tmp", "that replaces log-start-offset-checkpoint takes it away"),
        (f"t-0/{SEGMENT}.snapshot.tmp", "left over: the next start deletes it"),
        ("t-0/partition.metadata.tmp", "left over from replacing a file: nothing deletes it"),
    ],
)
def test_ll6_verify_says_what_becomes_of_a_temporary_file(directory: Path, name: str, said: str) -> None:
    (directory / name).touch()
    status, lines = lines_of("verify", directory)
    assert status == 1
    assert any(line.startswith(f"{name}: left over") and said in line for line in lines), lines
