"""Each kind of inconsistency that `log verify` finds: it is named with file, byte and rule, and nothing is changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.disk import SimFileSystem
from storage.disk.filesystem import OpenMode, join, read_file
from storage.disk.os_filesystem import OsFileSystem
from storage.inspection.verify.directory import verify_log_directory
from storage.inspection.verify.partition import Problem, verify_partition
from tests.golden.snapshots import Snapshot, encoded
from tests.places import GOLDEN
from tests.storage.logs import DIRECTORY, SIZE, SMALL, append_each, new_disk, new_file_system, open_log


def stopped(file_system: SimFileSystem, count: int = 60) -> None:
    log = open_log(file_system, SMALL)
    append_each(log, count // 2, epoch=1)
    append_each(log, count // 2, epoch=3)
    log.close()


def poke(file_system: SimFileSystem, name: str, position: int, data: bytes) -> None:
    file = file_system.open(join(DIRECTORY, name), OpenMode.CREATE)
    file.write_at(position, data)
    file.close()


def problems(file_system: SimFileSystem, *, deep: bool = False) -> list[Problem]:
    return verify_partition(file_system, DIRECTORY, deep=deep).problems


LOG, INDEX, TIME = (f"{0:020d}.{suffix}" for suffix in ("log", "index", "timeindex"))
SECOND = f"{25:020d}"


def test_a_sound_log_is_sound_closed_open_and_crashed() -> None:
    file_system = new_file_system()
    stopped(file_system)
    assert problems(file_system, deep=True) == []
    log = open_log(file_system, SMALL, clean=True)
    append_each(log, 5, epoch=3)
    assert problems(file_system, deep=True) == []
    log.close_handles()
    assert problems(file_system, deep=True) == []


Damage = Callable[[SimFileSystem], None]


@pytest.mark.parametrize(
    ("damage", "name", "position", "rule"),
    [
        (lambda fs: poke(fs, LOG, 3 * SIZE + 70, b"\x99"), LOG, 3 * SIZE, "FR11"),
        (lambda fs: poke(fs, LOG, 3 * SIZE + 8, bytes(4)), LOG, 3 * SIZE, "FR8"),
        (lambda fs: poke(fs, LOG, 3 * SIZE + 16, b"\x03"), LOG, 3 * SIZE, "FR10"),
        (lambda fs: poke(fs, LOG, 3 * SIZE, bytes(7) + b"\x01"), LOG, 3 * SIZE, "AP4"),
        (lambda fs: poke(fs, LOG, 3 * SIZE, bytes(6) + b"\x01\x00"), LOG, 3 * SIZE, "RO2"),
        (lambda fs: poke(fs, LOG, 0, b"\x01" + bytes(7)), LOG, 0, "LS1"),
        (lambda fs: poke(fs, LOG, 3 * SIZE + 12, b"\x00\x00\x00\x00"), LOG, 3 * SIZE, "EP3"),
        (lambda fs: poke(fs, LOG, 3 * SIZE + 12, b"\x00\x00\x00\x02"), LOG, 3 * SIZE, "EP9"),
        (lambda fs: poke(fs, LOG, 25 * SIZE, b"\x00" * 9), LOG, 25 * SIZE, "FR8"),
        (lambda fs: poke(fs, INDEX, 4, b"\x00\x00\x00\x05"), INDEX, 0, "IX14"),
        (lambda fs: poke(fs, INDEX, 8, b"\x00\x00\x00\x01"), INDEX, 8, "IX13"),
        (lambda fs: poke(fs, INDEX, 8, b"\x00\x00\x00\x05"), INDEX, 8, "IX14"),
        (lambda fs: poke(fs, TIME, 0, b"\x00" * 7 + b"\x05"), TIME, 0, "IX21"),
        (lambda fs: poke(fs, TIME, 8, b"\x00\x00\x01\x00"), TIME, 0, "IX21"),
        (lambda fs: poke(fs, TIME, 0, b"\x7f"), TIME, 0, "IX21"),
        (lambda fs: fs.unlink(join(DIRECTORY, INDEX)), INDEX, None, "LL10"),
        (lambda fs: poke(fs, f"{7:020d}.timeindex", 0, b"x"), f"{7:020d}.timeindex", None, "LL10"),
        (lambda fs: poke(fs, "leader-epoch-checkpoint", 0, b"7"), "leader-epoch-checkpoint", None, "EP1"),
        (
            lambda fs: poke(fs, "leader-epoch-checkpoint", 0, b"0\n2\n3 9\n1 5\n"),
            "leader-epoch-checkpoint",
            None,
            "EP1",
        ),
        (
            lambda fs: fs.unlink(join(DIRECTORY, "leader-epoch-checkpoint")),
            "leader-epoch-checkpoint",
            None,
            "EP12",
        ),
        (lambda fs: poke(fs, f"{60:020d}.snapshot", 3, b"\x99"), f"{60:020d}.snapshot", None, "1.10"),
        (lambda fs: poke(fs, "partition.metadata", 0, b"version: 0\n"), "partition.metadata", None, "1.4"),
    ],
)
def test_damage_is_named_with_file_byte_and_rule(
    damage: Damage, name: str, position: int | None, rule: str
) -> None:
    file_system = new_file_system()
    stopped(file_system)
    damage(file_system)
    found = problems(file_system)
    assert (join(DIRECTORY, name), position, rule) in [
        (each.path, each.position, each.rule) for each in found
    ]
    assert all(each.message and "\n" not in each.message for each in found)


def test_ep12_a_log_that_was_cut_down_to_its_start_has_no_epochs() -> None:
    """Retention has moved the start into the segment, and a cut has taken all records above it."""
    file_system = new_file_system()
    log = open_log(file_system, SMALL)
    append_each(log, 60, epoch=1)
    log.marks.maybe_increment_high_watermark(log.local.log_end)
    log.marks.maybe_increment_log_start_offset(40)
    log.truncation.truncate_to(40, now_ms=0)
    end = log.local.log_end_offset
    assert end == 40
    log.close()

    def rules(log_start: int) -> list[str]:
        return [
            each.rule
            for each in verify_partition(file_system, DIRECTORY, log_start=lambda: log_start).problems
        ]

    assert (rules(end), rules(end - 1)) == ([], ["EP12"])


def test_every_damaged_batch_is_named_not_only_the_first() -> None:
    file_system = new_file_system()
    stopped(file_system)
    for number in (2, 5, 9):
        poke(file_system, LOG, number * SIZE + 65, b"\x99")
    found = [each.position for each in problems(file_system) if each.rule == "FR11"]
    assert found == [2 * SIZE, 5 * SIZE, 9 * SIZE]


def test_an_index_with_an_unused_tail_is_wrong_in_a_segment_that_is_not_the_last() -> None:
    file_system = new_file_system()
    stopped(file_system)
    size = file_system.stat(join(DIRECTORY, INDEX)).size_bytes
    poke(file_system, INDEX, size, bytes(80))
    assert [(each.position, each.rule) for each in problems(file_system)] == [(size, "LS14")]


def test_verify_changes_nothing() -> None:
    disk = new_disk()
    file_system = new_file_system(disk)
    stopped(file_system)
    poke(file_system, LOG, 70, b"\x99")
    file_system.unlink(join(DIRECTORY, TIME))
    before = {name: read_file(file_system, join(DIRECTORY, name)) for name in file_system.list(DIRECTORY)}
    disk.call_log = []
    assert problems(file_system, deep=True)
    assert disk.call_log == []
    assert {
        name: read_file(file_system, join(DIRECTORY, name)) for name in file_system.list(DIRECTORY)
    } == before


def test_deep_verification_decodes_the_records() -> None:
    file_system = new_file_system()
    stopped(file_system)
    report = verify_partition(file_system, DIRECTORY, deep=True)
    assert (report.batches, report.records, report.log_end_offset) == (60, 60, 60)


@pytest.mark.parametrize("state", ["clean", "killed"])
def test_real_kafkas_directories_are_sound(state: str) -> None:
    reports, beside = verify_log_directory(OsFileSystem(), str(GOLDEN / "kafka-4.1" / state), deep=True)
    assert len(reports) == 17 and beside == []
    assert [problem for report in reports for problem in report.problems] == []


def test_checkpoints_beyond_the_end_of_their_log_are_named() -> None:
    file_system = new_file_system()
    stopped(file_system)
    file = file_system.open("logs/recovery-point-offset-checkpoint", OpenMode.CREATE)
    file.write_at(0, b"0\n2\ntopic 0 61\nother 0 5\n")
    reports, beside = verify_log_directory(file_system, "logs")
    assert len(reports) == 1
    assert [(each.path, each.rule) for each in beside] == [("logs/recovery-point-offset-checkpoint", "FL5")]


def test_t10_a_snapshot_is_sound_in_any_order_of_its_entries(tmp_path: Path) -> None:
    directory = tmp_path / "transactions-0"
    shutil.copytree(GOLDEN / "kafka-4.1" / "clean" / directory.name, directory)
    path = directory / f"{67:020d}.snapshot"
    entries = Snapshot(path.read_bytes()).entries()
    assert len(entries) == 2
    for order in (entries, entries[::-1]):
        path.write_bytes(encoded(order))
        assert verify_partition(OsFileSystem(), str(directory), deep=True).problems == []


def test_fr1_a_log_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """A broker opens no file that is longer than its positions can say."""
    (tmp_path / "t-0").mkdir()
    with (tmp_path / "t-0" / LOG).open("wb") as file:
        file.truncate(1 << 31)
    report = verify_partition(OsFileSystem(), f"{tmp_path}/t-0")
    assert [(each.path, each.rule) for each in report.problems] == [(f"{tmp_path}/t-0/{LOG}", "FR1")]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_log_end_is_behind_the_last_offset_also_where_that_is_the_first(count: int) -> None:
    file_system = new_file_system()
    log = open_log(file_system, SMALL)
    append_each(log, count, epoch=1)
    log.close()
    report = verify_partition(file_system, DIRECTORY)
    assert (report.problems, report.log_end_offset) == ([], count)


def test_a_node_that_runs_excuses_what_it_is_about_to_delete_and_no_other_name() -> None:
    file_system = new_file_system()
    stopped(file_system)
    for name in (f"{SECOND}.log.deleted", "x.tmp", "five.log"):
        poke(file_system, name, 0, b"x")
    found = verify_partition(file_system, DIRECTORY, in_use=True).problems
    assert [(each.path, each.rule) for each in found if each.rule != "FR8"] == [
        (join(DIRECTORY, "five.log"), "1.1")
    ]


@pytest.mark.parametrize("rolled", [False, True], ids=["last segment", "rolled segment"])
@pytest.mark.parametrize("bit", [0, 2, 4, 8, 20, 40, 62])
def test_one_batch_at_a_wrong_offset_is_no_contradiction_of_each_batch_after_it(
    bit: int, rolled: bool
) -> None:
    """Before, an offset that was too high was repeated for each of them: dozens of lines about one bit."""
    file_system = new_file_system()
    stopped(file_system, 60 if rolled else 20)
    poke(file_system, LOG, 3 * SIZE, (3 ^ 1 << bit).to_bytes(8, "big"))
    found = [each for each in problems(file_system) if each.rule in ("AP4", "RO2", "LS1")]
    assert 1 <= len(found) <= 2
    assert all(each.path == join(DIRECTORY, LOG) for each in found)
    assert {each.position for each in found} <= {3 * SIZE, 4 * SIZE}


@pytest.mark.parametrize(("base_offset", "rules"), [(24, []), (25, ["RO2"])])
def test_ro2_a_batch_ends_before_the_next_segment_begins(base_offset: int, rules: list[str]) -> None:
    file_system = new_file_system()
    stopped(file_system)
    # The last batch of the first segment.
    poke(file_system, LOG, 24 * SIZE, base_offset.to_bytes(8, "big"))
    assert [each.rule for each in problems(file_system) if each.rule == "RO2"] == rules
