"""Faults of machines: slow and hung disks, and clocks that are set or stand still. Each verb needs a target."""

from __future__ import annotations

from typing import final

from sim.disk.costs import UNTIL_HEALED
from sim.faults.targets import Process, Site, Targets
from sim.hosts.node import Node
from sim.scenario.disk_steps import HangDisk
from sim.scenario.link_steps import FreezeClock, SlowCpu
from sim.scenario.steps import SlowDisk, StepClock
from sim.world.time import Actor


@final
class MachineFaults:
    """Slows disks of nodes, until `for` is over or everything is healed, and sets clocks, which stay as they are."""

    def __init__(self, site: Site, targets: Targets, actor: Actor) -> None:
        self._site, self._targets, self._actor = site, targets, actor
        # The number of the last step that slowed a node's disk: the end of an earlier one must not end it.
        self._slowed: dict[str, int] = {}
        self._steps = 0
        # The same for slow processors.
        self._slow: dict[str, tuple[Process, int]] = {}
        # The same for clocks that stand still, with whether each catches up.
        self._frozen: dict[str, tuple[Process, int, bool]] = {}

    def slow_disk(self, step: SlowDisk) -> bool:
        """Let each call on the disks of the target take longer."""
        nodes = self._targets.nodes(step.slow_disk, step)
        self._targets.bind(step, nodes)
        for node in nodes:
            self._site.tell(f"the disk of {node.name} takes {step.by / 1000:g} ms longer for each call")
            meter = node.disk.meter
            meter.slow_us, meter.slow_until_us = step.by, UNTIL_HEALED
            if step.lasting is not None:
                meter.slow_until_us = self._site.world.now_us + step.lasting
            self._steps += 1
            self._slowed[node.name] = self._steps
            if step.lasting is not None:
                self._site.world.after(self._actor, step.lasting, self._speed_up, (node, self._steps))
        return bool(nodes)

    def _speed_up(self, token: tuple[Node, int]) -> None:
        node, number = token
        if self._slowed.get(node.name) == number:
            self._site.tell(f"the disk of {node.name} is fast again")
            node.disk.meter.slow_us = 0
            del self._slowed[node.name]

    def hang_disk(self, step: HangDisk) -> bool:
        """Let no call on the disks of the target return for a while."""
        nodes = self._targets.nodes(step.hang_disk, step)
        self._targets.bind(step, nodes)
        until_us = self._site.world.now_us + step.lasting
        for node in nodes:
            self._site.tell(f"the disk of {node.name} hangs")
            node.disk.meter.hung_until_us = until_us
            self._site.world.after(self._actor, step.lasting, self._end_hanging, (node, until_us))
        return bool(nodes)

    def _end_hanging(self, token: tuple[Node, int]) -> None:
        node, until_us = token
        if node.disk.meter.hung_until_us == until_us:
            self._site.tell(f"the disk of {node.name} hangs no more")
            node.disk.meter.hung_until_us = 0

    def _end_all_hanging(self) -> None:
        """Restart the machines whose disks hang: a process that waits for one cannot be told that it goes on."""
        for node in (*self._site.brokers.values(), self._site.controller):
            if node.disk.meter.hung_until_us:
                self._site.tell(f"the machine of {node.name} restarts, because its disk hangs")
                node.disk.meter.hung_until_us = 0
                if node.is_up:
                    node.lose_power("all")

    def slow_cpu(self, step: SlowCpu) -> bool:
        """Let each step of the target take longer."""
        processes = self._targets.processes(step.slow_cpu, step)
        self._targets.bind(step, processes)
        for process in processes:
            self._site.tell(f"each step of {process.name} takes {step.by / 1000:g} ms longer")
            process.slow_us = step.by
            self._steps += 1
            self._slow[process.name] = (process, self._steps)
            if step.lasting is not None:
                self._site.world.after(self._actor, step.lasting, self._hurry, (process, self._steps))
        return bool(processes)

    def _hurry(self, token: tuple[Process, int]) -> None:
        process = token[0]
        if self._slow.get(process.name) == token:
            self._site.tell(f"{process.name} is fast again")
            process.slow_us = 0
            del self._slow[process.name]

    def step_clock(self, step: StepClock) -> bool:
        """Set the clocks of the target."""
        processes = self._targets.processes(step.step_clock, step)
        self._targets.bind(step, processes)
        where = "ahead" if step.by > 0 else "back"
        for process in processes:
            self._site.tell(f"the clock of {process.name} is set {where} by {abs(step.by) / 1000:g} ms")
            process.clock.step(step.by)
        return bool(processes)

    def freeze_clock(self, step: FreezeClock) -> bool:
        """Let the clocks of the target stand still."""
        processes = self._targets.processes(step.freeze_clock, step)
        self._targets.bind(step, processes)
        for process in processes:
            self._site.tell(f"the clock of {process.name} stands still")
            process.freeze_clock()
            self._steps += 1
            token = self._frozen[process.name] = (process, self._steps, step.catches_up)
            if step.lasting is not None:
                self._site.world.after(self._actor, step.lasting, self._thaw, token)
        return bool(processes)

    def _thaw(self, token: tuple[Process, int, bool]) -> None:
        process, _, catches_up = token
        if self._frozen.get(process.name) == token:
            how = "and shows the right time" if catches_up else "from where it stood"
            self._site.tell(f"the clock of {process.name} runs again, {how}")
            del self._frozen[process.name]
            process.thaw_clock(catches_up=catches_up)

    def heal_all(self) -> None:
        """Make disks and processors fast again, and let all clocks run; clocks that are wrong stay so."""
        for frozen in list(self._frozen.values()):
            self._thaw(frozen)
        self._end_all_hanging()
        for token in list(self._slow.values()):
            self._hurry(token)
        for node in (*self._site.brokers.values(), self._site.controller):
            if node.name in self._slowed:
                self._speed_up((node, self._slowed[node.name]))
