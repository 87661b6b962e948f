"""`replog log recover|truncate|verify` on real files."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from replog import log_commands, log_inspect_commands
from replog.log_commands import log as log_group
from storage.disk.checkpoints import LOG_START_OFFSET_CHECKPOINT
from storage.disk.os_filesystem import OsFileSystem
from storage.inspection.verify.directory import OFFSET_CHECKPOINTS
from storage.inspection.verify.partition import PartitionReport
from tests.places import GOLDEN
from tests.replog.log_directories import manager
from tests.storage.disk.test_file_locks import locked_by_kafka
from tests.storage.logs import NOW_MS


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(log_group, [str(each) for each in arguments])


def test_verify_of_a_sound_directory_exits_with_0(directory: Path) -> None:
    result = run("verify", directory, "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 0 and answer["sound"] and answer["problems"] == []
    assert [each["log_end_offset"] for each in answer["partitions"]] == [10, 3]
    assert run("verify", directory / "t-0").exit_code == 0


def test_verify_names_the_damage_and_exits_with_1(directory: Path) -> None:
    damaged = directory / "t-0" / f"{0:020d}.log"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    result = run("verify", directory, "--json")
    problem = json.loads(result.stdout)["problems"][0]
    assert result.exit_code == 1
    # The name is relative to the directory that was given.
    name = f"t-0/{damaged.name}"
    assert (problem["path"], problem["position"], problem["rule"]) == (name, len(content) // 10 * 9, "FR11")
    assert run("verify", directory).stdout.startswith(f"{name} at byte ")
    assert run("verify", directory / "t-0").stdout.startswith(f"{damaged.name} at byte ")


def test_recover_reports_each_cut_and_what_is_left_is_sound(directory: Path) -> None:
    damaged = directory / "t-0" / f"{0:020d}.log"
    size = len(damaged.read_bytes())
    with damaged.open("ab") as file:
        file.write(b"\x00" * 30)
    result = run("recover", directory, "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 0 and answer["removed_bytes"] == 30
    (cut,) = answer["partitions"][0]["cuts"]
    assert (cut["segment"], cut["position"], cut["removed_bytes"]) == (str(damaged), size, 30) and cut[
        "reason"
    ]
    assert answer["partitions"][1]["cuts"] == []
    assert run("verify", directory).exit_code == 0
    logs = manager(directory)
    assert logs.was_clean and logs.logs["t-0"].log_end_offset == 10
    logs.shutdown()


def test_recover_below_the_checkpoint_lowers_it(directory: Path) -> None:
    damaged = directory / "t-0" / f"{0:020d}.log"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert run("recover", directory / "t-0").exit_code == 0
    assert (directory / "recovery-point-offset-checkpoint").read_text() == "0\n2\nt 0 9\nu 0 3\n"


@pytest.mark.parametrize("command", [["truncate", "--to-offset", "2"], ["recover"]])
def test_fl5_no_checkpoint_is_beyond_the_end_of_a_log_that_was_cut(
    directory: Path, command: list[str]
) -> None:
    """Before, a verify after a truncation reported a high watermark beyond the log end."""
    for name in OFFSET_CHECKPOINTS:
        (directory / name).write_text("0\n3\ngone 7 12\nt 0 10\nu 0 1\n")
    if command == ["recover"]:
        damaged = directory / "t-0" / f"{0:020d}.log"
        content = bytearray(damaged.read_bytes())
        content[len(content) // 5 + 30] ^= 1
        damaged.write_bytes(content)
    (directory / LOG_START_OFFSET_CHECKPOINT).unlink()
    assert run(*command, directory / "t-0").exit_code == 0
    assert run("verify", directory).exit_code == 0
    for name in OFFSET_CHECKPOINTS:
        path = directory / name
        assert not path.exists() or path.read_text() == "0\n3\ngone 7 12\nt 0 2\nu 0 1\n", name


def test_rt9_a_truncation_inside_a_batch_leaves_nothing_beyond_its_begin(tmp_path: Path) -> None:
    """Before, checkpoints and a producer snapshot stayed at the offset asked for, where no log ends."""
    shutil.copytree(GOLDEN / "kafka-2.8" / "clean", tmp_path / "data")
    result = run("truncate", tmp_path / "data" / "v1-gzip-0", "--to-offset", "40", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["log_end_offset"] == 34
    assert run("verify", tmp_path / "data").exit_code == 0


@pytest.mark.parametrize(
    ("name", "removed"),
    [("torn-tail-0", 70_716), ("torn-header-0", 7), ("zero-tail-0", 4096), ("flipped-in-gzip-0", 102_426)],
)
def test_recover_of_kafkas_damaged_files(tmp_path: Path, name: str, removed: int) -> None:
    shutil.copytree(GOLDEN / "damaged" / name, tmp_path / name)
    assert run("verify", tmp_path / name).exit_code == 1
    result = run("recover", tmp_path / name, "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["removed_bytes"] == removed
    assert run("verify", tmp_path / name).exit_code == 0
    assert not (tmp_path / ".lock").exists()


def test_truncate_removes_what_is_after_it(directory: Path) -> None:
    result = run("truncate", directory / "t-0", "--to-offset", "4", "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 0 and answer["changed"] and answer["log_end_offset"] == 4
    assert answer["log_end_offset_before"] == 10 and answer["removed_bytes"] > 0
    assert (directory / "recovery-point-offset-checkpoint").read_text() == "0\n2\nt 0 4\nu 0 3\n"
    again = json.loads(run("truncate", directory / "t-0", "--to-offset", "40", "--json").stdout)
    assert again["changed"] is False and again["removed_bytes"] == 0
    assert run("verify", directory).exit_code == 0


@pytest.mark.parametrize("to_offset", ["40", "2"])
def test_truncate_reports_and_counts_what_its_recovery_has_cut(directory: Path, to_offset: str) -> None:
    (log,) = (directory / "t-0").glob("*.log")
    whole = log.read_bytes()
    torn = whole[:-1]
    batch_bytes = len(whole) // 10
    removed = len(torn) - (9 if to_offset == "40" else 2) * batch_bytes
    log.write_bytes(torn)
    lines = run("truncate", directory / "t-0", "--to-offset", to_offset).stdout.splitlines()
    cut = f"{log} at byte {9 * batch_bytes}: {batch_bytes - 1} bytes cut: "
    end = "cut by its recovery, it ends at 9" if to_offset == "40" else "truncated from 9 to 2"
    assert len(lines) == 2 and lines[0].startswith(cut)
    assert lines[1] == f"{directory / 't-0'}: {end}, {removed} bytes removed"
    log.write_bytes(torn)
    answer = json.loads(run("truncate", directory / "t-0", "--to-offset", to_offset, "--json").stdout)
    assert (answer["changed"], answer["removed_bytes"], len(answer["cuts"])) == (True, removed, 1)


def test_a_directory_in_use_is_refused_by_commands_that_write_and_read_by_verify(directory: Path) -> None:
    logs = manager(directory)
    try:
        for arguments in (
            ("recover", directory),
            ("recover", directory / "t-0"),
            ("truncate", directory / "t-0", "--to-offset", "1"),
        ):
            result = run(*arguments)
            assert result.exit_code == 2 and "in use" in result.stderr and result.stdout == ""
        assert run("verify", directory).exit_code == 0
    finally:
        logs.shutdown()
    assert run("recover", directory).exit_code == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has locks of this kind")
def test_a_directory_that_kafka_uses_is_refused_as_one_of_a_node(directory: Path) -> None:
    """Before, its lock was not seen, and a log that Kafka writes was cut."""
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    with locked_by_kafka(directory / ".lock") as answer:
        assert answer == "held"
        for arguments in (
            ("recover", directory),
            ("recover", directory / "t-0"),
            ("recover", "--dry-run", directory),
            ("truncate", directory / "t-0", "--to-offset", "1"),
        ):
            result = run(*arguments)
            assert result.exit_code == 2 and result.stdout == "" and result.stderr.count("\n") == 1
            assert f"error: {directory} is in use: " in result.stderr
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


def test_what_a_node_is_about_to_delete_is_no_inconsistency(directory: Path) -> None:
    logs = manager(directory)
    try:
        for name in (
            f"t-0/{7:020d}.log.deleted",
            f"t-0/{7:020d}.log.cleaned",
            "v-0.0123456789abcdef-delete/x",
        ):
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).touch()
        assert run("verify", directory).exit_code == 0
        assert run("verify", directory / "t-0").exit_code == 0
    finally:
        logs.close_handles()
    found = json.loads(run("verify", directory, "--json").stdout)["problems"]
    assert [each["rule"] for each in found] == ["LL6", "LL6", "LL4"]


def test_a_problem_that_only_one_look_at_a_running_nodes_files_shows_is_none(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction may swap segments after the log was read and before its index is."""
    looks: list[str] = []

    def look(
        file_system: OsFileSystem, path: str, *, deep: bool, in_use: bool, log_start: object = None
    ) -> PartitionReport:
        assert in_use and log_start is None
        looks.append(path)
        # The checkpoint is ahead of what was seen.
        report = PartitionReport(directory=path, log_end_offset=5)
        report.add(f"{path}/x.index", len(looks), "IX14", "swapped meanwhile")
        if path.endswith("u-0"):
            report.add(f"{path}/x.log", 8, "FR11", "damaged")
        return report

    monkeypatch.setattr(log_inspect_commands, "verify_partition", look)
    logs = manager(directory)
    try:
        result = run("verify", directory, "--json")
    finally:
        logs.shutdown()
    assert [each["path"] for each in json.loads(result.stdout)["problems"]] == ["u-0/x.log"]
    assert [Path(path).name for path in looks] == ["t-0", "t-0", "u-0", "u-0", "u-0"]


@pytest.mark.slow
def test_on_a_terminal_each_result_has_a_line_of_its_own(directory: Path) -> None:
    """The progress uses the same terminal: it must leave the line before a result is printed."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "replog", "log", "verify", str(directory)]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=GOLDEN.parents[1]) as process:
        os.close(theirs)
        shown = b""
        # The other end is closed.
        with contextlib.suppress(OSError):
            while chunk := os.read(ours, 1 << 16):
                shown += chunk
        os.close(ours)
    assert process.returncode == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    lines = [line.strip() for line in re.split(r"[\r\n]+", text)]
    assert "verify" in text and [line[:4] for line in lines if "sound" in line] == ["t-0:", "u-0:"]


UNREADABLE = "t-0: Permission denied"


@pytest.fixture
def sealed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`directory`, but t-0 cannot be listed. The error is planted, because root may list everything."""
    listed = OsFileSystem.list

    def refuse(file_system: OsFileSystem, path: str) -> list[str]:
        if path.endswith("t-0"):
            raise PermissionError(13, "Permission denied", path)
        return listed(file_system, path)

    monkeypatch.setattr(OsFileSystem, "list", refuse)
    return directory


@pytest.mark.parametrize("command", ["verify", "stats", "recover"])
def test_a_partition_that_may_not_be_read_spoils_itself_only(sealed: Path, command: str) -> None:
    result = run(command, sealed, "--json")
    broken, whole = json.loads(result.stdout)["partitions"]
    assert result.exit_code == 2
    assert broken["error"].endswith(UNREADABLE) and "[Errno" not in broken["error"]
    assert whole["error"] is None and whole["log_end_offset"] == 3


def test_the_reason_of_the_machine_is_reported_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file_system: OsFileSystem, path: str) -> list[str]:
        raise NotADirectoryError(20, "Not a directory", path)

    monkeypatch.setattr(OsFileSystem, "list", refuse)
    for command in ("verify", "stats"):
        assert run(command, directory).stderr == f"error: {directory}: Not a directory\n"


@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", "recovery-point-offset-checkpoint"])
def test_recover_and_truncate_treat_a_damaged_checkpoint_as_a_node_does_and_report_it_once(
    directory: Path, name: str
) -> None:
    (directory / name).write_text("0\nx\n")
    (log,) = (directory / "t-0").glob("*.log")
    log.write_bytes(log.read_bytes() + b"torn")
    warning = f"warning: {directory / name} line 2: the number of entries is no number: 'x'; "
    result = run("recover", directory, "--json")
    summary = json.loads(result.stdout)
    assert result.exit_code == 0 and summary["removed_bytes"] == 4
    assert [each["log_start_offset"] for each in summary["partitions"]] == [0, 0]
    assert result.stderr == warning + "every offset in it counts as 0\n"
    result = run("truncate", directory / "t-0", "--to-offset", "1")
    assert result.exit_code == 0 and result.stderr == warning + "every offset in it counts as 0\n"
    assert (directory / name).read_text() == "0\nx\n"


def test_an_interrupted_recover_lowers_the_checkpoints_of_the_logs_that_it_cut(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (log,) = (directory / "t-0").glob("*.log")
    log.write_bytes(log.read_bytes()[:-1])

    def interrupted(lines: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log_commands, "echo_lines", interrupted)
    assert run("recover", directory).exit_code != 0
    # Of u-0 nobody knows whether it was begun: the next start recovers it.
    assert (directory / "recovery-point-offset-checkpoint").read_text() == "0\n2\nt 0 9\nu 0 0\n"
    assert not (directory / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("command", [("recover",), ("truncate", "--to-offset", "9")])
def test_ll15_after_an_interrupted_recovery_the_next_start_trusts_no_index(
    directory: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """A time index of zeros would make every record fifty years old, and retention would delete them."""

    def interrupted(walk: object) -> None:
        raise KeyboardInterrupt

    name, *rest = command
    with monkeypatch.context() as patch:
        patch.setattr("storage.recovery.walk._Walk.write_indexes", interrupted)
        assert run(name, directory / "t-0", *rest).exit_code != 0
    assert not (directory / ".kafka_cleanshutdown").exists()
    assert (directory / "recovery-point-offset-checkpoint").read_text() == "0\n2\nt 0 0\nu 0 3\n"
    logs = manager(directory)
    log = logs.get("t", 0)
    assert log is not None and not logs.was_clean
    assert log.retention.delete_old(NOW_MS) == 0 and log.log_start_offset == 0
    assert log.log_end_offset == 10
    logs.close_handles()


@pytest.mark.parametrize("command", [("recover",), ("truncate", "--to-offset", "10")])
def test_a_recovery_that_has_ended_leaves_the_mark_and_the_recovery_points_as_they_were(
    directory: Path, command: tuple[str, ...]
) -> None:
    names = (".kafka_cleanshutdown", "recovery-point-offset-checkpoint")
    # Kafka writes the partitions in the order of a map.
    (directory / names[1]).write_text("0\n2\nu 0 3\nt 0 10\n")
    before = [(directory / name).read_bytes() for name in names]
    name, *rest = command
    assert run(name, directory / "t-0", *rest).exit_code == 0
    assert [(directory / name).read_bytes() for name in names] == before


def test_a_log_that_could_not_be_recovered_is_not_vouched_for(sealed: Path) -> None:
    assert run("recover", sealed).exit_code == 2
    assert (sealed / "recovery-point-offset-checkpoint").read_text() == "0\n2\nt 0 0\nu 0 3\n"
    assert not (sealed / ".kafka_cleanshutdown").exists()


def test_what_cannot_be_healed_is_one_clear_error(directory: Path) -> None:
    (directory / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\nx y\n")
    result = run("recover", directory, "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 2
    assert "leader-epoch-checkpoint line 3" in answer["partitions"][0]["error"]
    assert answer["partitions"][1]["error"] is None


def test_unusable_input_exits_with_2(tmp_path: Path, directory: Path) -> None:
    assert run("verify", tmp_path / "nowhere").exit_code == 2
    (tmp_path / "photos").mkdir()
    assert run("verify", tmp_path / "photos").exit_code == 2
    assert run("recover", tmp_path / "photos").exit_code == 2
    assert run("truncate", directory, "--to-offset", "1").exit_code == 2
    assert run("truncate", directory / "t-0").exit_code == 2
    assert run("recover", directory, "--config", "segment.bytes=1").exit_code == 2
    assert run("recover", directory, "--config", "nonsense=1").exit_code == 2


def test_a_mark_that_no_node_has_written_is_not_read(directory: Path) -> None:
    """Before, a sparse giant in its place filled the memory."""
    with (directory / ".kafka_cleanshutdown").open("wb") as file:
        file.truncate(8 << 30)
    assert run("recover", directory).exit_code == 0
    # The next start recovers.
    assert not (directory / ".kafka_cleanshutdown").exists()
