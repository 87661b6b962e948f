"""Runs with slow disks, clocks that differ, and jobs that take their time."""

from __future__ import annotations

import pytest

from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import parse_scenario

HEAD = """\
scenario: machines
duration: 7s
cluster: {%s}
topics:
  t: {partitions: 2, config: {min.insync.replicas: 2, flush.messages: 1, segment.bytes: 8192}}
producers:
  - {topic: t, clients: 2, rate: 40/s}
consumers:
  - {topic: t}
steps:
"""


def run(cluster: str, steps: str, seed: int = 1) -> RunResult:
    result = run_scenario(parse_scenario(HEAD % cluster + steps), seed)
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    return result


def test_a_broker_with_a_slow_disk_is_late_and_leaves_the_isr() -> None:
    settings = "settings: {replica.lag.time.max.ms: 1000}"
    result = run(settings, "  - {at: 2500ms, slow_disk: follower(t/0), by: 400ms, for: 3s}\n")
    told = "\n".join(result.story)
    assert "takes 400 ms longer for each call" in told and "is fast again" in told
    slow = told.split("the disk of ")[1].split(" ")[0]
    assert any(f"{slow[-1]} is fenced" in line or "in sync are" in line for line in result.story[20:])


def test_clocks_that_differ_by_more_than_every_timeout_break_nothing() -> None:
    clocks = "clocks: {offset: 20s, drift: 50000}"
    steps = "  - {at: 3s, kill: leader(t/0), down: 1s}\n  - {at: 5s, power: all, keep: subset, down: 300ms}\n"
    assert run(clocks, steps).operations["ok"] > 100


def test_clocks_that_are_set_ahead_and_back_break_nothing() -> None:
    steps = "".join(
        f"  - {{at: {at}ms, step_clock: {target}, by: {by}}}\n"
        for at, target, by in (
            (2500, "leader(t/0)", "30s"),
            (2600, "producer 1", "-60m"),
            (2700, "controller", "10s"),
            (4000, "leader(t/1)", "-45s"),
            (4500, "controller", "-20s"),
        )
    )
    result = run("brokers: 3", steps + "  - {at: 5s, power: all, keep: none, down: 300ms}\n")
    assert any("the clock of controller is set back by 20000 ms" in line for line in result.story)


def test_jobs_that_take_long_hold_up_nothing_else() -> None:
    jobs = "jobs: {flush: 60ms, checkpoint: 700ms, delete: 300ms, shutdown: 100ms}"
    steps = "  - {at: 2500ms, kill: leader(t/0), down: 500ms}\n  - {at: 5s, stop: leader(t/1), down: 500ms}\n"
    assert run(jobs, steps).operations["ok"] > 100


@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_with_all_of_this_is_a_function_of_its_seed(seed: int) -> None:
    cluster = "clocks: {offset: 3s, drift: 900}, jobs: {flush: 9ms}, disk: {call: 50us, sync: 3ms}"
    steps = "  - {at: 2500ms, slow_disk: broker 1, by: 5ms, for: 1s}\n"
    assert run(cluster, steps, seed).trace_hash == run(cluster, steps, seed).trace_hash


def test_a_leader_whose_clock_stands_still_is_replaced_and_finds_its_place_again() -> None:
    result = run("brokers: 3", "  - {at: 3s, freeze_clock: leader(t/0), for: 3s, catches_up: false}\n")
    told = "\n".join(result.story)
    assert "stands still" in told and "runs again, from where it stood" in told
    stopped = told.split("the clock of broker-")[1][0]
    assert f"broker {stopped} is fenced" in told and f"broker {stopped} is unfenced" in told


def test_a_controller_whose_clock_stands_still_fences_nobody_meanwhile() -> None:
    steps = "  - {at: 3s, freeze_clock: controller, for: 3s}\n  - {at: 3s, kill: leader(t/0)}\n"
    result = run("brokers: 3", steps)
    fenced = [float(line.split()[0]) for line in result.story if " is fenced" in line]
    assert fenced and min(fenced) >= 6.0, fenced


def test_what_a_producer_sent_has_more_time_for_its_outcome_if_its_clock_stood_still() -> None:
    steps = "  - {at: 3s, freeze_clock: producer 1}\n  - {at: 3s, freeze_clock: consumer 1, for: 2s}\n"
    assert run("brokers: 3", steps).operations["ok"] > 100


def test_a_leader_whose_disk_hangs_is_replaced_and_comes_back_in_sync() -> None:
    result = run("brokers: 3", "  - {at: 2500ms, hang_disk: leader(t/0), for: 3s}\n")
    told = "\n".join(result.story)
    hung = told.split("the disk of broker-")[1][0]
    assert "5.500 s               the disk of broker-" in told and "hangs no more" in told
    assert f"broker {hung} is fenced" in told and f"broker {hung} is unfenced" in told


def test_a_disk_that_hangs_at_the_end_ends_with_a_restart_of_its_machine() -> None:
    result = run(
        "brokers: 3", "  - {at: 5s, hang_disk: broker 2, for: 60s}\n  - {at: 6s, kill: broker 2, down: 1ms}\n"
    )
    told = "\n".join(result.story)
    assert "7.000 s               the machine of broker-2 restarts, because its disk hangs" in told


def test_the_controller_decides_nothing_while_its_disk_hangs() -> None:
    steps = "  - {at: 2500ms, hang_disk: controller, for: 3s}\n  - {at: 2600ms, kill: leader(t/0)}\n"
    told = run("brokers: 3", steps).story
    elected = [float(line.split()[0]) for line in told if "is elected leader of epoch 1" in line]
    assert elected and min(elected) >= 5.5, elected


def test_isr6_a_leader_whose_clock_stands_still_repeats_its_proposal_when_it_goes_on() -> None:
    """The call fails at once with the controller, and the back-off after it lasts as long as the clock stands."""
    steps = "  - {at: 2500ms, kill: 'follower(t/0)', down: 2s}\n"
    steps += "  - {at: 4450ms, freeze_clock: leader(t/0), for: 1600ms}\n"
    steps += "  - {when: joining(t/0), within: 1s, kill: controller, down: 50ms}\n"
    assert any("kill controller" in line for line in run("brokers: 3", steps).story)


def test_a_send_has_more_time_where_its_outcome_comes_while_the_clock_stands_still() -> None:
    scenario = parse_scenario("""\
scenario: frozen
duration: 12s
cluster: {brokers: 1, settings: {broker.session.timeout.ms: 20000}}
topics: {t: {replicas: 1}}
producers: [{topic: t, rate: 20/s, acks: 1}]
steps:
  - {at: 2s, pause: broker 1, for: 9500ms}
  - {at: 2s, freeze_clock: producer 1, for: 9900ms, catches_up: false}
""")
    result = run_scenario(scenario, 1)
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
