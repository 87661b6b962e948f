"""Runs in which the metadata log is judged: changes of several batches, lost power, refused changes, snapshots."""

from __future__ import annotations

import pytest

from cluster.core.controller.controller import Controller
from cluster.core.metadata.changes import ChangeReader
from cluster.core.metadata.log import committed_changes
from cluster.core.metadata.records import AbortTransactionRecord
from sim.run import Run, RunResult, Verdict, run_scenario
from sim.scenario.loading import ScenarioError, parse_scenario

# A change of 50 partitions takes two batches, and no answer holds both.
HEAD = """\
scenario: metadata
duration: 7s
cluster:
  brokers: 2
  settings:
    metadata.max.batch.bytes: 4096
    controller.quorum.fetch.max.bytes: 4096
    metadata.log.max.record.bytes.between.snapshots: 12000
topics:
  t: {partitions: 1, replicas: 2}
  wide: {partitions: 50, replicas: 1, exists: false}
producers:
  - {topic: t, rate: 20/s, acks: all}
steps:
"""
WIDE = """\
  - create_topic: wide
"""
# The creation is on its way to the controller, or is being flushed there.
LOST_POWER = """\
  - at: 1s
    create_topic: wide
  - at: +{delay}us
    power: controller
    keep: {keep}
    down: 300ms
  - at: +1s
    kill: follower(t/0)
    down: 1s
"""
REFUSED = f"""\
  - at: 1s
    alter_topic: t
    config: {{retention.ms: "{" " * 5_000}9"}}
  - at: +500ms
    alter_topic: t
    config: {{retention.ms: 3600000}}
"""


def run(steps: str, seed: int = 1, bug: str | None = None) -> RunResult:
    return run_scenario(parse_scenario(HEAD + steps), seed, bug=bug)


def found_by(result: RunResult) -> set[str]:
    assert result.verdict is Verdict.VIOLATED
    return {found.checker for found in result.violations}


def test_krlog8_a_change_that_no_answer_holds_whole_is_applied_whole() -> None:
    result = run(WIDE)
    assert result.verdict is Verdict.HELD, result.violations
    assert sum("wide-" in line and "leads epoch 0" in line for line in result.story) == 50


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "tears"), [("none", 0), ("prefix", 1), ("subset", 0), ("torn", 1)])
def test_krlog8_a_change_torn_by_lost_power_is_whole_or_absent(keep: str, tears: int) -> None:
    aborted = 0
    for delay_us in (600, 800, 1_200, 2_100):
        scenario = parse_scenario(HEAD + LOST_POWER.format(keep=keep, delay=delay_us))
        course = Run(scenario, 1)
        result = course.go("")
        assert result.verdict is Verdict.HELD, (delay_us, result.violations, result.starved_because)
        aborted += aborts(course)
    # The disk has kept the first batch of a creation, and lost the second.
    assert aborted >= tears, aborted


def aborts(course: Run) -> int:
    """Return how many changes the controller's log has whose end was lost."""
    controller = course.cluster.controller.core
    assert isinstance(controller, Controller)
    changes = committed_changes(controller.log, ChangeReader())
    return sum(
        isinstance(record, AbortTransactionRecord) for change in changes for _, record in change.records
    )


def test_krctl2_a_change_that_is_refused_costs_an_answer_only() -> None:
    result = run(REFUSED)
    assert result.verdict is Verdict.HELD, result.violations


def test_krlog8_half_a_change_is_found() -> None:
    assert "metadata" in found_by(run(WIDE, bug="half-a-change-applies"))


@pytest.mark.slow
def test_krctl2_a_refused_change_that_stays_is_found() -> None:
    assert "no-failure" in found_by(run(REFUSED, bug="refused-change-stays-pending"))


@pytest.mark.slow
@pytest.mark.parametrize("bug", ["metadata-committed-before-flush", "change-replayed-twice", "delta-skipped"])
def test_a_mistake_in_the_metadata_is_found_by_its_checker(bug: str) -> None:
    assert "metadata" in found_by(run_scenario("leader-crash", 7, bug=bug))


CUT = """\
  - at: 1s
    partial_write: controller
    log: __cluster_metadata/0
    byte: {byte} B
    down: 300ms
  - at: +1ms
    create_topic: wide
"""


@pytest.mark.slow
@pytest.mark.parametrize(("byte", "tears"), [(16_000, 1), (100, 0)])
def test_krlog8_a_change_of_which_the_first_batch_was_written_is_dropped(byte: int, tears: int) -> None:
    course = Run(parse_scenario(HEAD + CUT.format(byte=byte)), 1)
    result = course.go("")
    assert result.verdict is Verdict.HELD, result.violations
    assert not result.never_struck
    assert aborts(course) == tears


def test_only_the_controller_writes_its_log() -> None:
    text = HEAD + CUT.format(byte=1).replace("partial_write: controller", "partial_write: broker 1")
    with pytest.raises(ScenarioError, match="unknown topic '__cluster_metadata'"):
        parse_scenario(text)
