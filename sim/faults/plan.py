"""Carries out a scenario's steps on a running cluster, one after the other, and heals everything at the end.

The plan is a list of steps in order, each at a time or at a condition. The nodes and links that a target means are
looked up when the step strikes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from sim.faults.conditions import Lookout
from sim.faults.links import LinkFaults
from sim.faults.machines import MachineFaults
from sim.faults.nodes import NodeFaults
from sim.faults.targets import Site, Targets
from sim.faults.topics import TopicFaults
from sim.scenario.steps import (
    AlterTopic,
    BreakDisk,
    CreateTopic,
    Cut,
    DeleteTopic,
    Heal,
    Isolate,
    Kill,
    LagMetadata,
    Lose,
    PartialWrite,
    Pause,
    Pick,
    Power,
    Restart,
    Slow,
    SlowDisk,
    Step,
    StepClock,
    Stop,
)
from sim.world.time import Actor

# The interval at which a step is tried again while its target does not exist.
POLL_US = 20_000


@final
class Faults:
    """The plan of one run: `begin` starts with its first step; `heal_all` ends it, whichever step is next."""

    def __init__(self, site: Site, steps: Sequence[Step], lookout: Lookout) -> None:
        self._site, self._steps, self._lookout = site, steps, lookout
        self._actor = Actor(site.world.draws, "faults")
        targets = Targets(site)
        self._links = LinkFaults(site, targets, self._actor)
        self._nodes = NodeFaults(site, targets)
        self._topics = TopicFaults(site, targets)
        self._machines = MachineFaults(site, targets, self._actor)
        self._next = 0
        self._last_us = 0
        # Grows when everything is healed: a step that was scheduled before must not strike then.
        self._generation = 0
        self._handlers: dict[type, Callable[..., bool]] = {
            Kill: self._nodes.kill,
            Power: self._nodes.power,
            Pause: self._nodes.pause,
            Stop: self._nodes.stop,
            Pick: self._nodes.pick,
            Restart: self._nodes.restart,
            Cut: self._links.cut,
            Heal: self._links.heal,
            Isolate: self._links.isolate,
            Slow: self._links.slow,
            Lose: self._links.lose,
            PartialWrite: self._nodes.partial_write,
            BreakDisk: self._nodes.break_disk,
            SlowDisk: self._machines.slow_disk,
            StepClock: self._machines.step_clock,
            CreateTopic: self._topics.create,
            DeleteTopic: self._topics.delete,
            AlterTopic: self._topics.alter,
            LagMetadata: self._topics.lag_metadata,
        }

    @property
    def unfired(self) -> list[int]:
        """The numbers of the steps that never struck, 1 for the first."""
        return list(range(self._next + 1, len(self._steps) + 1))

    def begin(self) -> None:
        self._arm()

    def _arm(self) -> None:
        """Wait for the next step's conditions, or for its time."""
        if self._next == len(self._steps):
            return
        step, world = self._steps[self._next], self._site.world
        token = (self._next, self._generation)
        if step.when:
            world.after(self._actor, step.within, self._give_up, token)
            self._lookout.wait(step.when, then=lambda: world.after(self._actor, 0, self._strike, token))
            return
        at_us = world.now_us
        if step.at is not None:
            at_us = max(at_us, self._last_us + step.at.us if step.at.is_relative else step.at.us)
        world.after(self._actor, at_us - world.now_us, self._strike, token)

    def _give_up(self, token: tuple[int, int]) -> None:
        if token == (self._next, self._generation) and (condition := self._lookout.give_up()) is not None:
            self._site.tell(f"step {self._next + 1} gave up waiting for {condition.text}")

    def _strike(self, token: tuple[int, int]) -> None:
        if token != (self._next, self._generation):
            return
        step, now_us = self._steps[self._next], self._site.world.now_us
        assert self._last_us <= now_us, (self._last_us, now_us)
        has_struck = self._handlers[type(step)](step)
        # A step breaks things; only the plan goes on to the next one.
        assert token == (self._next, self._generation), (token, self._next, self._generation)
        if has_struck:
            self._next, self._last_us = self._next + 1, now_us
            self._arm()
        else:
            # The step's target does not exist yet.
            self._site.world.after(self._actor, POLL_US, self._strike, token)

    def heal_all(self) -> None:
        """End all faults of links and nodes; every node runs again, and no further step strikes."""
        self._generation += 1
        self._lookout.give_up()
        self._links.heal_all()
        self._topics.heal_all()
        self._machines.heal_all()
        self._nodes.heal_all()
