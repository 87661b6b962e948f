"""`replog log recover --dry-run` changes nothing, and `--backup` copies what will be changed before it is."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from replog import recovery_backup
from replog.log_commands import log as log_group
from replog.recovery_backup import scratch_directory
from storage.disk.filesystem import OpenMode
from storage.disk.os_filesystem import OsFileSystem
from storage.disk.overlay import Change, OverlayFile, OverlayFileSystem
from tests.places import GOLDEN

DAMAGED = sorted(path.name for path in (GOLDEN / "damaged").iterdir() if path.is_dir())
LOG = f"{0:020d}.log"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(log_group, ["recover", *map(str, arguments)])


def tree(path: Path) -> dict[str, tuple[bytes, int, int] | None]:
    """Returns the bytes, times and inodes of all files below `path`."""
    return {
        str(each.relative_to(path)): (each.read_bytes(), each.stat().st_mtime_ns, each.stat().st_ino)
        if each.is_file()
        else None
        for each in sorted(path.rglob("*"))
    }


def cut_and_lower(path: Path) -> None:
    """Damage the last batch of t-0, so that its log and its checkpointed offsets must change."""
    damaged = path / "t-0" / LOG
    damaged.write_bytes(damaged.read_bytes()[:-1])


def test_a_dry_run_says_what_a_recovery_would_do_and_changes_no_byte(directory: Path) -> None:
    cut_and_lower(directory)
    before = tree(directory)
    result = run(directory, "--dry-run")
    assert tree(directory) == before
    assert result.exit_code == 1
    assert " bytes would be cut: " in result.stdout and " bytes would be removed" in result.stdout
    assert f"would be changed: {directory}/t-0/{LOG}\n" in result.stdout
    assert f"would be changed: {directory}/recovery-point-offset-checkpoint\n" in result.stdout
    assert f"{directory}/u-0/{LOG}" not in result.stdout
    assert result.stdout.endswith("dry run: nothing was changed\n")


def test_a_dry_run_of_a_sound_directory_ends_with_0(directory: Path) -> None:
    before = tree(directory)
    result = run(directory, "--dry-run", "--json")
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["dry_run"], answer["removed_bytes"]) == (0, True, 0)
    assert tree(directory) == before


@pytest.mark.parametrize("name", DAMAGED)
def test_a_dry_run_names_exactly_what_the_recovery_then_changes(tmp_path: Path, name: str) -> None:
    copy = tmp_path / name
    shutil.copytree(GOLDEN / "damaged" / name, copy)
    before = tree(tmp_path)
    planned = json.loads(run(copy, "--dry-run", "--json").stdout)
    assert tree(tmp_path) == before
    done = json.loads(run(copy, "--json").stdout)
    after = tree(tmp_path)
    assert done["partitions"] == planned["partitions"]
    contents = [{name: found and found[0] for name, found in each.items()} for each in (before, after)]
    changed = {
        str(tmp_path / n) for n in before.keys() | after.keys() if contents[0].get(n) != contents[1].get(n)
    }
    assert set(planned["changes"]) == changed


def test_a_dry_run_leaves_no_copy_and_no_lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(GOLDEN / "damaged" / "torn-tail-0", tmp_path / "data" / "torn-tail-0")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    assert run(tmp_path / "data", "--dry-run").exit_code == 1
    assert list(scratch.iterdir()) == [] and not (tmp_path / "data" / ".lock").exists()


def test_a_dry_run_of_a_directory_in_use_is_refused(directory: Path) -> None:
    lock = OsFileSystem().lock(str(directory / ".lock"))
    result = run(directory, "--dry-run")
    lock.release()
    assert result.exit_code == 2 and "is in use: .lock is held by another process" in result.stderr


def test_a_backup_and_its_list_undo_a_recovery(directory: Path, tmp_path: Path) -> None:
    cut_and_lower(directory)
    (directory / "t-0" / f"{0:020d}.index").unlink()
    before = {name: found and found[0] for name, found in tree(directory).items()}
    backup = tmp_path / "backups" / "one"
    result = run(directory, "--backup", backup)
    assert result.exit_code == 0 and f"files that change, in {backup}\n" in result.stdout
    described = json.loads((backup / "BACKUP.json").read_text())
    base = Path(described["directory"])
    for name, change in described["changes"].items():
        assert (backup / name).exists() == (change != "created")
        if change == "created":
            (base / name).unlink()
        else:
            shutil.copy2(backup / name, base / name)
    assert {name: found and found[0] for name, found in tree(directory).items()} == before
    assert described["changes"]["t-0/" + LOG] == "changed"


def test_a_partitions_backup_has_the_checkpoints_beside_it(directory: Path, tmp_path: Path) -> None:
    cut_and_lower(directory)
    checkpoint = (directory / "recovery-point-offset-checkpoint").read_bytes()
    assert run(directory / "t-0", "--backup", tmp_path / "one").exit_code == 0
    assert (tmp_path / "one" / "recovery-point-offset-checkpoint").read_bytes() == checkpoint
    assert (tmp_path / "one" / "t-0" / LOG).exists()


def test_no_earlier_backup_is_overwritten(directory: Path, tmp_path: Path) -> None:
    cut_and_lower(directory)
    (tmp_path / "one").mkdir()
    before = tree(tmp_path)
    result = run(directory, "--backup", tmp_path / "one")
    assert result.exit_code == 2 and "no earlier backup is overwritten" in result.stderr
    assert tree(tmp_path) == before


@pytest.mark.parametrize("place", ["backup-1", "t-0/backup-1", "deep/down/backup-1"])
def test_a_backup_within_the_log_directory_is_refused(directory: Path, place: str) -> None:
    """The name of a folder there is read as a topic and a partition."""
    for path in (directory, directory / "t-0"):
        result = run(path, "--backup", directory / place)
        assert result.exit_code == 2 and "within a log directory" in result.stderr
    assert not (directory / place).exists()


def test_a_backup_within_a_log_directory_by_way_of_a_link_is_refused(directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy-0"
    shutil.copytree(directory / "t-0", copy)
    (tmp_path / "link").symlink_to(directory)
    result = run(copy, "--backup", tmp_path / "link" / "deep" / "backup")
    assert result.exit_code == 2 and "within a log directory" in result.stderr
    assert run(copy, "--backup", tmp_path / "deep" / "backup").exit_code == 0


def test_without_a_change_no_backup_is_made(directory: Path, tmp_path: Path) -> None:
    assert run(directory, "--backup", tmp_path / "one", "--json").exit_code == 0
    again = run(directory, "--backup", tmp_path / "two", "--json")
    assert "backup: none, nothing will change\n" in run(directory, "--backup", tmp_path / "two").stdout
    assert json.loads(again.stdout)["backup"] is None and not (tmp_path / "two").exists()


def test_a_backup_that_fails_is_taken_away_and_nothing_is_changed(
    directory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut_and_lower(directory)
    before = tree(directory)

    def full(file_system: OsFileSystem, path: str, content: bytes) -> None:
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(recovery_backup, "_write", full)
    result = run(directory, "--backup", tmp_path / "one")
    assert result.exit_code == 2 and "No space left on device; nothing was changed" in result.stderr
    assert tree(directory) == before and not (tmp_path / "one").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_without_room_for_the_dry_run_there_is_no_backup_and_nothing_is_changed(
    directory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """Before, the backup lacked the partition whose dry run had failed, and the recovery cut it all the same."""
    for name in ("t-0", "u-0"):
        path = directory / name / LOG
        path.write_bytes(path.read_bytes()[:-1])
    before = tree(directory)

    opened = OverlayFileSystem.open

    def full(overlay: OverlayFileSystem, path: str, mode: OpenMode, *, can_rest: bool = False) -> OverlayFile:
        if "/t-0/" in path and mode is not OpenMode.READ:
            raise OSError(number, os.strerror(number), "/scratch/1")
        return opened(overlay, path, mode, can_rest=can_rest)

    monkeypatch.setattr(OverlayFileSystem, "open", full)
    result = run(directory, "--backup", tmp_path / "one")
    assert result.exit_code == 2 and result.stdout == ""
    start, end = "error: --backup: what would change is not known: ", "; nothing was changed\n"
    assert result.stderr.startswith(start) and result.stderr.endswith(end)
    assert os.strerror(number) in result.stderr and result.stderr.count("\n") == 1
    assert tree(directory) == before and not (tmp_path / "one").exists()


def test_a_backup_without_a_place_for_the_dry_run_is_one_line(
    directory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    result = run(directory, "--backup", tmp_path / "one")
    assert result.exit_code == 2 and "what would change is not known" in result.stderr
    assert result.stderr.endswith("; nothing was changed\n") and result.stderr.count("\n") == 1


def test_a_backup_is_made_beside_a_log_that_cannot_be_healed(directory: Path, tmp_path: Path) -> None:
    """Its recovery stops where its dry run did, so the backup has all that changes."""
    (directory / "u-0" / "leader-epoch-checkpoint").write_text("0\n1\nx y\n")
    cut_and_lower(directory)
    assert run(directory, "--backup", tmp_path / "one").exit_code == 2
    assert (tmp_path / "one" / "t-0" / LOG).exists()


def test_a_dry_run_that_the_system_stops_names_no_file_of_a_half_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, it listed `leader-epoch-checkpoint.tmp` as to be created."""

    def full(overlay: OverlayFileSystem, old: str, new: str) -> None:
        raise OSError(28, "No space left on device", new)

    path = tmp_path / "shapes-none-0"
    shutil.copytree(GOLDEN / "kafka-4.1" / "clean" / path.name, path)
    (path / "leader-epoch-checkpoint").unlink()
    monkeypatch.setattr(OverlayFileSystem, "rename", full)
    answer = json.loads(run(path, "--dry-run", "--json").stdout)
    assert "No space left" in answer["partitions"][0]["error"] and answer["changes"] == {}


INTERRUPTED = """
import sys
from pathlib import Path
from replog import log_commands, partition_recovery
from replog.cli import main
directory, flag = sys.argv[1:]
recover_in = partition_recovery._recover_in
def recover(file_system, result, *rest):
    recover_in(file_system, result, *rest)
    if not result.directory.endswith("t-0"):
        Path(flag).touch()
        Path(flag + ".never").open()
def interrupted(lines):
    while not Path(flag).exists():
        pass
    raise KeyboardInterrupt
partition_recovery._recover_in = recover
log_commands.echo_lines = interrupted
sys.argv[1:] = ["log", "recover", "--dry-run", "--jobs", "2", directory]
sys.exit(main())
"""


def test_an_interrupted_dry_run_of_several_processes_leaves_no_copies(
    directory: Path,
    tmp_path: Path,
) -> None:
    """Before, a process that was ended in the midst of its partition left its copies."""
    cut_and_lower(directory)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    # A FIFO without a writer: who opens it for reading waits.
    os.mkfifo(tmp_path / "flag.never")
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(directory), str(tmp_path / "flag")],
        env=os.environ | {"TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (3, "error: interrupted\n")
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_what_a_recovery_leaves_wrong_is_named_and_it_exits_with_1(
    directory: Path, options: list[str]
) -> None:
    """The checksum covers no base offset, and as Kafka's a recovery compares the offsets of index entries only. Before,
    it said "0 bytes removed", and exited with 0.
    """
    path = directory / "t-0" / LOG
    content = bytearray(path.read_bytes())
    size = len(content) // 10
    content[4 * size + 6] ^= 1
    path.write_bytes(content)
    result = run(directory, *options)
    told = f"{path} at byte {5 * size}: not healed: offsets go back: 5 to 5 after 260 [AP4]"
    assert result.exit_code == 1 and told in result.stdout.splitlines()
    answer = json.loads(run(directory, *options, "--json").stdout)
    damaged, sound = answer["partitions"]
    (problem,) = damaged["problems"]
    assert (problem["path"], problem["position"], problem["rule"]) == (str(path), 5 * size, "AP4")
    assert sound["problems"] == [] and answer["removed_bytes"] == 0
    assert path.read_bytes() == content


def test_a_dry_run_and_a_backup_exclude_each_other(directory: Path, tmp_path: Path) -> None:
    assert run(directory, "--dry-run", "--backup", tmp_path / "one").exit_code == 2


def test_an_overlay_reads_a_log_that_only_became_shorter_without_a_copy(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    path = tmp_path / "a.log"
    path.write_bytes(b"0123456789")
    overlay = OverlayFileSystem(OsFileSystem(), str(tmp_path / "scratch"))
    file = overlay.open(str(path), OpenMode.WRITE)
    file.truncate(4)
    shown = file.map_for_reading()
    assert (bytes(shown.view), file.read_at(2, 9), file.size()) == (b"0123", b"23", 4)
    shown.close()
    assert os.listdir(tmp_path / "scratch") == [] and path.read_bytes() == b"0123456789"
    file.append(b"x")
    assert (file.read_at(0, 9), os.listdir(tmp_path / "scratch")) == (b"0123x", ["1"])
    file.close()
    assert overlay.changes() == {str(path): Change.CHANGED}


def test_what_the_look_after_a_recovery_cannot_read_undoes_no_recovery(directory: Path) -> None:
    """A node starts with such a directory. Before, the log counted as not recovered, and its mark was gone."""
    in_the_way = directory / "t-0" / f"{100:020d}.log"
    in_the_way.mkdir()
    (directory / ".kafka_cleanshutdown").write_text("0\n")
    result = run(directory, "--json")
    assert result.exit_code == 1 and (directory / ".kafka_cleanshutdown").exists()
    first, _ = json.loads(result.stdout)["partitions"]
    assert first["error"] is None and first["problems"][0]["path"] == str(in_the_way)


def test_what_a_crash_has_left_over_is_named_and_is_nothing_wrong(directory: Path) -> None:
    left = directory / "t-0" / "partition.metadata.tmp"
    left.write_text("version: 0\n")
    result = run(directory)
    assert result.exit_code == 0
    assert f"{left}: still there: left over from replacing a file: nothing deletes it [LL6]" in result.stdout


def test_a_backup_is_made_where_a_link_leads_to_nothing(directory: Path, tmp_path: Path) -> None:
    """The recovery stops at it, and lowers checkpoints then. Before, the dry run did not see the link."""
    (directory / "recovery-point-offset-checkpoint").write_text("0\n2\nt 0 10\nu 0 3\n")
    (directory / "t-0" / f"{100:020d}.log").symlink_to("/nonexistent")
    result = run(directory, "--backup", tmp_path / "one")
    if "what would change is not known" in result.stderr:
        assert (directory / "recovery-point-offset-checkpoint").read_text() == "0\n2\nt 0 10\nu 0 3\n"
    else:
        assert (tmp_path / "one" / "recovery-point-offset-checkpoint").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_dry_run_that_is_told_to_end_leaves_no_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def work() -> None:
        with scratch_directory() as scratch:
            Path(scratch, "copy").touch()
            signal.raise_signal(number)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert list(tmp_path.iterdir()) == []
