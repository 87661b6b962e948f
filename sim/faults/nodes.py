"""Faults of nodes. Each verb returns False while there is no node yet that it could strike."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from sim.disk import PowerLoss
from sim.faults.targets import Site, Targets
from sim.hosts.node import Node
from sim.scenario.steps import BreakDisk, Kill, Named, PartialWrite, Pause, Pick, Power, Restart, Stop
from sim.scenario.values import Target


@final
class NodeFaults:
    """Kills, stops and pauses nodes, breaks their disks, and starts a node again whose step limits its time down."""

    def __init__(self, site: Site, targets: Targets) -> None:
        self._site, self._targets = site, targets
        # Grows when everything is healed: a restart that was planned before must not happen then.
        self._generation = 0

    def _each(self, step: Named, target: Target, verb: str, strike: Callable[[Node], None]) -> bool:
        """Strike every node that `target` means now and that is up. Returns False while it means no node."""
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
                self._site.misses.missed(f"{step.verb} {label}: it was down already")
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

    def kill(self, step: Kill) -> bool:
        """Kill the process now, or arm its death before or after a job of a kind."""

        def strike(node: Node) -> None:
            node.crash()
            self._start_after(node, step.down)

        if step.point is None:
            return self._each(step, step.kill, "kill", strike)
        side, kind = step.point.split()

        def arm(node: Node) -> None:
            what = f"kill {node.name} {step.point}"
            number = self._site.misses.wait(what)
            node.arm_crash_point(side, kind, lambda: self._struck(number, node, what, strike))

        return self._each(step, step.kill, f"will kill, {step.point},", arm)

    def _struck(self, number: int, node: Node, what: str, strike: Callable[[Node], None]) -> None:
        self._site.misses.struck(number)
        self._site.tell(what)
        strike(node)

    def power(self, step: Power) -> bool:
        """Cut the power of the machine."""

        def strike(node: Node) -> None:
            node.lose_power(step.keep)
            self._start_after(node, step.down)

        return self._each(step, step.power, f"power loss (keep {step.keep}) at", strike)

    def pause(self, step: Pause) -> bool:
        """Pause the process for a while; it does not resume if it was killed meanwhile."""

        def strike(node: Node) -> None:
            node.pause()
            self._site.world.after(node.actor, step.lasting, self._resume, (node, node.starts))

        return self._each(step, step.pause, "pause", strike)

    def _resume(self, token: tuple[Node, int]) -> None:
        node, starts = token
        if node.starts == starts and node.is_up and node.paused:
            self._site.tell(f"{node.name} goes on")
            node.resume()

    def stop(self, step: Stop) -> bool:
        def strike(node: Node) -> None:
            node.stop(then=lambda: self._start_after(node, step.down))

        return self._each(step, step.stop, "stop, in order,", strike)

    def pick(self, step: Pick) -> bool:
        """Give the target's nodes a name for later steps, and break nothing."""
        nodes = self._targets.nodes(step.pick, step)
        if nodes:
            self._targets.bind(step, nodes)
            self._site.tell(f"{step.name} is {', '.join(node.name for node in nodes)}, {step.pick.text}")
        return bool(nodes)

    def restart(self, step: Restart) -> bool:
        """Start the target's nodes that are down; always strikes."""
        for node in self._targets.nodes(step.restart, step):
            if not node.is_up:
                self._site.tell(f"start {node.name} again")
                node.start()
        return True

    def partial_write(self, step: PartialWrite) -> bool:
        """Arm a write that stores only part of the next batch of a log, and then ends the node."""
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
            if node.has_log(name):
                number = self._site.misses.wait(what)
                node.arm_partial_write(name, step.byte, lambda: self._struck(number, node, what, die))
            else:
                self._site.tell(f"{node.name} has no log of {name} to write to")
                self._site.misses.missed(f"partial_write {node.name}: it has no log of {name}")

        return self._each(step, step.partial_write, "a partial write waits for", arm)

    def break_disk(self, step: BreakDisk) -> bool:
        def strike(node: Node) -> None:
            node.disk.break_directory(node.directories[step.directory - 1])

        return self._each(step, step.break_disk, f"log directory {step.directory} breaks at", strike)

    def heal_all(self) -> None:
        """End all faults: disarm armed ones, mend disks, end pauses, and start every node that is down."""
        self._generation += 1
        for node in (self._site.controller, *self._site.brokers.values()):
            assert (node.life_number % 2 == 1) == node.is_up, (node.name, node.life_number)
            node.disarm()
            if node.disk.is_broken:
                node.disk.mend()
                # A directory that broke is used again only after the next start.
                if node.is_up and not node.is_stopping:
                    node.stop()
            assert not node.disk.has_faults, node.name
            if not node.is_up:
                self._site.tell(f"start {node.name} again")
                node.start()
                continue
            if node.is_stopping:
                self._start_once_stopped(node)
            if node.paused:
                node.resume()

    def _start_once_stopped(self, node: Node) -> None:
        node.stop(then=lambda: self._start_after(node, 0))
