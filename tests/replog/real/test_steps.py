"""The steps that processes can suffer, and the words for those that they cannot."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import cast, final

import pytest

from replog.real.faults import Later, LinkFaults, ProcessFaults, handlers_of
from replog.real.processes import Process
from replog.real.site import Targets
from replog.real.steps import what_differs, why_skipped
from sim.bundled import bundled_scenarios
from sim.scenario.base import Step
from sim.scenario.loading import load_scenario, parse_scenario
from sim.scenario.steps import VERBS, Kill, Restart
from tests.replog.real.places import Quiet, site

HEAD = "scenario: s\ntopics: {t: {}}\nsteps:\n"


def step_of(text: str) -> str:
    """Returns why the step in this line is skipped."""
    return why_skipped(parse_scenario(f"{HEAD}  - {text}\n").steps[0])


@pytest.mark.parametrize(
    "text",
    [
        "{kill: leader(t/0), down: 2s}",
        "{stop: broker 1}",
        "{pause: controller, for: 1s}",
        "{restart: all}",
        "{rolling_restart: all, down: 1s}",
        "{pick: follower(t/0), as: Late}",
        "{cut: broker 1 -> broker 2, for: 1s}",
        "{isolate: leader(t/0), except: clients}",
        "{slow: broker 1 <-> others, by: 1s}",
        "{lose: all -> all, share: 5%}",
        "{clog: broker 1 -> broker 2}",
        "{narrow: broker 1 -> broker 2, to: 1KiB}",
        "{hang_up: broker 1 -> broker 2}",
        "{heal: all}",
        "{create_topic: t}",
        "{delete_topic: t}",
        "{alter_topic: t, config: {retention.ms: 1}}",
    ],
)
def test_a_step_that_processes_can_suffer_is_not_skipped(text: str) -> None:
    assert step_of(text) == ""


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{power: leader(t/0)}", "power"),
        ("{kill: leader(t/0), point: before flush}", "before flush"),
        ("{when: joining(t/0), kill: leader(t/0)}", "proposal"),
        ("{lose: all -> all, share: 5%, only: Fetch}", "methods"),
        ("{fail_disk: broker 1}", "disk"),
        ("{wipe_disk: broker 1}", "disk"),
        ("{slow_disk: broker 1, by: 1ms}", "disk"),
        ("{partial_write: broker 1, log: t/0, byte: 9 B}", "midst"),
        ("{step_clock: broker 1, by: 5s}", "clock"),
        ("{hang_disk: broker 1, for: 1s}", "disk"),
        ("{flip_bits: all -> all, share: 1%}", "records"),
        ("{freeze_clock: broker 1, for: 1s}", "clock"),
        ("{lag_metadata: broker 1, for: 1s}", "message"),
    ],
)
def test_a_step_that_no_process_can_suffer_is_skipped_with_a_word(text: str, word: str) -> None:
    assert word in step_of(text)


def carried_out() -> set[type[Step]]:
    """Returns the steps that a run without any process would carry out."""
    place = site()
    targets, later = Targets(place), Later()
    faults = LinkFaults(place, targets, later), ProcessFaults(place, targets, later)
    return set(handlers_of(place, targets, *faults))


def test_every_verb_of_a_scenario_is_carried_out_or_one_of_those_that_are_always_skipped() -> None:
    assert {kind.verb for kind in set(VERBS) - carried_out()} == {
        "power", "partial_write", "break_disk", "slow_disk", "step_clock", "lag_metadata", "slow_cpu",
        "kill_start", "kill_inside", "freeze_clock", "hang_disk", "lack_descriptors",
        "rot", "flip_bits", "lose_writes", "misdirect_writes",
        "fail_disk", "fail_sync", "lie_syncs", "wipe_disk", "save_disk", "restore_disk",
    }  # fmt: skip


def test_every_step_of_the_bundled_scenarios_is_carried_out_or_skipped_with_a_word() -> None:
    doable = carried_out()
    for path in bundled_scenarios().values():
        for step in load_scenario(path).steps:
            assert why_skipped(step) or type(step) in doable, (path.stem, step)


def test_what_beside_the_steps_differs_is_told() -> None:
    text = "scenario: s\ntopics: {t: {config: {cleanup.policy: compact}}}\n"
    plain = parse_scenario("scenario: s\ntopics: {t: {}}\n")
    compacted = parse_scenario(text)
    network = parse_scenario("scenario: s\ntopics: {t: {}}\nnetwork: {transport: datagram}\n")
    assert list(what_differs(plain)) == []
    assert [each.partition(":")[0] for each in what_differs(compacted)] == ["topic t"]
    assert [each.partition(":")[0] for each in what_differs(network)] == ["network"]


@final
class Stubborn:
    """A process that never ends by SIGTERM, and takes no time to be killed or to start."""

    def __init__(self) -> None:
        self.is_up, self.paused, self.is_asked, self.starts = True, False, True, 1

    async def end(self) -> bool:
        self.is_up = False
        return False

    async def start(self, *, after: int) -> bool:
        self.is_up, self.starts = True, after + 1
        return True


def test_a_heal_does_not_wait_for_ever_for_a_process_that_was_asked_to_end() -> None:
    async def run() -> tuple[list[str], int]:
        place, broker = site(), Stubborn()
        place.nodes["broker-2"] = cast(Process, broker)  # type: ignore[index]
        faults = ProcessFaults(place, Targets(place), Later())
        return await faults.heal_all(), broker.starts

    assert asyncio.run(run()) == (["broker-2"], 2)


def test_a_restart_brings_back_what_was_killed_just_before(tmp_path: Path) -> None:
    steps = parse_scenario(f"{HEAD}  - kill: broker 1\n  - restart: broker 1\n  - restart: all\n").steps
    kill, restart, restart_all = steps
    assert isinstance(kill, Kill) and isinstance(restart, Restart) and isinstance(restart_all, Restart)

    async def run() -> tuple[int, list[str]]:
        story: list[str] = []
        place, later = site(tell=story.append), Later()
        command = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
        for name in place.brokers:
            place.nodes[name] = Process(name, Quiet(), tmp_path / name, lambda: command)  # type: ignore[index]
            await place.nodes[name].start()
        faults = ProcessFaults(place, Targets(place), later)
        assert faults.kill(kill) and faults.restart(restart) and faults.restart(restart_all)
        await later.until_done()
        starts = place.nodes["broker-1"].starts
        for name in place.brokers:
            await place.nodes[name].end_at_once()
        return starts, story

    assert asyncio.run(asyncio.wait_for(run(), 60)) == (2, ["kill broker-1", "start broker-1 again"])


def test_a_start_that_was_planned_and_fails_fails_the_run() -> None:
    async def fails() -> None:
        raise OSError("no room for processes")

    async def run() -> None:
        later = Later()
        later.do(fails())
        with pytest.raises(OSError, match="no room"):
            await later.until_done()

    asyncio.run(run())
