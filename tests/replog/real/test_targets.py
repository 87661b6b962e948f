"""What the targets of steps mean among processes, and what steps do to links and topics."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from cluster.core.messages import AlterTopicConfigsRequest, CreateTopicRequest, DeleteTopicRequest
from replog.real.faults import Later, LinkFaults, leader_of
from replog.real.site import Targets
from sim.faults.topics import TopicFaults
from sim.scenario.loading import parse_scenario
from sim.scenario.steps import AlterTopic, CreateTopic, Cut, DeleteTopic, Heal, Isolate, Slow
from sim.scenario.values import parse_link, parse_target
from tests.replog.real.places import HEAD, Nobody, site

StepKind = TypeVar("StepKind")


def step(kind: type[StepKind], text: str) -> StepKind:
    found = parse_scenario(f"{HEAD}  - {text}\n").steps[0]
    assert isinstance(found, kind), found
    return found


def test_others_are_all_processes_but_those_on_the_other_side_of_a_link() -> None:
    cut = step(Cut, "{cut: broker 1 -> others}")
    found = Targets(site()).links(parse_link("broker 1 -> others"), cut)
    assert [(each.source, each.target) for each in found] == [
        ("broker-1", "controller"), ("broker-1", "broker-2"), ("broker-1", "broker-3"),
    ]  # fmt: skip


def test_all_to_all_is_each_link_that_there_is() -> None:
    cut = step(Cut, "{cut: all -> all}")
    found = Targets(site()).links(parse_link("all -> all"), cut)
    ends = {(each.source, each.target) for each in found}
    everyone = Targets(site()).everyone()
    assert ends == {(one, other) for one in everyone for other in everyone if one != other}


def test_a_leader_whose_process_is_down_is_no_target() -> None:
    heal = step(Heal, "{heal: all}")
    assert Targets(site()).processes(parse_target("leader(t/0)"), heal) == []


def test_a_name_means_what_an_earlier_step_meant() -> None:
    targets = Targets(site())
    isolate = step(Isolate, "{isolate: broker 3, as: Late}")
    targets.bind(isolate, ["broker-3"])
    assert targets.processes(parse_target("Late"), isolate) == ["broker-3"]


def test_a_cut_ends_after_its_time_unless_a_heal_came_first() -> None:
    async def run() -> tuple[bool, bool]:
        place = site()
        later = Later()
        faults = LinkFaults(place, Targets(place), later)
        link = place.links.link("broker-1", "broker-2")
        assert faults.cut(step(Cut, "{cut: broker 1 -> broker 2, for: 1ms}"))
        was_held = link.is_held
        assert faults.heal(step(Heal, "{heal: broker 1}"))
        # The link is held again, and the end of the first cut must not end this one.
        link.hold()
        await later.until_done()
        return was_held, link.is_held

    assert asyncio.run(run()) == (True, True)


def test_a_slow_link_is_fast_again_after_its_time() -> None:
    async def run() -> tuple[int, int]:
        place = site()
        later = Later()
        faults = LinkFaults(place, Targets(place), later)
        link = place.links.link("broker-2", "broker-1")
        assert faults.slow(step(Slow, "{slow: broker 1 <-> broker 2, by: 4s, for: 1ms}"))
        before = link.extra_us
        await later.until_done()
        return before, link.extra_us

    assert asyncio.run(run()) == (4_000_000, 0)


def test_an_isolated_process_keeps_its_links_to_those_that_are_spared() -> None:
    async def run() -> list[tuple[str, str]]:
        place = site()
        faults = LinkFaults(place, Targets(place), Later())
        assert faults.isolate(step(Isolate, "{isolate: broker 1, except: controller}"))
        return [(each.source, each.target) for each in place.links.all() if each.is_held]

    assert asyncio.run(run()) == [
        ("broker-1", "broker-2"), ("broker-2", "broker-1"), ("broker-1", "broker-3"), ("broker-3", "broker-1"),
    ]  # fmt: skip


def test_topic_steps_are_requests_of_the_admin_client_in_their_order() -> None:
    admin = Nobody()
    place = site(admin)
    targets = Targets(place)
    faults = TopicFaults(place.topics, place.tell, place.admin.ask, lambda step: leader_of(targets, step))
    assert faults.delete(step(DeleteTopic, "{delete_topic: t}"))
    assert faults.create(step(CreateTopic, "{create_topic: t, leader: broker 2}"))
    assert faults.alter(step(AlterTopic, "{alter_topic: t, config: {retention.ms: 5}}"))
    deleted, created, altered = admin.asked
    assert deleted == DeleteTopicRequest(name="t")
    assert isinstance(created, CreateTopicRequest) and created.assignment == ((2, 1, 3),)
    assert altered == AlterTopicConfigsRequest(name="t", configs=(("retention.ms", "5"),))
