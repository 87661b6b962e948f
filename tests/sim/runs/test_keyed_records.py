"""All records of a key go to one partition, whichever leaders are known when they are sent."""

from __future__ import annotations

from typing import Any

from sim.bugs import Replacement, replaced
from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import parse_scenario

SCENARIO = """\
scenario: keyed
duration: 3s
topics:
  t: {partitions: 3, replicas: 2}
producers:
  - {topic: t, rate: 30/s, keys: 4}
steps:
  - {at: 2s, kill: leader(t/0)}
"""
CHOICE = "cluster.core.client.producer:ProducerCore._choose_partition"


def in_turn(original: Any) -> Any:
    def choose_partition(core: Any, record: Any) -> int:
        return int(record.ticket) % 3

    return choose_partition


def run() -> RunResult:
    return run_scenario(parse_scenario(SCENARIO), 1, stops_early=True)


def test_a_producer_keeps_the_partition_of_a_key_as_leaders_come_and_go() -> None:
    assert run().verdict is Verdict.HELD


def test_a_producer_that_changes_it_is_noticed() -> None:
    with replaced(Replacement(target=CHOICE, make=in_turn)):
        (violation, *_) = run().violations
    assert violation.checker == "no-failure" and "of key k" in violation.what
