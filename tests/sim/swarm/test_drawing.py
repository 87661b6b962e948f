"""What is drawn from a seed: the same for the same seed, all that a run may have, and never more than the budget."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import pytest

from sim.buggify.points import POINTS
from sim.scenario.loading import parse_scenario
from sim.scenario.model import Scenario
from sim.scenario.steps import VERB_NAMES
from sim.swarm.choices import Choices
from sim.swarm.drawing import Drawn, draw
from sim.swarm.job import parse_only
from sim.swarm.plans.catalogue import FAULTS
from sim.swarm.plans.ground import LAST, Ground
from sim.swarm.plans.plan import Strike
from sim.swarm.plans.shapes import AIMED, ALLOWED, APART, AT_WORK, SHAPES, draw_shape
from sim.swarm.profiles import Profile, draw_profile, over_budget
from sim.swarm.workload import BATCH_OVERHEAD_BYTES, WIDE
from storage.draws import Draws


@cache
def seeds(end: int) -> list[Drawn]:
    """Returns the scenarios of the seeds from 0 to `end` (exclusive), drawn once for all tests."""
    return [draw(seed) for seed in range(end)]


def test_one_seed_is_one_scenario() -> None:
    assert draw(3).parts == draw(3).parts != draw(4).parts


@pytest.mark.slow
def test_a_seed_is_the_same_scenario_whatever_the_hash_seed_is() -> None:
    code = "from sim.swarm.drawing import draw; print([draw(seed).as_yaml() for seed in range(20)])"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(found) == 1


def test_in_some_seeds_a_slow_job_is_at_work_where_logs_are_cut() -> None:
    at_work = [each for each in seeds(150) if each.shape == AT_WORK.name]
    others = [each for each in seeds(150) if each.shape != AT_WORK.name]
    assert at_work
    assert not any(strike.kind == "cut-at-work" for each in others for strike in each.plan)
    for each in at_work:
        kinds = {
            strike.kind for strike in each.plan if FAULTS[strike.kind].family not in ("controller", LAST)
        }
        assert kinds == {"cut-at-work"}, each.seed
        jobs, topics = each.scenario.cluster.jobs, each.scenario.topics.values()
        assert len(jobs) == 1 and min(jobs.values()) >= 100_000
        assert "flush" not in jobs or all("flush.messages" not in topic.config for topic in topics)
        if "compact" in jobs:
            assert all(producer.keys for producer in each.scenario.producers)


def test_the_file_that_describes_a_seed_is_the_scenario_that_is_run() -> None:
    for drawn in seeds(3):
        assert parse_scenario(drawn.as_yaml()) == drawn.scenario


def test_only_takes_faults_away_and_changes_nothing_else() -> None:
    for whole in seeds(20):
        part = draw(whole.seed, only=("kill", "behind"))
        assert part.plan == tuple(strike for strike in whole.plan if strike.kind in ("kill", "behind"))
        assert _quiet(part) == _quiet(whole)


def test_a_profile_changes_no_machine_and_no_network() -> None:
    within, beyond = draw(5, Profile.WITHIN), draw(5, Profile.BEYOND)
    for key in ("cluster", "network", "duration", "consumers"):
        assert within.parts[key] == beyond.parts[key]


def test_buggify_points_are_on_in_half_of_the_seeds_and_change_nothing_else() -> None:
    found = [each for each in seeds(60) if len(each.scenario.buggify.points) > 1]
    assert 20 <= len(found) <= 40
    for each in found[:10]:
        points = each.scenario.buggify.points
        assert 4 < len(points) < len(POINTS) // 2
        without, on = draw(each.seed, buggify=False), draw(each.seed, buggify=True)
        assert on.parts == each.parts
        left = {key: part for key, part in each.parts.items() if key != "buggify"}
        expected = dict(without.parts)
        if "little-work" in points:
            # Slow jobs do not go with it.
            cluster = expected["cluster"]
            assert isinstance(cluster, dict), cluster
            expected["cluster"] = {key: part for key, part in cluster.items() if key != "jobs"}
        assert left == expected


def test_where_a_job_is_always_at_work_it_is_told_late_as_a_role_begins() -> None:
    found = [each for each in seeds(120) if each.shape == "at-work"]
    assert found
    for each in found:
        assert "job-overtaken" in each.scenario.buggify.points
        assert not draw(each.seed, buggify=False).scenario.buggify.points


@pytest.mark.slow
def test_every_buggify_point_is_drawn() -> None:
    drawn = (draw(seed, buggify=True) for seed in range(60))
    assert {name for each in drawn for name in each.scenario.buggify.points} == set(POINTS)


def _quiet(drawn: Drawn) -> dict[str, object]:
    return {key: value for key, value in drawn.parts.items() if key != "steps"}


@pytest.mark.slow
def test_every_fault_every_step_and_every_size_of_cluster_is_drawn() -> None:
    found = seeds(300)
    assert {strike.kind for each in found for strike in each.plan} == set(FAULTS)
    assert {step.verb for each in found for step in each.scenario.steps} == set(VERB_NAMES)
    assert {each.scenario.cluster.brokers for each in found} == {1, 2, 3, 4, 5}
    assert {each.scenario.network.transport for each in found} == {"stream", "datagram"}
    assert {producer.acks for each in found for producer in each.scenario.producers} == {"all", 1, 0}


def test_no_shape_of_plan_dominates() -> None:
    found = Counter(draw_shape(Choices(Draws(seed)), is_aimed=False).name for seed in range(2_000))
    assert set(found) == {shape.name for shape in SHAPES}
    assert max(found.values()) < 2 * min(found.values())


def test_the_profiles_have_their_shares() -> None:
    found = Counter(draw_profile(Choices(Draws(seed))) for seed in range(2_000))
    assert 1_350 < found[Profile.WITHIN] < 1_490
    assert 250 < found[Profile.EDGE] < 350 and 230 < found[Profile.BEYOND] < 330


def test_a_quiet_plan_has_one_fault() -> None:
    found = [each for each in seeds(60) if each.shape == "quiet"]
    assert found
    for each in found:
        others = [strike for strike in each.plan if strike.kind != "controller-away"]
        assert len(others) == 1


def test_in_aimed_runs_chains_strike_alone_and_have_followers_to_aim_at() -> None:
    found = [each for each in seeds(60) if each.shape == AIMED.name]
    assert 15 < len(found) < 36
    for each in found:
        others = [FAULTS[strike.kind] for strike in each.plan]
        others = [fault for fault in others if fault.family not in ("controller", LAST)]
        assert 1 <= len(others) <= 3 and {fault.family for fault in others} == {"chain"}
        assert all(topic.replicas >= 3 for topic in each.scenario.topics.values())


def test_a_topic_at_which_faults_have_aimed_may_end_at_last_and_comes_back_while_its_clients_go_on() -> None:
    found = [
        (each, strike) for each in seeds(60) for strike in each.plan if strike.kind == "again-at-the-end"
    ]
    assert 5 < len(found) < 25
    for drawn, strike in found:
        deleted, created, *ends = strike.steps
        assert len(ends) <= 1 and all("kill" in each for each in ends)
        assert deleted["delete_topic"] == created["create_topic"]
        assert strike.at_ms == drawn.scenario.duration // 1_000 - 300 - FAULTS[strike.kind].lasts_ms
        aimed = [other.at_ms for other in drawn.plan if FAULTS[other.kind].family == "chain"]
        assert drawn.shape != AIMED.name or min(aimed) < strike.at_ms


def test_all_brokers_may_be_started_again_after_all_other_faults() -> None:
    found = [
        (each, strike) for each in seeds(60) for strike in each.plan if strike.kind == "restart-at-the-end"
    ]
    assert {next(iter(strike.steps[0])) for _, strike in found} == {"kill", "stop"}
    for drawn, strike in found:
        aimed = [other.at_ms for other in drawn.plan if FAULTS[other.kind].family != LAST]
        assert drawn.shape != AIMED.name or max(aimed, default=0) < strike.at_ms
        assert strike.steps[0] == strike.steps[-1] or len(strike.steps) == drawn.scenario.cluster.brokers


def test_a_chain_strikes_so_early_that_it_comes_to_its_end() -> None:
    for each in seeds(60):
        end_ms = each.scenario.duration // 1_000
        for strike in each.plan:
            lasts_ms = FAULTS[strike.kind].lasts_ms
            assert strike.at_ms <= max(_first_ms(each), end_ms - lasts_ms), strike


def test_checks_in_slices_are_not_drawn_with_what_leaves_no_time_for_them() -> None:
    drawn = list(seeds(60))
    little = [each.scenario for each in drawn if "little-work" in each.scenario.buggify.points]
    assert len(little) > 5
    for each in little:
        assert not {"flushes-each", "job-slow", "short-patience"} & set(each.buggify.points)
        assert not each.cluster.jobs
    assert any(each.scenario.cluster.jobs for each in drawn)


def _first_ms(drawn: Drawn) -> int:
    return drawn.scenario.warm_up // 1_000 + 200


def test_all_producers_together_send_a_bounded_number_of_records_a_second() -> None:
    together = [sum(each.rate * each.clients for each in drawn.scenario.producers) for drawn in seeds(60)]
    # And at most 5 of the one that may be beside the others.
    assert max(together) <= 155
    assert sum(rate > 120 for rate in together) >= 10


def test_no_consumer_asks_again_without_a_pause() -> None:
    """A consumer without one fetches a thousand times a second: the seed costs as much as ten others."""
    waits_us = [each.max_wait for drawn in seeds(100) for each in drawn.scenario.consumers]
    assert min(waits_us) == 20_000


def test_a_consumer_outlasts_the_wait_that_it_asks_for_whatever_the_clocks_and_the_network_do() -> None:
    """A wait of 1.4 s by a broker's clock that is 10 % slower never ended with an answer (seed 20,000,481)."""
    drift, way_ms = 0.05, 50
    waits_ms = [each.max_wait / 1_000 for drawn in seeds(100) for each in drawn.scenario.consumers]
    assert max(waits_ms) * (1 + drift) + 2 * way_ms < 1_500 * (1 - drift)


def test_time_outs_of_calls_to_the_controller_differ_and_let_fetches_wait() -> None:
    found = [drawn.scenario.cluster.settings for drawn in seeds(100)]
    proposals = [
        each["controller.socket.timeout.ms"] for each in found if "controller.socket.timeout.ms" in each
    ]
    assert min(proposals) < 900 < max(proposals), "longer and shorter than that of a heartbeat"
    fetches = [each["replica.socket.timeout.ms"] for each in found if "replica.socket.timeout.ms" in each]
    assert min(fetches) > 700, "a fetch waits up to 700 ms for records"


def test_a_leader_is_unheard_from_its_election_on_for_longer_than_a_member_may_lag() -> None:
    found = [
        (drawn, strike) for drawn in seeds(300) for strike in drawn.plan if strike.kind == "unheard-leader"
    ]
    assert found
    for drawn, strike in found:
        lag_ms = int(drawn.scenario.cluster.settings.get("replica.lag.time.max.ms", 4_000))
        # Steps before them may end what an earlier chain has left.
        cut, end = strike.steps[-2:]
        assert int(str(cut["for"]).removesuffix("ms")) > lag_ms * 3 // 2 + 1_000, drawn.seed
        assert "stop" in end or "kill" in end, drawn.seed


def test_faults_strike_after_a_warm_up_that_is_long_where_datagrams_are_lost() -> None:
    lossy = 0
    for each in seeds(60):
        network = each.scenario.network
        is_lossy = network.transport == "datagram" and network.loss > 0
        # Some shapes have streams in place of the network that was drawn, and keep its time.
        expected = {3_000_000} if is_lossy else {1_500_000}
        if each.shape in (APART.name, AT_WORK.name):
            expected |= {3_000_000}
        assert each.scenario.warm_up in expected, each.seed
        assert all(strike.at_ms >= _first_ms(each) for strike in each.plan), each.seed
        lossy += is_lossy
    assert 10 < lossy < 40


def test_replicas_lead_apart_only_where_each_may_be_elected() -> None:
    found = [each for each in seeds(100) if "leaders-apart" in {strike.kind for strike in each.plan}]
    assert found and all(each.profile is Profile.BEYOND for each in found)
    assert all(each.scenario.topics["t"].config["unclean.leader.election.enable"] for each in found)


def test_no_fault_aims_at_the_topic_that_nobody_uses() -> None:
    wide = [each for each in seeds(100) if WIDE in each.scenario.topics]
    assert wide and all(each.scenario.topics[WIDE].replicas == 1 for each in wide)
    assert not any(f"({WIDE}/" in str(_steps(each)) for each in wide)


def test_the_controller_is_away_in_the_profile_edge_alone() -> None:
    for each in seeds(60):
        is_away = any(strike.kind == "controller-away" for strike in each.plan)
        assert is_away == (each.profile is Profile.EDGE)


def test_what_is_drawn_is_within_the_budget_and_demands_what_it_promises() -> None:
    for each in seeds(60):
        assert list(over_budget(each.scenario, each.profile)) == []
        assert each.scenario.excuses == (each.profile is Profile.BEYOND)


def test_a_power_loss_may_take_writes_within_the_budget_where_each_is_flushed() -> None:
    lossy = [
        each
        for each in seeds(60)
        if each.profile is Profile.WITHIN
        and any("keep" in step and step["keep"] != "all" for strike in each.plan for step in strike.steps)
    ]
    assert lossy


@pytest.mark.parametrize(
    ("replicas", "config", "profile", "may"),
    [
        (1, "flush.ms: 65", Profile.WITHIN, False),
        (1, "flush.messages: 2", Profile.WITHIN, False),
        (1, "flush.messages: 2", Profile.BEYOND, True),
        (1, "retention.ms: 900", Profile.WITHIN, True),
        (2, "flush.ms: 65", Profile.WITHIN, True),
    ],
)
def test_no_directory_breaks_within_the_budget_where_a_failed_flush_takes_the_only_copy(
    *, replicas: int, config: str, profile: Profile, may: bool
) -> None:
    topics = f"topics: {{t: {{replicas: {replicas}, config: {{{config}}}}}}}"
    text = f"scenario: s\nduration: 1s\n{topics}\nproducers: [{{topic: t, rate: 1/s, acks: 1}}]\n"
    ground = Ground(scenario=parse_scenario(text), profile=profile, lasting=("t",))
    assert FAULTS["break-disk"].is_possible(ground) is may


def test_what_a_healed_network_still_loses_leaves_the_cluster_able_to_agree() -> None:
    losses = {each.scenario.network.loss for each in seeds(60)}
    assert max(losses) <= 5 and len(losses) > 3


def test_most_producers_send_what_brokers_take_and_a_lossy_network_can_repeat() -> None:
    pairs = [(each.scenario, producer) for each in seeds(60) for producer in each.scenario.producers]
    large = [
        producer
        for scenario, producer in pairs
        if max(producer.size, producer.batch) > int(scenario.topics[producer.topic].config["segment.bytes"])
    ]
    assert len(large) * 10 < len(pairs)
    for scenario, producer in pairs:
        if scenario.network.transport == "datagram":
            records = max(1, min(8, producer.batch // (producer.size + 40)))
            assert producer.rate <= 5 * records, producer


def test_some_topics_refuse_batches_that_producers_have_to_split() -> None:
    found = 0
    for drawn in seeds(60):
        for name, topic in drawn.scenario.topics.items():
            limit_bytes = int(str(topic.config.get("max.message.bytes", 0)))
            mine = [each for each in drawn.scenario.producers if each.topic == name]
            if limit_bytes:
                # Each record alone is taken.
                assert all(each.size + BATCH_OVERHEAD_BYTES <= limit_bytes for each in mine), drawn.seed
                assert "compact" not in str(topic.config.get("cleanup.policy")), drawn.seed
                assert all(each.linger for each in mine), drawn.seed
                found += any(each.batch > limit_bytes for each in mine)
    assert found


def test_names_of_targets_are_those_of_their_own_fault() -> None:
    for each in seeds(60):
        names = [step["as"] for step in _steps(each) if "as" in step]
        assert len(names) == len(set(names))


def _steps(drawn: Drawn) -> list[dict[str, object]]:
    steps = drawn.parts["steps"]
    assert isinstance(steps, list)
    return steps


SMALL = """
scenario: small
topics:
  t: {partitions: 1, replicas: 3, config: {%s}}
producers:
  - {topic: t, acks: %s, idempotent: false}
steps:
  - {%s}
"""


def small(
    config: str = "min.insync.replicas: 2", acks: str = "all", step: str = "kill: broker 1"
) -> Scenario:
    return parse_scenario(SMALL % (config, acks, step))


@pytest.mark.parametrize(
    ("scenario", "what"),
    [
        (small(config="unclean.leader.election.enable: true"), "topic t allows unclean elections"),
        (small(step="power: all, keep: none"), "step 1: a power loss of all that keeps none"),
        (small(step="power: broker 1"), "step 1: a power loss of broker 1 that keeps subset"),
        (
            small(step="partial_write: broker 1, log: t/0, byte: 7 B, keep: torn"),
            "step 1: a partial write and a power loss that keeps torn",
        ),
        (
            small(step="flip_bits: clients -> broker 1, share: 1%, where: anywhere"),
            "step 1: a bit flips on clients -> broker 1 where no checksum covers it",
        ),
        # A flush before each acknowledgement does not help a producer that waits for the leader's memory only.
        (
            small(config="flush.messages: 1", acks="1", step="power: all, keep: none"),
            "step 1: a power loss of all that keeps none",
        ),
    ],
)
def test_what_is_over_the_budget_is_named(scenario: Scenario, what: str) -> None:
    assert list(over_budget(scenario, Profile.WITHIN)) == [what]
    assert list(over_budget(scenario, Profile.EDGE)) == [what]
    assert list(over_budget(scenario, Profile.BEYOND)) == []


@pytest.mark.parametrize(
    "scenario",
    [
        small(),
        small(step="power: all, keep: all"),
        small(step="flip_bits: clients -> broker 1, share: 1%, where: structure"),
        small(step="power: controller, keep: none"),
        small(config="flush.messages: 1", step="power: all, keep: none"),
        small(step="partial_write: broker 1, log: t/0, byte: 7 B"),
    ],
)
def test_what_every_promise_survives_is_within_the_budget(scenario: Scenario) -> None:
    assert list(over_budget(scenario, Profile.WITHIN)) == []


def test_kinds_of_faults_are_put_in_order_and_unknown_ones_are_refused() -> None:
    assert parse_only(["cut", "kill"], FAULTS) == ("kill", "cut")
    with pytest.raises(ValueError, match=r"unknown fault 'flood': write kill, kill-at-point, .*"):
        parse_only(["kill", "flood"], FAULTS)


def test_in_aimed_runs_most_chains_come_to_their_end_before_the_next_one() -> None:
    found = [each for each in seeds(100) if each.shape == AIMED.name]
    apart = [each for each in found if _is_in_turn(_movable(each.plan))]
    assert len(found) > len(apart) > len(found) // 2


def test_an_aimed_chain_after_another_begins_with_a_whole_in_sync_set() -> None:
    """What the one before has left, cut links and processes that are down, would keep it from what it aims at."""
    found = [each for each in seeds(100) if each.shape == AIMED.name and len(_movable(each.plan)) > 1]
    mended = [each for each in found if any("restart" in step for step in _movable(each.plan)[1].steps)]
    assert len(mended) > len(found) // 2
    for each in mended:
        first, second = _movable(each.plan)[:2]
        assert not any("restart" in step for step in first.steps)
        heal, restart, whole = second.steps[:3]
        assert (heal["heal"], restart["restart"]) == ("all", "all") and "isr(" in str(whole["when"])


def _movable(plan: Sequence[Strike]) -> list[Strike]:
    return [strike for strike in plan if FAULTS[strike.kind].family not in ("controller", LAST)]


def _is_in_turn(plan: list[Strike]) -> bool:
    return all(a.at_ms + FAULTS[a.kind].lasts_ms <= b.at_ms for a, b in pairwise(plan))


def test_leaders_apart_strike_alone_in_most_seeds_that_allow_unclean_elections() -> None:
    found = [draw(seed, Profile.BEYOND) for seed in range(60)]
    apart = [each for each in found if each.shape == APART.name]
    assert 10 < len(apart) < 50
    assert {strike.kind for each in apart for strike in each.plan} == {"leaders-apart", "allowed-late"}
    # Else nobody would read what a leader without followers has.
    alone = [each for each in apart if each.scenario.topics["t"].config["min.insync.replicas"] == 1]
    assert len(alone) > len(apart) * 3 // 4
    # What a leader lacks makes an idempotent producer wait: nothing would be appended in its epoch.
    producers = [producer for each in apart for producer in each.scenario.producers]
    assert sum(producer.acks == 0 for producer in producers) > len(producers) // 2
    streams = [each for each in apart if each.scenario.network.transport == "stream"]
    assert len(streams) > len(apart) * 3 // 4
    kept = [each for each in apart if each.scenario.topics["t"].config.get("retention.ms") == -1]
    assert len(kept) > len(apart) // 2
    assert all(_is_in_turn(_movable(each.plan)) for each in apart)


def test_unclean_elections_that_are_allowed_late_strike_alone_where_none_are_allowed_at_first() -> None:
    found = [draw(seed, Profile.BEYOND) for seed in range(60)]
    late = [each for each in found if each.shape == ALLOWED.name]
    assert late
    for each in late:
        topics = [topic for name, topic in each.scenario.topics.items() if name != WIDE]
        assert any("unclean.leader.election.enable" not in topic.config for topic in topics)
        assert {strike.kind for strike in each.plan} == {"allowed-late"}


def test_an_append_that_a_power_loss_tears_is_within_every_budget() -> None:
    found = [each for each in seeds(100) if "torn-append" in {strike.kind for strike in each.plan}]
    assert any(each.profile is not Profile.BEYOND for each in found)
    assert "rest" in str([strike.steps for each in found for strike in each.plan])
