"""The turns of steps on processes: their times, their conditions, and the words for those that are skipped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from replog.real.plan import Plan
from replog.real.run import RealRun
from replog.real.telling import RunClock
from sim.faults.conditions import Lookout
from sim.hosts.history import History
from sim.scenario.loading import parse_scenario
from tests.replog.real.places import HEAD, site


class Stage:
    """A plan over processes that never run, and what it told."""

    def __init__(self, *steps: str) -> None:
        self.story: list[str] = []
        self.site = site(tell=self.story.append)
        self.history, clock = History(), RunClock()
        clock.begin()
        self.lookout = Lookout(self.site.ghost, self.history)
        lines = "".join(f"  - {step}\n" for step in steps)
        self.scenario = parse_scenario(HEAD + lines)
        self.plan = Plan(self.site, self.scenario.steps, self.lookout, lambda: clock.now_us)


def test_a_skipped_step_is_told_and_the_next_one_has_its_turn() -> None:
    async def run() -> Stage:
        stage = Stage("{power: broker 1, as: Old}", "{cut: Old -> broker 2}")
        await stage.plan.run()
        return stage

    stage = asyncio.run(run())
    assert list(stage.plan.skipped) == [1]
    assert stage.story[0].startswith("step 1 is skipped: power broker 1: ")
    # The name means what the skipped step would have struck.
    assert stage.site.links.link("broker-1", "broker-2").is_held
    assert stage.plan.unfired == []


def test_a_step_waits_for_its_condition_and_strikes_when_it_holds() -> None:
    async def run() -> tuple[bool, bool]:
        stage = Stage("{when: after-ack(t/0) >= 2, cut: broker 1 -> broker 2}")
        link = stage.site.links.link("broker-1", "broker-2")
        running = asyncio.get_running_loop().create_task(stage.plan.run())
        stage.history.acknowledged["t-0"] = 1
        await asyncio.sleep(0)
        stage.lookout.look()
        before = link.is_held
        stage.history.acknowledged["t-0"] = 2
        stage.lookout.look()
        await running
        return before, link.is_held

    assert asyncio.run(run()) == (False, True)


def test_a_step_whose_condition_does_not_hold_in_time_never_fires() -> None:
    async def run() -> Stage:
        stage = Stage("{when: isr(t/0) < 2, within: 1ms, cut: broker 1 -> broker 2}", "heal: all")
        await stage.plan.run()
        return stage

    stage = asyncio.run(run())
    assert stage.plan.unfired == [1]
    assert stage.story == ["step 1 gave up waiting for isr(t/0) < 2", "heal all"]


def test_a_step_without_a_target_looks_for_it_in_its_time_and_is_then_a_miss() -> None:
    async def run() -> Stage:
        # No process runs, so there is no leader to strike.
        stage = Stage("{kill: leader(t/0), within: 1ms}")
        await stage.plan.run()
        return stage

    stage = asyncio.run(run())
    assert stage.site.misses.all() == ("kill leader(t/0): its target did not exist",)


def test_a_miss_is_no_unfired_step_but_where_no_step_struck_all_are() -> None:
    async def unfired(*steps: str) -> list[int]:
        stage = Stage(*steps)
        await stage.plan.run()
        return stage.plan.unfired

    miss, skipped = "{kill: leader(t/0), within: 1ms}", "{power: broker 1}"
    assert asyncio.run(unfired(miss, "heal: all")) == []
    assert asyncio.run(unfired(miss, skipped, miss)) == [1, 3]


def test_a_heal_of_everything_ends_faults_and_what_was_planned() -> None:
    async def run() -> tuple[bool, list[str]]:
        stage = Stage("{cut: broker 1 -> broker 2, for: 60s}")
        await stage.plan.run()
        await stage.plan.heal_all()
        await stage.plan.until_done()
        return stage.site.links.link("broker-1", "broker-2").is_held, stage.story

    assert asyncio.run(run()) == (False, ["cut broker 1 -> broker 2"])


@pytest.mark.parametrize(("strict", "unfired"), [(True, [1]), (False, [])])
def test_a_step_whose_moment_never_came_is_told_where_the_run_counts_all_the_same(
    tmp_path: Path, strict: bool, unfired: list[int]
) -> None:
    async def run() -> tuple[list[int], tuple[str, ...]]:
        stage = Stage("{when: isr(t/0) < 2, within: 1ms, cut: broker 1 -> broker 2}", "heal: all")
        await stage.plan.run()
        scenario = stage.scenario.model_copy(update={"strict": strict})
        return RealRun(scenario, 0, tmp_path, lambda line: None)._missed(stage.plan)

    told = () if strict else ("step 1: its moment never came",)
    assert asyncio.run(run()) == (unfired, told)
