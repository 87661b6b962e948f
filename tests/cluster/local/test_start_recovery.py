"""Large logs are recovered side by side, in processes of their own, before the node starts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cluster.local import start_recovery
from cluster.local.start_recovery import recover_before_start
from storage.batch import Record, build_batch
from storage.config import LogConfig
from storage.directory.manager import LogManager
from storage.disk.checkpoints import RECOVERY_POINT_CHECKPOINT, CleanShutdownFile, OffsetCheckpoint
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from storage.errors import DirectoryInUse
from storage.recovery.cut import RecoveryCut

CONFIG = LogConfig()
NOW = 1_700_000_000_000
TOPICS = ("a", "b", "c")


@pytest.fixture(autouse=True)
def little_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limit of a small log, so that no test must write 64 MiB."""
    monkeypatch.setattr(start_recovery, "SMALL_BYTES", 2)


def _crashed(directory: Path, *, torn: str = "b") -> Path:
    """Write three logs of ten batches, one with a torn tail, and close nothing."""
    manager = LogManager(OsFileSystem(), str(directory), CONFIG, NOW, Draws(1))
    manager.load(NOW)
    for topic in TOPICS:
        log = manager.create(topic, 0, now_ms=NOW)
        for number in range(10):
            batch = build_batch(
                [Record(0, NOW + number, b"k", b"value")],
                producer_id=7,
                producer_epoch=0,
                base_sequence=number,
            )
            log.append_as_leader(batch, leader_epoch=0, now_ms=NOW)
    manager.close_handles()
    with (directory / f"{torn}-0" / f"{0:020d}.log").open("ab") as file:
        file.write(b"\x00" * 5)
    return directory


def _states(directory: Path) -> dict[str, tuple[int, int, list[tuple[int, int]]]]:
    manager = LogManager(OsFileSystem(), str(directory), CONFIG, NOW, Draws(1))
    manager.load(NOW)
    found = {
        name: (log.log_start_offset, log.log_end_offset, [(e, o) for e, o in log.epochs.entries])
        for name, log in manager.logs.items()
    }
    manager.close_handles()
    return found


def _files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.parent != directory
    }


@pytest.mark.slow
def test_logs_recovered_side_by_side_are_those_of_an_ordinary_start_and_stop(tmp_path: Path) -> None:
    crashed, other = _crashed(tmp_path / "one"), tmp_path / "two"
    shutil.copytree(crashed, other)
    cuts: list[RecoveryCut] = []
    recovered = recover_before_start(str(crashed), CONFIG, NOW, cuts.append, jobs=2)
    assert recovered == {str(crashed / f"{topic}-0") for topic in TOPICS}
    assert [(Path(cut.path).parent.name, cut.removed_bytes) for cut in cuts] == [("b-0", 5)]
    manager = LogManager(OsFileSystem(), str(other), CONFIG, NOW, Draws(1))
    manager.load(NOW)
    assert manager.shutdown(now_ms=NOW)
    assert _files(crashed) == _files(other)
    points = OffsetCheckpoint(OsFileSystem(), str(crashed / RECOVERY_POINT_CHECKPOINT)).read()
    assert points == {(topic, 0): 10 for topic in TOPICS}


@pytest.mark.slow
def test_c11_a_start_that_dies_after_the_recovery_does_not_pass_for_a_clean_stop(tmp_path: Path) -> None:
    crashed = _crashed(tmp_path / "one")
    recovered = recover_before_start(str(crashed), CONFIG, NOW, lambda cut: None, jobs=2)
    # The node has the result in memory only, so nothing is left of it where the start dies here.
    assert not CleanShutdownFile(OsFileSystem(), str(crashed)).exists()
    manager = LogManager(OsFileSystem(), str(crashed), CONFIG, NOW, Draws(1))
    assert not manager.was_clean
    manager.close_handles()
    assert len(recovered) == len(TOPICS)


@pytest.mark.slow
def test_the_node_then_opens_the_recovered_logs_as_after_an_orderly_stop(tmp_path: Path) -> None:
    crashed = _crashed(tmp_path / "one")
    recovered = recover_before_start(str(crashed), CONFIG, NOW, lambda cut: None, jobs=2)
    # Only a log that is opened without a recovery keeps a tail that is no batch.
    for topic in TOPICS:
        with (crashed / f"{topic}-0" / f"{0:020d}.log").open("ab") as file:
            file.write(b"\x00" * 5)
    some = recovered - {str(crashed / "c-0")}
    cuts: list[RecoveryCut] = []
    manager = LogManager(
        OsFileSystem(), str(crashed), CONFIG, NOW, Draws(1), report=cuts.append, recovered=some
    )
    manager.load(NOW)
    assert [Path(cut.path).parent.name for cut in cuts] == ["c-0"]
    manager.close_handles()


def test_nothing_is_touched_after_an_orderly_stop_or_for_a_single_log(tmp_path: Path) -> None:
    crashed = _crashed(tmp_path / "one")
    for topic in ("a", "c"):
        shutil.rmtree(crashed / f"{topic}-0")
    before = _files(crashed)
    assert not recover_before_start(str(crashed), CONFIG, NOW, lambda cut: None, jobs=2)
    CleanShutdownFile(OsFileSystem(), str(crashed)).write()
    assert not recover_before_start(str(crashed), CONFIG, NOW, lambda cut: None, jobs=2)
    assert not recover_before_start(str(tmp_path / "none"), CONFIG, NOW, lambda cut: None, jobs=2)
    assert _files(crashed) == before


@pytest.mark.slow
def test_a_log_that_cannot_be_recovered_leaves_no_mark_and_the_others_sound(tmp_path: Path) -> None:
    crashed = _crashed(tmp_path / "one")
    (crashed / "c-0" / f"{0:020d}.log").unlink()
    (crashed / "c-0" / f"{0:020d}.log").mkdir()
    (crashed / "c-0" / f"{0:020d}.index").unlink()
    (crashed / "c-0" / f"{0:020d}.index").mkdir()
    recover_before_start(str(crashed), CONFIG, NOW, lambda cut: None, jobs=2)
    assert not CleanShutdownFile(OsFileSystem(), str(crashed)).exists()


def test_a_directory_in_use_is_left_alone(tmp_path: Path) -> None:
    crashed = _crashed(tmp_path / "one")
    manager = LogManager(OsFileSystem(), str(crashed), CONFIG, NOW, Draws(1))
    with pytest.raises(DirectoryInUse):
        recover_before_start(str(crashed), CONFIG, NOW, lambda cut: None, jobs=2)
    manager.close_handles()
