"""Runs that are bounded: a producer's number of records, and the events of the whole run."""

from __future__ import annotations

import pytest

from sim.hosts.history import Outcome
from sim.run import Run, Verdict, run_scenario
from sim.scenario.loading import parse_scenario
from sim.scenario.model import Scenario


def few_records(records: str) -> Scenario:
    return parse_scenario(f"""\
scenario: few
warm_up: 100ms
duration: 1s
topics:
  t: {{}}
producers:
  - {{topic: t, clients: 2, rate: 50/s{records}}}
""")


def test_each_producer_sends_as_many_records_as_it_may_and_no_more() -> None:
    result = run_scenario(few_records(", records: 3"), 1)
    assert (result.verdict, sum(result.operations.values())) == (Verdict.HELD, 6)


def test_a_bound_that_is_not_reached_changes_nothing() -> None:
    bounded, unbounded = (run_scenario(few_records(text), 1) for text in (", records: 9999", ""))
    assert bounded.trace_hash == unbounded.trace_hash


def test_a_run_that_is_out_of_events_proves_nothing() -> None:
    result = run_scenario(few_records(""), 1, most_events=50)
    assert result.verdict is Verdict.STARVED
    assert result.starved_because == "it was cut off after 50 events"
    assert 50 <= result.events < run_scenario(few_records(""), 1).events


def test_a_violation_before_the_last_event_counts() -> None:
    result = run_scenario(
        few_records(""), 1, bug="ack-before-high-watermark", stops_early=True, most_events=100_000
    )
    assert result.verdict is Verdict.VIOLATED


def most_open(records: str) -> int:
    """Returns the most records of one of the producers that had no outcome at one time, in a cluster that is away."""
    scenario = parse_scenario(f"""\
scenario: waiting
warm_up: 100ms
duration: 2s
topics:
  t: {{}}
producers:
  - {{topic: t, rate: 50/s{records}}}
steps:
  - {{at: 500ms, kill: broker 1, down: 1s}}
""")
    run = Run(scenario, 1, None, is_traced=False)
    assert run.go("").verdict is Verdict.HELD
    sends = run.history.sends
    counts: list[int] = [
        sum(other.invoked_us <= send.invoked_us < other.completed_us for other in sends) for send in sends
    ]
    return max(counts)


def test_a_producer_sends_nothing_new_while_as_many_records_wait_as_it_may_have() -> None:
    assert most_open(", unanswered: 7") == 7
    assert most_open("") > 20


@pytest.mark.parametrize("seed", [1, 2])
def test_a_producer_whose_clock_goes_a_tenth_wrong_may_take_that_much_longer(seed: int) -> None:
    scenario = parse_scenario("""\
scenario: drifts
warm_up: 100ms
duration: 28s
cluster: {brokers: 1, clocks: {drift: 100000}}
topics:
  t: {replicas: 1}
producers:
  - {topic: t, rate: 2/s, clients: 4, delivery_timeout: 20s}
steps:
  - {at: 500ms, kill: broker 1, down: 25s}
""", "drifts.yaml")  # fmt: skip
    assert run_scenario(scenario, seed).violations == ()


def test_a_point_leaves_a_producer_the_time_for_its_request() -> None:
    scenario = parse_scenario("""\
scenario: lingers
warm_up: 100ms
duration: 1s
topics:
  t: {}
producers:
  - {topic: t, linger: 0ms, delivery_timeout: 1600ms}
buggify: {points: [long-linger], chance: 100%}
""", "lingers.yaml")  # fmt: skip
    assert run_scenario(scenario, 1).verdict is Verdict.HELD


def test_a_producer_gives_a_record_up_after_its_delivery_timeout() -> None:
    scenario = parse_scenario("""\
scenario: gives-up
warm_up: 100ms
duration: 7s
cluster: {brokers: 1}
topics:
  t: {replicas: 1}
producers:
  - {topic: t, rate: 20/s, delivery_timeout: 2s}
  - {topic: t, rate: 20/s}
steps:
  - {at: 500ms, kill: broker 1, down: 5s}
""", "gives-up.yaml")  # fmt: skip
    run = Run(scenario, 1, None, is_traced=False)
    assert not run.go("").violations
    longest_us = {"producer-1": 0, "producer-2": 0}
    for send in run.history.sends:
        longest_us[send.producer] = max(longest_us[send.producer], send.completed_us - send.invoked_us)
        if send.outcome is not Outcome.OK:
            assert send.producer == "producer-1"
    assert 1_990_000 < longest_us["producer-1"] < 3_000_000
    assert 4_000_000 < longest_us["producer-2"] < 8_000_000
