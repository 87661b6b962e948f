"""A fixed slice of `make crash-sweep`, short enough for every run, and tests of the sweep itself."""

from __future__ import annotations

from pkgutil import resolve_name

import pytest

from sim.bugs import planted
from sim.disk import SimDisk, Tear
from sim.disk.life import Life
from storage.disk.filesystem import OpenMode, read_file
from storage.draws import Draws
from tests.crash.jobs import BY_NAME, MISTAKES_BY_NAME
from tests.crash.mistakes import MISTAKES
from tests.crash.model import Batch, Expectation, Found, Log, judge
from tests.crash.stage import CrashPoint
from tests.crash.states import AFTER_AN_APPEND, Loss, StateName, name_losses, survivor_sets, torn_losses
from tests.crash.sweep import Sweep
from tests.crash.workloads import record

# The stride of the crash points in each workload. The sweep itself takes all.
SLICE = {"roll": 20, "stop-start": 45, "start": 25, "start-cut": 12, "swap": 24, "delete": 21, "snapshot": 25}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_crash_at_some_calls_of_each_workload_loses_nothing_that_was_synced(name: str) -> None:
    report = Sweep(BY_NAME[name], stride=SLICE.get(name, 17), at_most=5, representatives=0).run()
    assert report.violations == []
    assert report.states > 3


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_a_crash_inside_a_start_and_after_it(name: str) -> None:
    report = Sweep(BY_NAME[name], stride=9, at_most=6).run()
    assert report.violations == []
    assert report.inner_crash_points > 0


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_each_planted_mistake_is_found(mistake: object) -> None:
    from tests.crash.jobs import search

    name = getattr(mistake, "name", "")
    assert search(name) is not None


def test_a_mistake_is_taken_away_again() -> None:
    for mistake in MISTAKES:
        targets = [each.target for each in mistake.replacements]
        sound = [resolve_name(target) for target in targets]
        with planted(mistake):
            assert all(resolve_name(target) != before for target, before in zip(targets, sound, strict=True))
        assert [resolve_name(target) for target in targets] == sound


def test_up_to_twelve_pending_changes_every_set_may_survive() -> None:
    assert len(list(survivor_sets(range(12), Draws(0)))) == 4096
    sampled = list(survivor_sets(range(20), Draws(0), 7))
    assert sampled == list(survivor_sets(range(20), Draws(0), 7))
    assert {(), tuple(range(20)), (3,), tuple(range(5))} <= set(sampled)
    assert 200 < len(sampled) < 400


def test_names_of_a_swap_are_pending_of_one_kind_only_and_are_kept_or_lost_by_kind() -> None:
    def points_of_two_kinds() -> list[CrashPoint]:
        points = record(BY_NAME["swap-joined"]).points
        return [point for point in points if len(set(kinds(point.disk.pending_names()))) > 1]

    assert points_of_two_kinds() == []
    with planted(MISTAKES_BY_NAME["live-before-old-are-deleted"]):
        points = points_of_two_kinds()
    assert points
    for point in points:
        pending, names = point.disk.pending_sequences(), point.disk.pending_names()
        for loss in name_losses(point.disk, pending):
            assert loss.kept is not None
            kept = set(kinds({number: name for number, name in names.items() if number in loss.kept}))
            lost = set(kinds({number: name for number, name in names.items() if number not in loss.kept}))
            assert not kept & lost and (len(kept) == 1 or len(lost) == 1)


def kinds(names: dict[int, str]) -> list[str]:
    suffixes = (".deleted", ".swap", ".cleaned")
    return [next((suffix for suffix in suffixes if name.endswith(suffix)), "") for name in names.values()]


def test_a_state_is_made_again_from_its_name() -> None:
    names = [
        StateName("append", 3, Loss(None)),
        StateName("append", 3, Loss(())),
        StateName("append", 3, Loss((4, 5), (5, Tear.TAIL))),
        StateName("append", 3, Loss((4,)), 7, Loss((), None)),
        StateName("append", 3, Loss((4,)), AFTER_AN_APPEND, Loss((9, 12))),
    ]
    assert [StateName.parse(str(name)) for name in names] == names
    assert str(names[2]) == "append/3/4+5~5:tail"
    with pytest.raises(ValueError):
        StateName.parse("append/3")


def test_a_torn_write_keeps_the_shape_that_is_named() -> None:
    for shape in Tear:
        disk = SimDisk(Draws(0), lambda: 0)
        file = disk.file_system(Life()).open("f", OpenMode.CREATE)
        file.append(b"old")
        disk.sync_all()
        file.append(b"stuvwx")
        (torn,) = disk.pending_writes()
        assert Loss((torn,), (torn, shape)) in list(torn_losses(disk, [torn]))
        disk.lose_power_keeping([torn], {torn: shape})
        kept = read_file(disk.file_system(Life()), "f")
        expected = {
            Tear.SHORT: b"oldstu",
            Tear.HEAD: b"oldstu\0\0\0",
            Tear.TAIL: b"old\0\0\0vwx",
            Tear.LENGTH: b"old\0\0\0\0\0\0",
            Tear.GARBAGE: b"oldstu" + bytes(byte ^ 0x5A for byte in b"vwx"),
        }
        assert kept == expected[shape], shape


def test_in_a_large_write_a_sector_is_old_or_new() -> None:
    disk = SimDisk(Draws(0), lambda: 0)
    file = disk.file_system(Life()).open("f", OpenMode.CREATE)
    disk.sync_all()
    file.append(b"n" * 1300)
    (torn,) = disk.pending_writes()
    twin = disk.snapshot()
    twin.lose_power_keeping([torn])
    assert twin.fingerprint() == disk.fingerprint()
    disk.lose_power_keeping([torn], {torn: Tear.HEAD})
    assert read_file(disk.file_system(Life()), "f") == b"n" * 512 + bytes(788)


def batch(base_offset: int, next_offset: int, epoch: int = 0, data: bytes = b"") -> Batch:
    return Batch(base_offset, next_offset, epoch, -1, -1, data or b"%d" % base_offset)


ONE, TWO, OTHER = batch(0, 2), batch(2, 4), batch(2, 4, 1, b"other")
EPOCHS = ((0, 0), (1, 2))


def found(
    *batches: Batch, start: int = 0, epochs: tuple[tuple[int, int], ...] = ((0, 0),)
) -> dict[str, Found]:
    end = max((each.next_offset for each in batches), default=start)
    return {"t-0": Found(start, end, None, epochs, batches)}


def test_what_was_synced_must_be_there_and_what_was_not_may() -> None:
    log = {"t-0": Log(batches=(ONE, TWO), synced_to=2)}
    expected = Expectation(operation="flush", before=log, after=log)
    assert judge(expected, found(ONE, TWO)) == judge(expected, found(ONE)) == []
    assert judge(expected, found()) == ["t-0: lost [0-1@0], synced up to 2"]
    assert judge(expected, {}) == ["t-0: gone"]
    assert "not a beginning" in judge(expected, found(TWO))[0]
    assert "above 0" in judge(expected, found(TWO, start=2))[0]


def test_a_truncation_leaves_the_old_history_or_the_new_and_never_both() -> None:
    before, after = Log(batches=(ONE, TWO), synced_to=4), Log(batches=(ONE, OTHER), synced_to=2)
    expected = Expectation(operation="truncate", before={"t-0": before}, after={"t-0": after})
    assert judge(expected, found(ONE, TWO)) == judge(expected, found(ONE)) == []
    assert judge(expected, found(ONE, OTHER, epochs=EPOCHS)) == []
    assert judge(expected, found(ONE, OTHER)) == ["t-0: offset 2 of epoch 1: the checkpoint says ((0, 0),)"]
    assert judge(expected, found(ONE, OTHER, TWO, epochs=EPOCHS)) != []


def test_a_partition_is_created_and_deleted_whole() -> None:
    log = Log(batches=(ONE,), synced_to=2, topic_id="id")
    deletion = Expectation(operation="delete", before={"t-0": log}, after={})
    whole = {"t-0": Found(0, 2, "id", ((0, 0),), (ONE,))}
    assert judge(deletion, whole) == judge(deletion, {}) == []
    assert judge(deletion, {"t-0": Found(0, 0, "id", (), ())}) == ["t-0: lost [0-1@0], synced up to 2"]
    assert judge(deletion, {"u-0": Found(0, 0, None, (), ())}) == ["u-0: a partition that nobody made"]
