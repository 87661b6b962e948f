"""Faults of nodes. Each verb returns False while there is no node yet that it could strike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, final

from sim.disk import PowerLoss
from sim.disk.faults import MUTATING, RENAMES, Applied, Trigger
from sim.faults.targets import Process, Site, Targets
from sim.hosts.node import Node
from sim.scenario.base import Named
from sim.scenario.link_steps import KillStart
from sim.scenario.steps import BreakDisk, Kill, KillInside, PartialWrite, Pause, Pick, Power, Restart, Stop
from sim.scenario.values import Target
from storage.disk.filesystem import dirname

# Why a broker comes back with nothing.
WIPED: Final = "a disk was replaced by an empty one"
# What stands in a file in place of bytes that a power loss kept from it.
_RESTS: Final = {"missing": b"", "zeros": b"\x00", "garbage": b"\xa5\x5a\x3c\x01\xc3\x7f\x02"}

Struck = TypeVar("Struck", Node, Process)


@final
class NodeFaults:
    """Kills, stops and pauses nodes and clients, breaks disks, and starts again what a step limits the time down of."""

    def __init__(self, site: Site, targets: Targets) -> None:
        self._site, self._targets = site, targets
        # Grows when everything is healed: a restart that was planned before must not happen then.
        self._generation = 0

    @property
    def is_striking(self) -> bool:
        """Whether faults still strike: everything is healed once, at the end."""
        return self._generation == 0

    def each(self, step: Named, target: Target, verb: str, strike: Callable[[Node], None]) -> bool:
        """Strike every node that `target` means now and that is up. Returns False while it means no node."""
        return self._strike(step, target, verb, self._targets.nodes(target, step), strike)

    def _each_process(
        self, step: Named, target: Target, verb: str, strike: Callable[[Process], None]
    ) -> bool:
        """Do the same to nodes and clients."""
        return self._strike(step, target, verb, self._targets.processes(target, step), strike)

    def _strike(
        self,
        step: Named,
        target: Target,
        verb: str,
        nodes: Sequence[Struck],
        strike: Callable[[Struck], None],
    ) -> bool:
        if not nodes:
            return False
        self._targets.bind(step, nodes)
        for node in nodes:
            label = (
                node.name
                if target.kind in ("broker", "controller", "all", "producer", "consumer")
                else f"{node.name}, the {target.text}"
            )
            if node.is_up:
                self._site.tell(f"{verb} {label}")
                strike(node)
            else:
                self._site.tell(f"{verb} {label}: it is down already")
                self._site.misses.missed(f"{step.verb} {label}: it was down already")
        return True

    def start_after(self, node: Process, down_us: int | None) -> None:
        """Start the node that is down in `down_us`, unless it runs by then; None: not before everything is healed."""
        if down_us is not None:
            token = (node, node.starts, self._generation)
            self._site.world.after(node.actor, down_us, self._start_again, token)

    def _start_again(self, token: tuple[Process, int, int]) -> None:
        node, starts, generation = token
        if generation == self._generation and node.starts == starts and not node.is_up:
            self._site.tell(f"start {node.name} again")
            node.start()
            if isinstance(node, Node) and not self.is_striking:
                self._replace_unusable(node)

    def kill(self, step: Kill) -> bool:
        """Kill the process now, or arm its death before or after a job of a kind."""

        def strike(node: Process) -> None:
            node.crash()
            self.start_after(node, step.down)

        if step.point is None:
            return self._each_process(step, step.kill, "kill", strike)
        side, kind = step.point.split()

        def arm(node: Node) -> None:
            what = f"kill {node.name} {step.point}"
            number = self._site.misses.wait(what)
            node.arm_crash_point(side, kind, lambda: self._struck(number, node, what, strike))

        return self.each(step, step.kill, f"will kill, {step.point},", arm)

    def _struck(self, number: int, node: Node, what: str, strike: Callable[[Node], None]) -> None:
        self._site.misses.struck(number)
        self._site.tell(what)
        strike(node)

    def _die(self, node: Node, keep: PowerLoss | None, down_us: int | None) -> None:
        """End the process, or with `keep` its machine's power, and start it again `down_us` later."""
        if keep is None:
            node.crash()
        else:
            node.lose_power(keep)
        self.start_after(node, down_us)

    def kill_start(self, step: KillStart) -> bool:
        """Kill the process now, and its next one inside its start."""

        def strike(node: Node) -> None:
            node.crash()
            token = (node, node.starts, self._generation)
            node.start_ends_in = step.change
            self._site.world.after(node.actor, step.down, self._start_badly, (token, step.down))

        return self.each(step, step.kill_start, "kill, now and in the next start,", strike)

    def _start_badly(self, token: tuple[tuple[Node, int, int], int]) -> None:
        """Start a node whose start is to end in the middle, and start it once more later."""
        (node, starts, generation), down_us = token
        self._start_again((node, starts, generation))
        if node.start_ends_in and generation == self._generation and node.starts == starts + 1:
            node.start_ends_in = 0
            how = "ends inside its start" if not node.is_up else "has started before its end came"
            self._site.tell(f"{node.name} {how}")
            self.start_after(node, down_us)

    def kill_inside(self, step: KillInside) -> bool:
        """Arm the death of the process, or of its machine's power, inside a change on its disk."""
        name = "-".join(step.log.rsplit("/", 1)) if step.log is not None else ""

        def die(node: Node) -> None:
            self._die(node, step.keep, step.down)

        def arm(node: Node) -> None:
            directory = node.log_path(name) if name else ""
            if name and not directory:
                self._site.misses.missed(f"kill_inside {node.name}: it has no log of {name}")
                return
            what = _death_of(step, node.name)
            number = self._site.misses.wait(what)
            death = Trigger(
                countdown=step.change,
                verbs=RENAMES if step.renames else MUTATING,
                path_prefix=f"{directory}/" if directory else "",
                path_suffix=step.suffix or "",
                applied=Applied.DRAWN,
            )
            node.arm_death(death, step.job, lambda: self._struck(number, node, what, die))

        return self.each(step, step.kill_inside, "a death inside a change on the disk waits for", arm)

    def power(self, step: Power) -> bool:
        """Cut the power of the machine."""

        def strike(node: Node) -> None:
            node.lose_power(step.keep)
            self.start_after(node, step.down)

        return self.each(step, step.power, f"power loss (keep {step.keep}) at", strike)

    def pause(self, step: Pause) -> bool:
        """Pause the process for a while; it does not resume if it was killed meanwhile."""

        def strike(node: Process) -> None:
            node.pause()
            self._site.world.after(node.actor, step.lasting, self._resume, (node, node.starts))

        return self._each_process(step, step.pause, "pause", strike)

    def _resume(self, token: tuple[Process, int]) -> None:
        node, starts = token
        if node.starts == starts and node.is_up and node.paused:
            self._site.tell(f"{node.name} goes on")
            node.resume()

    def stop(self, step: Stop) -> bool:
        def strike(node: Process) -> None:
            node.stop(then=lambda: self.start_after(node, step.down))

        return self._each_process(step, step.stop, "stop, in order,", strike)

    def pick(self, step: Pick) -> bool:
        """Give the target's nodes a name for later steps, and break nothing."""
        nodes = self._targets.processes(step.pick, step)
        if nodes:
            self._targets.bind(step, nodes)
            found = ", ".join(node.name for node in nodes)
            # A step without a name waits for its target, and tells when there is one.
            self._site.tell(
                f"{step.pick.text} is {found}"
                if step.name is None
                else f"{step.name} is {found}, {step.pick.text}"
            )
        return bool(nodes)

    def restart(self, step: Restart) -> bool:
        """Start the target's nodes that are down; always strikes."""
        for node in self._targets.processes(step.restart, step):
            if not node.is_up and node.starts:
                self._site.tell(f"start {node.name} again")
                node.start()
        return True

    def partial_write(self, step: PartialWrite) -> bool:
        """Arm a write that stores only part of the next batch of a log, and then ends the node."""
        name = "-".join(step.log.rsplit("/", 1))

        def die(node: Node) -> None:
            self._die(node, step.keep, step.down)

        def arm(node: Node) -> None:
            what = f"{node.name} writes {step.byte} bytes of its next batch of {name} and dies"
            if step.keep is not None:
                what += f" of a power loss (keep {step.keep})"
            if step.rest != "missing":
                what += f"; in place of the others there are {step.rest}"
            if node.has_log(name):
                number = self._site.misses.wait(what)
                node.arm_partial_write(
                    name, step.byte, lambda: self._struck(number, node, what, die), _RESTS[step.rest]
                )
            else:
                self._site.tell(f"{node.name} has no log of {name} to write to")
                self._site.misses.missed(f"partial_write {node.name}: it has no log of {name}")

        return self.each(step, step.partial_write, "a partial write waits for", arm)

    def break_disk(self, step: BreakDisk) -> bool:
        """Break a log directory: that of the step's number, or the one that holds the log of its partition."""
        name = "-".join(step.log.rsplit("/", 1)) if step.log is not None else ""

        def strike(node: Node) -> None:
            path = dirname(node.log_path(name)) if name else node.directories[step.directory - 1]
            if path in node.directories:
                node.disk.break_directory(path)
            else:
                self._site.misses.missed(f"break_disk {node.name}: it has no log of {name}")

        which = f"the log directory of {name}" if name else f"log directory {step.directory}"
        if step.job is None:
            return self.each(step, step.break_disk, f"{which} breaks at", strike)
        kind = step.job

        def arm(node: Node) -> None:
            what = f"{which} breaks at {node.name} before its next job: {kind}"
            number = self._site.misses.wait(what)
            node.arm_crash_point("before", kind, lambda: self._struck(number, node, what, strike))

        return self.each(step, step.break_disk, f"{which} will break, before {kind}, at", arm)

    def heal_all(self) -> None:
        """End all faults: disarm armed ones, mend disks, end pauses, and start every node that is down."""
        self._generation += 1
        for node in (self._site.controller, *self._site.brokers.values()):
            assert (node.life_number % 2 == 1) == node.is_up, (node.name, node.life_number)
            node.disarm()
            node.start_ends_in = 0
            if node.disk.is_broken or node.disk.has_refused or node.disk.has_lost_writes:
                self._mend_disk(node)
            assert not node.disk.has_faults, node.name
            self._bring_back(node)
            self._replace_unusable(node)
        for client in self._site.clients:
            # One whose topics are not there yet has not begun.
            if client.starts:
                self._bring_back(client)

    def _replace_unusable(self, node: Node) -> None:
        """Start a node with an empty disk if it is down because its damaged one does not let it start."""
        if not node.is_up and node.is_damaged:
            self._site.tell(
                f"{node.name} cannot start from its damaged disk, which is replaced by an empty one"
            )
            node.change_disk(node.disk.wipe, WIPED)
            self._bring_back(node)

    def begin_again(self, node: Node, *, keeps_cache: bool = False) -> None:
        """Start a node again of which calls on the disk failed, after an orderly stop if it runs still.

        If a sync had failed, its machine restarts too, unless its page cache is to be kept.
        """
        if not keeps_cache:
            self._mend_disk(node)
        elif node.is_up and not node.is_stopping:
            node.stop()
        self._bring_back(node)

    def _mend_disk(self, node: Node) -> None:
        """Mend the directories that broke. They are used again only after the next start."""
        node.disk.mend()
        if node.disk.has_lost_writes:
            # Without this the next process would take what its disk lacks for written, and no sync could make it so.
            self._site.tell(f"the machine of {node.name} restarts, because a sync had failed")
            if node.is_up:
                node.lose_power("all")
            else:
                node.lose_page_cache()
        elif node.is_up and not node.is_stopping:
            node.stop()

    def _bring_back(self, node: Process) -> None:
        if not node.is_up:
            self._site.tell(f"start {node.name} again")
            node.start()
            return
        if node.is_stopping:
            self._start_once_stopped(node)
        if node.paused:
            node.resume()

    def _start_once_stopped(self, node: Process) -> None:
        node.stop(then=lambda: self.start_after(node, 0))


def _death_of(step: KillInside, name: str) -> str:
    """Returns the words for the death of a node."""
    end = "dies" if step.keep is None else f"loses power (keep {step.keep})"
    change = "rename" if step.renames else "change"
    change += f" of a file *{step.suffix}" if step.suffix is not None else ""
    of = f" of a job {step.job!r}" if step.job is not None else ""
    where = "on its disk" if step.log is None else f"in its log of {step.log}"
    return f"{name} {end} inside a {change}{of} {where}"
