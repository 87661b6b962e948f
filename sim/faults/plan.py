"""Carries out a scenario's steps on a running cluster, one after the other, and heals everything at the end.

The plan is a list of steps in order, each at a time or at a condition. The nodes and links that a target means are
looked up when the step strikes. A step that finds none looks again until its `within` is over. Meanwhile a next step
with a time of its own has its turn; another waits until this one has struck or given up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, final

from sim.faults.conditions import Lookout
from sim.faults.damage import DamageFaults
from sim.faults.disks import DiskFaults
from sim.faults.links import LinkFaults
from sim.faults.machines import MachineFaults
from sim.faults.nodes import NodeFaults
from sim.faults.rolling import RollingRestarts
from sim.faults.targets import Site, Targets
from sim.faults.topics import MetadataFaults, TopicFaults
from sim.scenario.base import Step
from sim.scenario.disk_steps import (
    FailDisk,
    FailSync,
    HangDisk,
    LieSyncs,
    LoseWrites,
    MisdirectWrites,
    RestoreDisk,
    Rot,
    SaveDisk,
    WipeDisk,
)
from sim.scenario.link_steps import (
    Clog,
    FlipBits,
    FreezeClock,
    HangUp,
    KillStart,
    Narrow,
    RollingRestart,
    SlowCpu,
)
from sim.scenario.steps import (
    AlterTopic,
    BreakDisk,
    CreateTopic,
    Cut,
    DeleteTopic,
    Heal,
    Isolate,
    Kill,
    KillInside,
    LackDescriptors,
    LagMetadata,
    Lose,
    PartialWrite,
    Pause,
    Pick,
    Power,
    Restart,
    Slow,
    SlowDisk,
    StepClock,
    Stop,
)
from sim.world.time import Actor

# The interval at which a step is tried again while its target does not exist.
POLL_US = 20_000


class _Look(NamedTuple):
    """A step that is due and found no target. It looks for one until `until_us`; `miss` is its number in the misses."""

    number: int
    generation: int
    until_us: int
    miss: int


@final
class Faults:
    """The plan of one run: `begin` starts with its first step; `heal_all` ends it, whichever step is next."""

    def __init__(self, site: Site, steps: Sequence[Step], lookout: Lookout) -> None:
        self._site, self._steps, self._lookout = site, steps, lookout
        self._actor = Actor(site.world.draws, "faults")
        targets = Targets(site)
        self._links = LinkFaults(site, targets, self._actor)
        self._nodes = NodeFaults(site, targets)
        self._topics = TopicFaults(
            site.topics, site.tell, site.admin.ask, lambda step: _leader_of(targets, step)
        )
        self._metadata = MetadataFaults(site, targets)
        self._machines = MachineFaults(site, targets, self._actor)
        self._disks = DiskFaults(site, targets, self._actor, self._nodes)
        self._damage = DamageFaults(site, targets, self._actor)
        rolling = RollingRestarts(site, targets, self._actor, self._nodes)
        self._next = 0
        self._last_us = 0
        # Whether the next step is due and looks for its target.
        self._is_due = False
        # The steps whose conditions did not hold in time, and the number of steps that struck.
        self._gave_up: list[int] = []
        self._struck_count = 0
        # Grows when everything is healed: a step that was scheduled before must not strike then.
        self._generation = 0
        self._handlers: dict[type, Callable[..., bool]] = {
            Kill: self._nodes.kill,
            KillInside: self._nodes.kill_inside,
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
            HangDisk: self._machines.hang_disk,
            FreezeClock: self._machines.freeze_clock,
            StepClock: self._machines.step_clock,
            CreateTopic: self._topics.create,
            DeleteTopic: self._topics.delete,
            AlterTopic: self._topics.alter,
            LagMetadata: self._metadata.lag_metadata,
            Clog: self._links.clog,
            Narrow: self._links.narrow,
            HangUp: self._links.hang_up,
            FlipBits: self._links.flip_bits,
            SlowCpu: self._machines.slow_cpu,
            KillStart: self._nodes.kill_start,
            RollingRestart: rolling.rolling_restart,
            FailDisk: self._disks.fail_disk,
            FailSync: self._disks.fail_sync,
            LieSyncs: self._disks.lie_syncs,
            LackDescriptors: self._disks.lack_descriptors,
            WipeDisk: self._disks.wipe_disk,
            SaveDisk: self._disks.save_disk,
            RestoreDisk: self._disks.restore_disk,
            Rot: self._damage.rot,
            LoseWrites: self._damage.lose_writes,
            MisdirectWrites: self._damage.misdirect_writes,
        }

    @property
    def unfired(self) -> list[int]:
        """The numbers, 1 for the first, of the steps whose conditions or times never came; of all if none struck.

        A step that came to its turn and found no target is no such step but a miss.
        """
        never_came = [*self._gave_up, *range(self._next + self._is_due, len(self._steps))]
        return [number + 1 for number in (never_came if self._struck_count else range(len(self._steps)))]

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
            self._gave_up.append(self._next)
            self._go_on()

    def _strike(self, token: tuple[int, int]) -> None:
        if token != (self._next, self._generation):
            return
        if self._has_struck(self._next):
            self._go_on()
            return
        number, step = self._next, self._steps[self._next]
        miss = self._site.misses.wait(f"{step.verb} {step.target_text}: its target did not exist")
        look = _Look(number, self._generation, self._site.world.now_us + step.within, miss)
        self._site.world.after(self._actor, POLL_US, self._look_again, look)
        if self._has_own_time(number + 1):
            self._go_on()
        else:
            self._is_due = True

    def _has_struck(self, number: int) -> bool:
        """Let the step strike. Returns False if its target does not exist."""
        step, before = self._steps[number], (self._next, self._generation)
        has_struck = self._handlers[type(step)](step)
        # A step breaks things; only the plan goes on to the next one.
        assert before == (self._next, self._generation), (before, self._next, self._generation)
        self._struck_count += has_struck
        return has_struck

    def _look_again(self, look: _Look) -> None:
        """Strike if the target exists now; give up if the time for that is over."""
        if look.generation != self._generation:
            return
        assert look.number <= self._next, (look.number, self._next)
        if self._has_struck(look.number):
            self._site.misses.struck(look.miss)
        elif self._site.world.now_us < look.until_us:
            self._site.world.after(self._actor, POLL_US, self._look_again, look)
            return
        else:
            step = self._steps[look.number]
            self._site.tell(
                f"step {look.number + 1} gave up: {step.verb} {step.target_text}: its target did not exist"
            )
        if look.number == self._next:
            self._go_on()

    def _has_own_time(self, number: int) -> bool:
        """Whether there is a step with that number and its time does not count from the step before."""
        at = self._steps[number].at if number < len(self._steps) else None
        return at is not None and not at.is_relative

    def _go_on(self) -> None:
        """Give the step after the next one its turn."""
        assert self._next < len(self._steps), (self._next, len(self._steps))
        assert self._last_us <= self._site.world.now_us, (self._last_us, self._site.world.now_us)
        self._next, self._last_us, self._is_due = self._next + 1, self._site.world.now_us, False
        self._arm()

    def heal_all(self) -> None:
        """End all faults of links and nodes; every node runs again, and no further step strikes."""
        self._generation += 1
        self._lookout.give_up()
        self._links.heal_all()
        self._metadata.heal_all()
        self._machines.heal_all()
        self._disks.heal_all()
        self._damage.heal_all()
        self._nodes.heal_all()


def _leader_of(targets: Targets, step: CreateTopic) -> int | None:
    """Returns the broker that shall lead the new topic, None while there is none."""
    nodes = targets.nodes(step.leader, step) if step.leader is not None else []
    return nodes[0].node_id if nodes else None
