"""What `log verify` finds at the end of a run in logs whose disks have done what they were told."""

from __future__ import annotations

import pytest

from cluster.core.broker.broker import Broker
from replog.testing import SimCluster
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.disk.life import Life
from sim.verified_logs import NAME, judge_verified_logs, may_shorten, problems
from storage.config import LogConfig
from storage.disk.filesystem import OpenMode, join, read_file
from storage.producers.snapshot import list_snapshots, snapshot_name
from tests.storage.inspection.test_verify import LOG, poke, stopped
from tests.storage.logs import DIRECTORY, new_file_system


def test_the_logs_of_a_sound_run_have_no_problem_and_a_file_too_many_is_one() -> None:
    cluster = SimCluster(seed=1)
    for _ in range(20):
        cluster.produce()
    cluster.advance(500)
    node, jury = cluster._node(1), Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    judge_verified_logs([node], jury)
    assert not jury.violations and isinstance(node.core, Broker) and node.core.replicas()
    file_system = node.disk.file_system(Life("hand", sees_through=True))
    log = next(iter(node.core.replicas().values())).log.local.directory
    file_system.open(join(log, f"{77:020d}.index"), OpenMode.CREATE).close()
    judge_verified_logs([node], jury)
    (found,) = jury.violations
    assert found.checker == NAME and f"{77:020d}.index: LL10" in found.what
    # What a disk has damaged by itself is nobody's mistake.
    node.is_damaged = True
    judge_verified_logs([node], jury)
    assert len(jury.violations) == 1


@pytest.mark.parametrize("names", [{DIRECTORY}, set()])
def test_only_the_logs_that_are_placed_there_are_read(names: set[str]) -> None:
    file_system = new_file_system()
    stopped(file_system)
    poke(file_system, LOG, 70, b"\x99")
    name = DIRECTORY.rpartition("/")[2]
    found = list(problems(file_system, [DIRECTORY.rpartition("/")[0]], {name: (0, 0)} if names else {}))
    assert bool(found) == bool(names), found


@pytest.mark.parametrize(("end", "rules"), [(10_000, []), (9_999, ["PS16"])])
def test_ps16_a_snapshot_up_to_the_end_of_a_log_that_was_cut_in_a_hole_is_sound(
    end: int, rules: list[str]
) -> None:
    """Compaction had left nothing directly below the place of the cut, so the last batch ends far below it."""
    file_system = new_file_system()
    stopped(file_system)
    directory, _, name = DIRECTORY.rpartition("/")
    snapshots = list_snapshots(file_system, DIRECTORY)
    data = read_file(file_system, join(DIRECTORY, snapshot_name(snapshots[-1])))
    file = file_system.open(join(DIRECTORY, snapshot_name(10_000)), OpenMode.CREATE)
    file.append(data)
    file.close()
    found = list(problems(file_system, [directory], {name: (0, end)}))
    assert [each.split(": ")[1] for each in found] == rules


@pytest.mark.parametrize("is_shortened", [False, True])
def test_ep12_a_log_that_retention_has_emptied_may_know_no_epoch_after_a_start(is_shortened: bool) -> None:
    file_system = new_file_system()
    stopped(file_system)
    directory, _, name = DIRECTORY.rpartition("/")
    file = file_system.open(join(DIRECTORY, "leader-epoch-checkpoint"), OpenMode.CREATE)
    file.truncate(0)
    file.append(b"0\n0\n")
    file.close()
    found = list(problems(file_system, [directory], {name: (0, 100)}, {name} if is_shortened else ()))
    assert any("EP12" in each for each in found) is not is_shortened


def test_retention_may_shorten_a_log_within_a_run() -> None:
    assert not may_shorten(LogConfig())
    assert may_shorten(LogConfig(retention_bytes=1000)) and may_shorten(LogConfig(retention_ms=300))
