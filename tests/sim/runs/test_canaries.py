"""A healed cluster takes a record of each producer in every partition, and consumers read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cluster.core.connection.rooms import Room, Slot
from sim.bugs.planting import Replacement, replaced
from sim.canaries import TRIES, Canaries
from sim.run import Run, RunResult, run_scenario
from sim.scenario.loading import parse_scenario

SCENARIO = """\
scenario: serves-again
warm_up: 500ms
duration: 1s
converge: 10s
canaries: true
topics:
  t: {partitions: 3, replicas: 2, config: {min.insync.replicas: 2}}
producers:
  - {topic: t, rate: 20/s, clients: 2, size: 200 B}
consumers:
  - {topic: t}
"""


def _leaks(original: Callable[..., Any]) -> Callable[..., Any]:
    """A place that is freed at its connection only."""

    def release(room: Room, slot: Slot) -> None:
        original(room, slot)
        room.node.calls += 1

    return release


def run(text: str) -> RunResult:
    return run_scenario(parse_scenario(text, "serves-again.yaml"), 1)


def test_each_producer_gets_a_record_into_each_partition() -> None:
    with_canaries, without = run(SCENARIO), run(SCENARIO.replace("canaries: true", "canaries: false"))
    assert not with_canaries.violations and not without.violations
    assert with_canaries.operations["ok"] - without.operations["ok"] == 2 * 3


def test_a_cluster_that_refuses_all_is_noticed_and_every_producer_and_partition_named() -> None:
    broken = run(SCENARIO.replace("config: {", "config: {message.timestamp.before.max.ms: 0, ")).violations
    assert {violation.checker for violation in broken} == {"canaries"}
    named = {tuple(violation.what.split()[:2]) for violation in broken}
    assert named == {(f"t-{number}:", f"producer-{each}") for number in range(3) for each in (1, 2)}
    assert all(f"in {TRIES} tries" in violation.what for violation in broken)


def test_a_producer_that_gives_up_sooner_has_more_tries() -> None:
    text = SCENARIO.replace("config: {", "config: {message.timestamp.before.max.ms: 0, ")
    broken = run(text.replace("size: 200 B", "size: 200 B, delivery_timeout: 2s")).violations
    assert broken and all(f"in {4 * TRIES} tries" in violation.what for violation in broken)


@pytest.mark.parametrize(
    ("by", "limit", "is_judged"), [("61m", "", False), ("2s", "message.timestamp.before.max.ms: 0, ", True)]
)
def test_a_leader_may_refuse_records_that_are_far_ahead_of_its_clock(
    by: str, limit: str, *, is_judged: bool
) -> None:
    text = SCENARIO.replace("config: {", f"config: {{{limit}")
    text += f"steps:\n  - {{at: 800ms, step_clock: producer 1, by: {by}}}\n"
    assert ("canaries" in {each.checker for each in run(text).violations}) is is_judged


@pytest.mark.parametrize("limit", ["max.message.bytes: 250", "segment.bytes: 250"])
def test_a_topic_may_refuse_records_above_its_limits(limit: str) -> None:
    assert run(SCENARIO.replace("config: {", f"config: {{{limit}, ")).violations == ()


@pytest.mark.parametrize(("flush", "loss", "is_judged"), [("400ms", 0, False), ("", 5, False), ("", 0, True)])
def test_a_producer_that_gives_up_sooner_than_its_replicas_may_take_is_not_judged(
    flush: str, loss: int, *, is_judged: bool
) -> None:
    """That a topic refuses all shows who is judged: a producer of little patience only where nothing takes long."""
    text = SCENARIO.replace("config: {", "config: {message.timestamp.before.max.ms: 0, ")
    # Points fire until then, and clients begin once their topic is there.
    text = text.replace("duration: 1s", "duration: 4s")
    jobs = f", jobs: {{flush: {flush}}}" if flush else ""
    text += f"network: {{loss: {loss}%}}\n"
    text += f"cluster: {{brokers: 3{jobs}}}\nbuggify: {{points: [short-patience], chance: 100%}}\n"
    assert {each.checker for each in run(text).violations} == ({"canaries"} if is_judged else set())


@pytest.mark.parametrize(
    ("partitions", "flush", "promise", "is_judged"),
    [
        (3, "400ms", "topic", False),
        (3, "400ms", "point", False),
        (1, "400ms", "topic", True),
        (3, "40ms", "topic", True),
        (3, "400ms", "none", True),
        (3, "100ms", "topic", True),
        # A checkpoint stands before each.
        (3, "100ms, checkpoint: 400ms", "topic", False),
    ],
)
def test_a_producer_that_gives_up_before_the_flushes_of_all_partitions_is_not_judged(
    partitions: int, flush: str, promise: str, *, is_judged: bool
) -> None:
    text = SCENARIO.replace("config: {", "config: {message.timestamp.before.max.ms: 0, ")
    text = text.replace("partitions: 3", f"partitions: {partitions}")
    if promise == "topic":
        text = text.replace("config: {", "config: {flush.messages: 1, ")
    elif promise == "point":
        text += "buggify: {points: [flushes-each]}\n"
    text += f"cluster: {{brokers: 3, jobs: {{flush: {flush}}}}}\n"
    assert {each.checker for each in run(text).violations} == ({"canaries"} if is_judged else set())


@pytest.mark.parametrize(
    ("lag_ms", "loss", "in_sync", "altered", "is_judged"),
    [
        (600, 4, 2, 0, False),
        (600, 4, 1, 2, False),
        (600, 4, 1, 0, True),
        # Two in a row take longer than that.
        (4_000, 4, 2, 0, False),
        (6_000, 4, 2, 0, True),
        (600, 0, 2, 0, True),
    ],
)
def test_followers_that_a_lost_fetch_takes_out_of_the_in_sync_set_may_be_too_few(
    lag_ms: int, loss: int, in_sync: int, altered: int, *, is_judged: bool
) -> None:
    text = SCENARIO.replace("min.insync.replicas: 2", f"min.insync.replicas: {in_sync}")
    text = text.replace("config: {", "config: {message.timestamp.before.max.ms: 0, ")
    text += f"network: {{loss: {loss}%}}\n"
    text += f"cluster: {{settings: {{replica.lag.time.max.ms: {lag_ms}, replica.socket.timeout.ms: 2800}}}}\n"
    if altered:
        text += f"steps: [{{at: 700ms, alter_topic: t, config: {{min.insync.replicas: {altered}}}}}]\n"
    assert {each.checker for each in run(text).violations} == ({"canaries"} if is_judged else set())


@pytest.mark.parametrize(
    ("delete", "refuses", "found"),
    [("4s", False, ""), ("4s", True, "INVALID_TIMESTAMP"), ("30ms", True, "INVALID_TIMESTAMP")],
)
def test_a_producer_that_times_out_before_the_jobs_of_a_replica_end_is_not_judged(
    delete: str, found: str, *, refuses: bool
) -> None:
    """Nor is convergence, as long as the jobs become fewer. A refusal is judged however many jobs wait."""
    config = "flush.messages: 1, segment.bytes: 300, retention.bytes: 300, file.delete.delay.ms: 0, "
    text = SCENARIO.replace("config: {", "config: {" + config).replace("duration: 1s", "duration: 3s")
    text = text.replace("converge: 10s", "converge: 60s")
    settings = "settings: {log.initial.task.delay.ms: 100, log.retention.check.interval.ms: 100}"
    text += f"cluster: {{jobs: {{delete: {delete}}}, {settings}}}\n"
    if refuses:
        text += "steps: [{at: 2900ms, alter_topic: t, config: {message.timestamp.before.max.ms: 0}}]\n"
    violations = run(text).violations
    assert {each.checker for each in violations} == ({"canaries"} if found else set())
    assert all(each.what.endswith(f": {found}") for each in violations)


def test_a_producer_that_is_stopping_is_not_asked() -> None:
    run = Run(parse_scenario(SCENARIO, "serves-again.yaml"), 1)
    run.begin()
    run.world.run_to(run.scenario.duration)
    producers = run.cluster.producers
    for producer in producers:
        producer.finish()
    producers[0].is_stopping = True
    before = [len(run.history.sends), sum(each.producer == producers[0].name for each in run.history.sends)]
    Canaries(run.cluster, run.jury, run.witness.lives).send(lambda: False)
    after = [len(run.history.sends), sum(each.producer == producers[0].name for each in run.history.sends)]
    assert [after[0] - before[0], after[1] - before[1]] == [3, 0]


def test_clients_that_leave_in_order_get_their_answers_first() -> None:
    scenario = parse_scenario(SCENARIO, "serves-again.yaml")
    broken = run_scenario(scenario, 1, bug="connection-breaks-at-half-close").violations
    assert {violation.checker for violation in broken} == {"calls"}
    assert "consumer-1" in broken[0].what


def test_a_node_counts_no_place_of_a_client_that_has_left() -> None:
    with replaced(Replacement(target="cluster.core.connection.rooms:Room.release", make=_leaks)):
        broken = run(SCENARIO).violations
    assert {violation.checker for violation in broken} == {"call-places"}
