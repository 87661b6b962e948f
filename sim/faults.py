"""Carries out a scenario's steps on a running cluster, one after the other, and heals everything at the end.

Faults are a plan: a list of steps in order, each at a time or at a condition; whom a target means is looked up when
the step strikes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from sim.disk import PowerLoss
from sim.fault_targets import Site, Targets
from sim.link_faults import LinkFaults
from sim.node import Node
from sim.scenario_steps import (
    BreakDisk,
    Cut,
    Heal,
    Isolate,
    Kill,
    Lose,
    Named,
    PartialWrite,
    Pause,
    Pick,
    Power,
    Restart,
    Slow,
    Step,
    Stop,
)
from sim.scenario_values import Condition, Target
from sim.world import Actor

POLL_US = 20_000  # how often a step looks for a leader that is not known yet


@final
class Faults:
    def __init__(self, site: Site, steps: Sequence[Step]) -> None:
        self._site, self._steps = site, steps
        self._actor = Actor(site.world.draws, "faults")
        self._targets = Targets(site)
        self._links = LinkFaults(site, self._targets, self._actor)
        self._next = 0
        self._waiting: list[Condition] = []  # for the first of these now
        self._waits_since_truncations = 0
        self._last_us = 0
        self._generation = 0  # grows when everything is healed
        self._handlers: dict[type, Callable[..., bool]] = {
            Kill: self._kill,
            Power: self._power,
            Pause: self._pause,
            Stop: self._stop,
            Pick: self._pick,
            Restart: self._restart,
            Cut: self._links.cut,
            Heal: self._links.heal,
            Isolate: self._links.isolate,
            Slow: self._links.slow,
            Lose: self._links.lose,
            PartialWrite: self._partial_write,
            BreakDisk: self._break_disk,
        }

    @property
    def unfired(self) -> list[int]:
        """The steps that never struck, 1 for the first."""
        return list(range(self._next + 1, len(self._steps) + 1))

    def begin(self) -> None:
        self._arm()

    def _arm(self) -> None:
        """Wait for what the next step waits for."""
        if self._next == len(self._steps):
            return
        step, world = self._steps[self._next], self._site.world
        token = (self._next, self._generation)
        if step.when:
            self._wait(list(step.when))
            world.after(self._actor, step.within, self._give_up, token)
            self.look()
            return
        at_us = world.now_us
        if step.at is not None:
            at_us = max(at_us, self._last_us + step.at.us if step.at.is_relative else step.at.us)
        world.after(self._actor, at_us - world.now_us, self._strike, token)

    def _wait(self, conditions: list[Condition]) -> None:
        self._waiting = conditions
        self._waits_since_truncations = self._site.truncations(_name(conditions[0]))

    def look(self) -> None:
        """Something happened: does the condition that a step waits for hold now?"""
        waiting = self._waiting
        while waiting and waiting[0].holds(self._value(waiting[0])):
            if len(waiting) > 1:
                self._wait(waiting := waiting[1:])
            else:
                self._waiting = waiting = []
                self._site.world.after(self._actor, 0, self._strike, (self._next, self._generation))

    def _value(self, condition: Condition) -> int:
        name = _name(condition)
        match condition.fact:
            case "after-ack":
                return self._site.history.acknowledged.get(name, 0)
            case "isr":
                return len(self._site.ghost.partition(name).isr)
            case "truncated":
                return self._site.truncations(name) - self._waits_since_truncations
            case _:
                return int(self._site.ghost.partition(name).leader >= 0)

    def _give_up(self, token: tuple[int, int]) -> None:
        if token == (self._next, self._generation) and self._waiting:
            self._site.tell(f"step {self._next + 1} gave up waiting for {self._waiting[0].text}")
            self._waiting = []

    def _strike(self, token: tuple[int, int]) -> None:
        index, generation = token
        if (index, generation) != (self._next, self._generation):
            return
        step = self._steps[index]
        if self._handlers[type(step)](step):
            self._next, self._last_us = index + 1, self._site.world.now_us
            self._arm()
        else:  # nobody there yet whom it could strike
            self._site.world.after(self._actor, POLL_US, self._strike, (index, generation))

    # processes

    def _each(self, step: Named, target: Target, verb: str, strike: Callable[[Node], None]) -> bool:
        """False when there is nobody yet. A node that is down already is passed over."""
        nodes = self._targets.nodes(target, step)
        if not nodes:
            return False
        self._targets.bind(step, nodes)
        for node in nodes:
            label = (
                node.name
                if target.kind in ("broker", "controller", "all")
                else f"{node.name}, the {target.text}"
            )
            if node.is_up:
                self._site.tell(f"{verb} {label}")
                strike(node)
            else:
                self._site.tell(f"{verb} {label}: it is down already")
        return True

    def _start_after(self, node: Node, down_us: int | None) -> None:
        if down_us is not None:
            token = (node, node.starts, self._generation)
            self._site.world.after(node.actor, down_us, self._start_again, token)

    def _start_again(self, token: tuple[Node, int, int]) -> None:
        node, starts, generation = token
        if generation == self._generation and node.starts == starts and not node.is_up:
            self._site.tell(f"start {node.name} again")
            node.start()

    def _kill(self, step: Kill) -> bool:
        def strike(node: Node) -> None:
            node.crash()
            self._start_after(node, step.down)

        if step.point is None:
            return self._each(step, step.kill, "kill", strike)
        side, kind = step.point.split()

        def arm(node: Node) -> None:
            node.crash_point = (
                side,
                kind,
                lambda: self._struck(node, f"kill {node.name} {step.point}", strike),
            )

        return self._each(step, step.kill, f"will kill, {step.point},", arm)

    def _struck(self, node: Node, what: str, strike: Callable[[Node], None]) -> None:
        self._site.tell(what)
        strike(node)

    def _power(self, step: Power) -> bool:
        def strike(node: Node) -> None:
            node.lose_power(step.keep)
            self._start_after(node, step.down)

        return self._each(step, step.power, f"power loss (keep {step.keep}) at", strike)

    def _pause(self, step: Pause) -> bool:
        def strike(node: Node) -> None:
            node.pause()
            self._site.world.after(node.actor, step.lasting, self._resume, (node, node.starts))

        return self._each(step, step.pause, "pause", strike)

    def _resume(self, token: tuple[Node, int]) -> None:
        node, starts = token
        if node.starts == starts and node.is_up and node.paused:
            self._site.tell(f"{node.name} goes on")
            node.resume()

    def _stop(self, step: Stop) -> bool:
        def strike(node: Node) -> None:
            node.when_stopped = lambda: self._start_after(node, step.down)
            node.stop()

        return self._each(step, step.stop, "stop, in order,", strike)

    def _pick(self, step: Pick) -> bool:
        nodes = self._targets.nodes(step.pick, step)
        if nodes:
            self._targets.bind(step, nodes)
            self._site.tell(f"{step.name} is {', '.join(node.name for node in nodes)}, {step.pick.text}")
        return bool(nodes)

    def _restart(self, step: Restart) -> bool:
        for node in self._targets.nodes(step.restart, step):
            if not node.is_up:
                self._site.tell(f"start {node.name} again")
                node.start()
        return True

    def _partial_write(self, step: PartialWrite) -> bool:
        name = "-".join(step.log.rsplit("/", 1))

        def die(node: Node) -> None:
            keep: PowerLoss | None = step.keep
            if keep is None:
                node.crash()
            else:
                node.lose_power(keep)
            self._start_after(node, step.down)

        def arm(node: Node) -> None:
            what = f"{node.name} writes {step.byte} bytes of its next batch of {name} and dies"
            if step.keep is not None:
                what += f" of a power loss (keep {step.keep})"
            node.arm_partial_write(name, step.byte, lambda: self._struck(node, what, die))

        return self._each(step, step.partial_write, "a partial write waits for", arm)

    def _break_disk(self, step: BreakDisk) -> bool:
        def strike(node: Node) -> None:
            node.disk.break_directory(node.directories[step.directory - 1])

        return self._each(step, step.break_disk, f"log directory {step.directory} breaks at", strike)

    def heal_all(self) -> None:
        """The end of all faults: links whole, pauses over, armed faults off, every node up."""
        self._generation += 1
        self._waiting = []
        self._links.heal_all()
        for node in (self._site.controller, *self._site.brokers.values()):
            node.disarm()
            if node.disk.is_broken:
                node.disk.mend()
                if node.is_up and not node.is_stopping:
                    node.stop()  # and start again, below
            if not node.is_up:
                self._site.tell(f"start {node.name} again")
                node.start()
                continue
            if node.is_stopping:
                self._start_once_stopped(node)
            if node.paused:
                node.resume()

    def _start_once_stopped(self, node: Node) -> None:
        node.when_stopped = lambda: self._start_after(node, 0)


def _name(condition: Condition) -> str:
    return f"{condition.topic}-{condition.partition}"
