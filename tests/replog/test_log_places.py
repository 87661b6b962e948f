"""`replog log` on directories whose log is not the one of their name, on links, and on a controller's log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from storage.disk.os_filesystem import OsFileSystem
from storage.inspection.verify.directory import OFFSET_CHECKPOINTS
from tests.cluster.controller.test_metadata_damage import batch_positions, flip, log_file  # noqa: F401
from tests.replog.test_log_commands import run

HEX = "0123456789abcdef" * 2
LOG = f"{0:020d}.log"
COMMANDS = [["recover"], ["truncate", "--to-offset", "3"]]


def contents(path: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}


def set_aside(directory: Path, suffix: str) -> Path:
    """Copy t-0 to a directory with the suffix, and let all checkpoints have the live log at 10."""
    copy = directory / f"t-0.{HEX}{suffix}"
    shutil.copytree(directory / "t-0", copy)
    for name in OFFSET_CHECKPOINTS:
        (directory / name).write_text("0\n2\nt 0 10\nu 0 3\n")
    return copy


@pytest.mark.parametrize("suffix", ["-stray", "-future"])
@pytest.mark.parametrize("command", COMMANDS, ids=["recover", "truncate"])
def test_a_log_that_is_set_aside_has_nothing_to_do_with_the_checkpoints_of_the_live_one(
    directory: Path,
    suffix: str,
    command: list[str],
) -> None:
    """Before, the copy was emptied because of the live log's start, and the live log's checkpoints were lowered."""
    copy = set_aside(directory, suffix)
    log = copy / LOG
    log.write_bytes(log.read_bytes()[:-1])
    before = {path: data for path, data in contents(directory).items() if copy not in path.parents}
    result = run(*command, copy, "--json")
    assert result.exit_code == 0
    summary = json.loads(result.stdout)
    summary = summary["partitions"][0] if command == ["recover"] else summary
    assert (summary["log_start_offset"], summary["log_end_offset"]) == (0, 9 if command == ["recover"] else 3)
    after = {path: data for path, data in contents(directory).items() if copy not in path.parents}
    assert after == before
    assert run("verify", copy).exit_code == 0


@pytest.mark.parametrize("command", [*COMMANDS, ["recover", "--dry-run"]])
def test_a_log_that_is_about_to_be_deleted_is_refused(directory: Path, command: list[str]) -> None:
    copy = set_aside(directory, "-delete")
    before = contents(directory)
    result = run(*command, copy)
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr == f"error: {copy} is set aside to be deleted (-delete): it is no log any more\n"
    assert contents(directory) == before


@pytest.mark.parametrize("command", [*COMMANDS, ["recover", "--dry-run"]])
def test_a_link_does_not_get_round_the_lock(directory: Path, tmp_path: Path, command: list[str]) -> None:
    link = tmp_path / "link-0"
    link.symlink_to(directory / "t-0")
    lock = OsFileSystem().lock(str(directory / ".lock"))
    result = run(*command, link)
    lock.release()
    assert result.exit_code == 2 and f"error: {directory} is in use" in result.stderr


def test_a_recovery_by_way_of_a_link_lowers_the_checkpoints_of_the_log(
    directory: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link-0"
    link.symlink_to(directory / "t-0")
    (directory / "t-0" / LOG).write_bytes((directory / "t-0" / LOG).read_bytes()[:-1])
    assert run("recover", link).exit_code == 0
    assert (directory / "recovery-point-offset-checkpoint").read_text() == "0\n2\nt 0 9\nu 0 3\n"
    assert run("verify", directory).exit_code == 0


def test_verify_by_way_of_a_link_knows_that_the_directory_is_in_use(directory: Path, tmp_path: Path) -> None:
    link = tmp_path / "link-0"
    link.symlink_to(directory / "t-0")
    (directory / "t-0" / f"{7:020d}.log.deleted").touch()
    assert run("verify", link).exit_code == 1
    lock = OsFileSystem().lock(str(directory / ".lock"))
    assert run("verify", link).exit_code == 0
    lock.release()


def test_a_link_in_a_log_directory_belongs_to_that_directory(directory: Path, tmp_path: Path) -> None:
    (directory / "t-0").rename(tmp_path / "elsewhere-0")
    (directory / "t-0").symlink_to(tmp_path / "elsewhere-0")
    path = tmp_path / "elsewhere-0" / LOG
    path.write_bytes(path.read_bytes()[:-1])
    assert run("recover", directory / "t-0").exit_code == 0
    assert (directory / "recovery-point-offset-checkpoint").read_text() == "0\n2\nt 0 9\nu 0 3\n"


@pytest.mark.parametrize("command", [*COMMANDS, ["recover", "--dry-run"]])
def test_committed_decisions_of_a_controller_are_not_cut(log_file: Path, command: list[str]) -> None:  # noqa: F811
    """Before, the controller started after a recovery, without decisions that its brokers had acted on."""
    flip(log_file, batch_positions(log_file)[2] + 70)
    before = contents(log_file.parent)
    result = run(*command, log_file.parent)
    told = result.stdout + result.stderr
    assert result.exit_code == 2 and "the controller's log is damaged, and nothing of it was cut" in told
    assert len([line for line in told.splitlines() if str(log_file) in line]) == 1
    assert contents(log_file.parent) == before


def test_the_torn_tail_of_a_controllers_log_is_cut(log_file: Path) -> None:  # noqa: F811
    log_file.write_bytes(log_file.read_bytes()[:-1])
    result = run("recover", log_file.parent.parent, "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["removed_bytes"] > 0


def test_the_checkpoints_beside_a_log_that_is_moved_in_alone_are_about_it(directory: Path) -> None:
    """Kafka moves a log into another log directory, whose checkpoints have its name from then on."""
    moved = set_aside(directory, "-future")
    shutil.rmtree(directory / "t-0")
    (directory / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    log = moved / LOG
    log.write_bytes(log.read_bytes()[:-1])
    result = run("recover", moved, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["partitions"][0]["log_start_offset"] == 2
    assert "t 0 9\n" in (directory / "recovery-point-offset-checkpoint").read_text()
