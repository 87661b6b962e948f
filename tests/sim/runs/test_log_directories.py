"""One of several log directories of a simulated broker fails, and the others go on. Rules AP16, LL1."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path

import pytest

from sim.disk import SimDisk
from sim.disk.life import Life
from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import ScenarioError, parse_scenario
from storage.disk.filesystem import OpenMode
from storage.draws import Draws

SCENARIO = Path(__file__).resolve().parents[3] / "scenarios" / "log-directory-fails.yaml"
SMALL = """\
scenario: one-of-two
duration: 4s
cluster: {directories: 2}
topics:
  t: {partitions: 2, replicas: 3, config: {min.insync.replicas: 2}}
producers:
  - {topic: t, rate: 10/s, acks: all}
consumers:
  - {topic: t}
steps:
  - at: 1s
    break_disk: broker 1
    directory: 2
"""


def run_small(seed: int) -> RunResult:
    return run_scenario(parse_scenario(SMALL, "small.yaml"), seed)


def test_ap16_the_other_directory_is_served_and_the_failed_one_returns_after_a_restart() -> None:
    result = run_small(1)
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    broken = [line for line in result.story if "log directory data-2 is offline: " in line]
    assert len(broken) == 1 and "broker-1" in broken[0]
    assert [line.split()[-4:] for line in result.story if "offline here" in line] == [
        ["broker-1", "t-1:", "offline", "here"]
    ]
    assert any("t-1: in sync are" in line and "1" not in line.rsplit(" ", 1)[1] for line in result.story)
    assert any("every replica agrees" in line for line in result.story)
    assert not result.excused


def test_ap16_the_directory_that_fails_may_be_named_by_a_log_that_it_holds() -> None:
    text = SMALL.replace("broker 1\n    directory: 2", "leader(t/1)\n    log: t/1")
    result = run_scenario(parse_scenario(text, "small.yaml"), 1)
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    offline = [line.split()[-3] for line in result.story if "offline here" in line]
    assert offline == ["t-1:"], result.story


COMPACTED = """\
scenario: fails-compacting
duration: 5s
cluster: {directories: 2, settings: {log.cleaner.backoff.ms: 100}}
topics:
  t: {partitions: 2, replicas: 3, config: {cleanup.policy: compact, segment.bytes: 1000, segment.ms: 300}}
producers:
  - {topic: t, rate: 40/s, acks: all, keys: 3}
steps:
  - {at: 1s, break_disk: broker 1, log: t/1, job: compact}
"""


def test_ap16_a_directory_may_fail_as_a_job_begins_that_works_in_it() -> None:
    result = run_scenario(parse_scenario(COMPACTED, "small.yaml"), 1)
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    told = [line.split(maxsplit=2)[2] for line in result.story if " breaks at broker-1 " in line]
    assert told == ["the log directory of t-1 breaks at broker-1 before its next job: compact"]
    assert any("t-1: offline here" in line for line in result.story), result.story


def test_a_directory_that_fails_with_a_job_that_no_broker_has_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"no job 'tidy': write one of "):
        parse_scenario(COMPACTED.replace("job: compact", "job: tidy"), "small.yaml")


@pytest.mark.slow
def test_a_run_with_a_disk_that_breaks_is_a_function_of_its_seed() -> None:
    assert run_small(2).trace_hash == run_small(2).trace_hash


@pytest.mark.slow
def test_ap16_whatever_else_happens_nothing_acknowledged_is_lost() -> None:
    for seed in range(3, 11):
        result = run_scenario(SCENARIO, seed)
        assert result.verdict is Verdict.HELD, (result.replay, result.violations, result.starved_because)


def test_a_directory_that_the_brokers_do_not_have_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"small\.yaml:13: .*the brokers have 2"):
        parse_scenario(SMALL.replace("directory: 2", "directory: 3"), "small.yaml")


def test_a_broken_directory_answers_with_eio_until_it_is_mended_also_in_the_next_life() -> None:
    disk = SimDisk(Draws(1), lambda: 0)
    life = disk.file_system(Life("first"))
    for path in ("one", "two"):
        life.make_directory(path)
        file = life.open(f"{path}/a", OpenMode.CREATE_NEW)
        file.append(b"abc")
    disk.break_directory("two")
    for _ in range(2):
        file = life.open("two/a", OpenMode.WRITE)
        for call in (partial(file.read_at, 0, 3), partial(file.append, b"d"), file.sync):
            with pytest.raises(OSError) as caught:
                call()
            assert caught.value.errno == errno.EIO
        assert life.open("one/a", OpenMode.READ).read_at(0, 3) == b"abc"
        disk.crash_process()
        life = disk.file_system(Life("next"))
    eye = disk.file_system(Life("eye", sees_through=True))
    assert eye.open("two/a", OpenMode.READ).read_at(0, 3) == b"abc"
    disk.mend()
    assert life.open("two/a", OpenMode.READ).read_at(0, 3) == b"abc"
    assert disk.has_lost_writes
    disk.lose_power("all")
    assert not disk.has_lost_writes
    assert disk.file_system(Life("last")).open("two/a", OpenMode.READ).size() == 0


def test_a_broker_whose_only_directory_fails_stops_and_comes_back_when_it_is_mended() -> None:
    text = SMALL.replace("cluster: {directories: 2}\n", "").replace("directory: 2", "directory: 1")
    result = run_scenario(parse_scenario(text), 1)
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    assert any("broker-1     has stopped: data: " in line for line in result.story)
    assert any("start broker-1 again" in line for line in result.story)


MENDED = """\
scenario: failed-sync
duration: 3s
cluster: {brokers: 1, directories: 2, jobs: {flush: 100ms}}
topics:
  t: {partitions: 2, replicas: 1, config: {flush.messages: 1}}
producers:
  - {topic: t, rate: 100/s, acks: all}
steps:
  - {at: 2s, break_disk: broker 1, directory: 2}
"""


@pytest.mark.parametrize("directories", [1, 2])
def test_a_machine_restarts_with_its_mended_disk_if_a_sync_had_failed(directories: int) -> None:
    text = MENDED.replace("directories: 2", f"directories: {directories}")
    text = text.replace("directory: 2", f"directory: {directories}")
    result = run_scenario(parse_scenario(text), 6)
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    assert any("the machine of broker-1 restarts, because a sync had failed" in line for line in result.story)
    # With its only directory the broker has lost its process too.
    assert any("broker-1     has stopped" in line for line in result.story) is (directories == 1)


def test_a_log_that_no_start_could_read_is_not_judged_as_recovered() -> None:
    """Its directory is offline, so what a power loss has torn in it stays until it can be read again."""
    text = SMALL.replace("broker 1\n    directory: 2", "leader(t/0)\n    log: t/0\n    as: B")
    text += "  - {at: +20ms, power: B, keep: torn, down: 500ms}\n"
    for seed in range(4):
        result = run_scenario(parse_scenario(text, "small.yaml"), seed)
        assert result.verdict is Verdict.HELD, (seed, result.violations, result.starved_because)
