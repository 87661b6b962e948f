"""Sends that fail because a topic can take no records are excused; others that fail starve a run."""

from __future__ import annotations

from sim.outages import KILLED, NO_LEADER, NO_TOPIC, TOO_FEW
from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import parse_scenario

HEAD = """\
scenario: outages
warm_up: 500ms
duration: 12s
cluster: {brokers: 2}
topics:
  t: {replicas: 2, config: {min.insync.replicas: 2}}
producers:
  - {topic: t, rate: 10/s, acks: all}
steps:
"""


def run(steps: str, head: str = HEAD) -> RunResult:
    return run_scenario(parse_scenario(head + steps), 1)


def test_sends_to_a_partition_without_enough_in_sync_replicas_are_excused_for_acks_all() -> None:
    result = run("  - {at: 600ms, kill: follower(t/0)}\n")
    failed = result.operations["fail"] + result.operations["info"]
    assert failed > 30 and result.excused_sends == {TOO_FEW: failed}
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    assert result.as_json()["excused_sends"] == result.excused_sends
    acks_1 = run("  - {at: 600ms, kill: follower(t/0)}\n", HEAD.replace("acks: all", "acks: 1"))
    assert not acks_1.excused_sends and acks_1.operations["ok"] > 30


def test_sends_to_a_partition_without_a_leader_are_excused() -> None:
    result = run("  - {at: 600ms, kill: broker 1}\n  - {at: 600ms, kill: broker 2}\n")
    assert result.excused_sends[NO_LEADER] > 30
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)


def test_sends_to_a_deleted_topic_and_those_of_a_killed_producer_are_excused() -> None:
    result = run("  - {at: 600ms, delete_topic: t}\n  - {at: 3s, kill: producer 1}\n")
    assert result.excused_sends[NO_TOPIC] > 10
    cut = "  - {at: 600ms, cut: producer 1 <-> others}\n  - {at: 3s, kill: producer 1}\n"
    assert run(cut).excused_sends[KILLED] > 10


def test_sends_that_fail_although_the_topic_takes_records_starve_a_run() -> None:
    # What is sent in the last seconds before everything is healed still succeeds.
    head = HEAD.replace("duration: 12s", "duration: 45s")
    result = run("  - {at: 600ms, cut: producer 1 <-> others}\n", head)
    assert result.verdict is Verdict.STARVED and not result.excused_sends
    ok_count = result.operations["ok"]
    assert result.starved_because == f"{ok_count} of {sum(result.operations.values())} sends succeeded"


def test_a_run_of_which_no_send_succeeded_proves_nothing_whatever_excuses_it() -> None:
    head = HEAD.replace("{replicas: 2,", "{replicas: 2, exists: false,")
    result = run("  - {at: 600ms, kill: broker 1}\n", head)
    assert result.operations["ok"] == 0 and result.verdict is Verdict.STARVED
    count = sum(result.operations.values())
    assert result.starved_because == f"0 of {count} sends succeeded, {count} of them are excused"
