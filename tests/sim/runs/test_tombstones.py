"""Records without a value: a run with them holds, and shows compactions that drop them early, or for ever keep them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sim.bugs import Replacement, replaced
from sim.hosts.history import TOMBSTONE_HEADER, text_of
from sim.run import Run, run_scenario
from sim.scenario.loading import ScenarioError, parse_scenario
from storage.batch import Record

TEXT = """\
scenario: tombstones
duration: 4s
cluster: {settings: {log.cleaner.backoff.ms: 200, log.initial.task.delay.ms: 100}}
topics:
  t:
    partitions: 1
    replicas: 2
    config: {cleanup.policy: compact, segment.bytes: 2000, min.cleanable.dirty.ratio: '0.01', delete.retention.ms: 400}
producers:
- {topic: t, rate: 50/s, keys: 20, tombstones: 40%, linger: 100ms}
consumers:
- {topic: t}
steps:
- {at: 3s, kill: follower(t/0), down: 100ms}
"""

# Tombstones stay for a day.
LONG = TEXT.replace(", delete.retention.ms: 400", "")


def test_a_run_with_tombstones_holds_and_some_of_them_go_when_their_time_has_come() -> None:
    gone = 0

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def retains(*parts: Any) -> bool:
            nonlocal gone
            stays: bool = original(*parts)
            gone += not stays
            return stays

        return retains

    with replaced(Replacement(target="storage.cleaner.filter:RecordFilter._retains_deletes", make=noting)):
        result = run_scenario(parse_scenario(TEXT), 1)
    assert not result.violations, result.violations
    assert gone


def keeps_none(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *parts: False


def without_horizon(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda batch, offsets, horizon_ms: original(batch, offsets, batch.delete_horizon_ms)


def drops_at_the_second_round(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, batch: batch.delete_horizon_ms is None


RETAINS = "storage.cleaner.filter:RecordFilter._retains_deletes"


@pytest.mark.parametrize(
    ("target", "make", "words"),
    [
        # CL16: a tombstone stays until its time has come.
        (RETAINS, keeps_none, "the last value of key"),
        (RETAINS, drops_at_the_second_round, "the last value of key"),
        # CL17: the first compaction that keeps one sets that time.
        ("storage.cleaner.filter:rebuild_batch", without_horizon, "compaction set no time"),
    ],
)
def test_cl16_cl17_a_tombstone_has_its_time(
    target: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], words: str
) -> None:
    with replaced(Replacement(target=target, make=make)):
        found = run_scenario(parse_scenario(LONG), 1, stops_early=True).violations
    assert {each.checker for each in found} == {"compaction"}
    assert words in found[0].what


# The leader is cut off while it compacts, cuts its log, and goes on with what the broken round has left.
BROKEN_OFF = """\
scenario: cut-midround
duration: 22s
cluster: {brokers: 2, settings: {log.cleaner.backoff.ms: 6000}}
topics:
  t:
    partitions: 1
    replicas: 2
    config: {cleanup.policy: compact, segment.bytes: 4000, min.cleanable.dirty.ratio: '0.01', delete.retention.ms: 0}
producers:
- {topic: t, rate: 150/s, keys: 60000, tombstones: 60%, linger: 30ms, acks: 1, records: 1050}
steps:
- {at: 1s, pick: leader(t/0), as: L}
- {at: 1s, pick: follower(t/0), as: F}
- {at: 3s, kill: F, down: 100ms}
- {at: 5950ms, slow_disk: L, by: 12ms, for: 4s}
- {at: 6100ms, isolate: L, for: 1500ms}
- {at: 9s, kill: F, down: 50ms}
"""


def test_a_round_that_is_broken_off_tells_nobody_when_tombstones_may_go() -> None:
    result = run_scenario(parse_scenario(BROKEN_OFF), 4)
    assert not result.violations, result.violations


# The topic comes back, and its tombstones go as those of the one before.
CREATED_AGAIN = TEXT.replace(
    "steps:\n", "steps:\n- {at: 1500ms, delete_topic: t}\n- {at: 1500ms, create_topic: t}\n"
)


def test_the_tombstones_of_a_topic_that_came_back_go_too() -> None:
    run = Run(parse_scenario(CREATED_AGAIN), 1)
    result = run.go("")
    assert not result.violations, result.violations
    assert not run.logs._compacted["t-0"].keeps_tombstones


def test_a_record_is_recognised_by_its_value_and_a_tombstone_by_a_header() -> None:
    assert text_of(Record(0, 0, b"k", b"a")) == "a"
    assert text_of(Record(0, 0, b"k", None, (("other", b"x"), (TOMBSTONE_HEADER, b"a")))) == "a"
    assert text_of(Record(0, 0, b"k", None)) == ""


def test_tombstones_have_keys() -> None:
    with pytest.raises(ScenarioError, match="tombstones have keys"):
        parse_scenario(TEXT.replace("keys: 20, ", ""))
