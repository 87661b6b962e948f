"""Carries out single steps on processes and links. Each verb returns False while its target does not exist yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, final

from replog.real.links import Link
from replog.real.processes import Process
from replog.real.site import Site, Targets
from sim.faults.rolling import InSync
from sim.faults.topics import TopicFaults
from sim.scenario.base import Named, Step
from sim.scenario.link_steps import Clog, HangUp, Narrow, RollingRestart
from sim.scenario.steps import (
    AlterTopic,
    CreateTopic,
    Cut,
    DeleteTopic,
    Heal,
    Isolate,
    Kill,
    Lose,
    Pause,
    Pick,
    Restart,
    Slow,
    Stop,
)
from sim.scenario.values import LinkPair, Target

# The interval at which a broker that was restarted is looked at.
LOOK_S = 0.1


@final
class Later:
    """What steps have planned for later, such as a start. After `cancel` none of it happens."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and self._failure is None:
            self._failure = task.exception()

    async def until_done(self) -> None:
        """Wait until all of it has happened. Raises what the first of it that failed has raised."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))
        if self._failure is not None:
            raise self._failure

    async def cancel(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@final
class LinkFaults:
    """Cuts, slows and narrows links; a fault with `for` ends by itself, unless a heal comes first."""

    def __init__(self, site: Site, targets: Targets, later: Later) -> None:
        self._site, self._targets, self._later = site, targets, later

    def _for_a_while(
        self, links: Sequence[Link], lasting: int | None, what: str, end: Callable[[Link], None]
    ) -> None:
        if lasting is not None:
            marks = [(link, link.generation) for link in links]
            self._later.do(self._end(marks, lasting, what, end))

    async def _end(
        self, marks: Sequence[tuple[Link, int]], lasting: int, what: str, end: Callable[[Link], None]
    ) -> None:
        await asyncio.sleep(lasting / 1e6)
        left = [link for link, generation in marks if link.generation == generation]
        if left:
            self._site.tell(what)
            for link in left:
                end(link)

    def _hold(self, links: Sequence[Link], lasting: int | None, verbs: tuple[str, str], what: str) -> bool:
        if links:
            self._site.tell(f"{verbs[0]} {what}")
            for link in links:
                link.hold()
            self._for_a_while(links, lasting, f"{verbs[1]} {what}", Link.release)
        return bool(links)

    def cut(self, step: Cut) -> bool:
        return self._hold(self._targets.links(step.cut, step), step.lasting, ("cut", "heal"), step.cut.text)

    def clog(self, step: Clog) -> bool:
        links = self._targets.links(step.clog, step)
        return self._hold(links, step.lasting, ("clog", "unclog"), step.clog.text)

    def isolate(self, step: Isolate) -> bool:
        """Cut the links between the target and everyone else, except those in `except`."""
        names = self._targets.processes(step.isolate, step)
        if not names:
            return False
        spared = self._targets.sides(step.sparing, step) if step.sparing is not None else []
        self._targets.bind(step, names)
        others = [name for name in self._targets.everyone() if name not in (*names, *spared)]
        what = f"{', '.join(names)} <-> everyone"
        if step.sparing is not None:
            what += f" but {step.sparing.text}"
        links = self._site.links.between(names, others, both_ways=True)
        return self._hold(links, step.lasting, ("cut", "heal"), what)

    def slow(self, step: Slow) -> bool:
        """Set the delay of the links."""

        def end(link: Link) -> None:
            link.extra_us = 0

        links, text = self._targets.links(step.slow, step), step.slow.text
        for link in links:
            link.extra_us = step.by
        if links:
            self._site.tell(f"slow {text} by {step.by / 1000:g} ms")
            self._for_a_while(links, step.lasting, f"{text} is fast again", end)
        return bool(links)

    def lose(self, step: Lose) -> bool:
        """Let the links lose a share of what they carry; TCP sends it again."""

        def end(link: Link) -> None:
            link.loss_percent = 0

        links, text = self._targets.links(step.lose, step), step.lose.text
        for link in links:
            link.loss_percent = step.share
        if links:
            self._site.tell(f"lose {step.share}% on {text}")
            self._for_a_while(links, step.lasting, f"{text} loses nothing any more", end)
        return bool(links)

    def narrow(self, step: Narrow) -> bool:
        """Set what the links carry in a second."""

        def end(link: Link) -> None:
            link.bytes_per_s = 0

        assert step.to > 0, step.to
        links, text = self._targets.links(step.narrow, step), step.narrow.text
        for link in links:
            link.bytes_per_s = step.to
        if links:
            self._site.tell(f"{text} carries {step.to} bytes a second")
            self._for_a_while(links, step.lasting, f"{text} is wide again", end)
        return bool(links)

    def hang_up(self, step: HangUp) -> bool:
        """Break the connections of the links at the side of their source only."""
        links = self._targets.links(step.hang_up, step)
        if links:
            self._site.tell(f"hang up {step.hang_up.text}, without a word")
        for link in links:
            for proxy in self._site.proxies:
                if {link.source, link.target} == {proxy.forth.source, proxy.forth.target}:
                    proxy.hang_up(link.source)
        return bool(links)

    def heal(self, step: Heal) -> bool:
        """End all faults of one link, or of all links of a target; never fails to strike."""
        target = step.heal
        if isinstance(target, LinkPair):
            links = self._targets.links(target, step)
        else:
            sides = self._targets.sides(target, step)
            links = [each for each in self._site.links.all() if {each.source, each.target} & set(sides)]
        self._site.tell(f"heal {target.text}")
        for link in links:
            link.heal()
        return True


@final
class ProcessFaults:
    """Kills, stops and suspends processes, and starts again what a step limits the time down of."""

    def __init__(self, site: Site, targets: Targets, later: Later) -> None:
        self._site, self._targets, self._later = site, targets, later

    def _strike(self, step: Named, target: Target, verb: str, strike: Callable[[str], None]) -> bool:
        """Strike every process that `target` means now and that is up. Returns False while it means none."""
        names = self._targets.processes(target, step)
        if names:
            self._targets.bind(step, names)
        is_plain = target.kind in ("broker", "controller", "all", "producer", "consumer")
        for name in names:
            label = name if is_plain else f"{name}, the {target.text}"
            if self._site.process(name).is_up:
                self._site.tell(f"{verb} {label}")
                strike(name)
            else:
                self._site.tell(f"{verb} {label}: it is down already")
                self._site.misses.missed(f"{step.verb} {label}: it was down already")
        return bool(names)

    def kill(self, step: Kill) -> bool:
        """Send SIGKILL."""

        def strike(name: str) -> None:
            self._site.process(name).kill()
            self._start_after(name, step.down)

        return self._strike(step, step.kill, "kill", strike)

    def stop(self, step: Stop) -> bool:
        """Send SIGTERM: the process ends in order."""

        def strike(name: str) -> None:
            self._site.process(name).stop()
            self._start_after(name, step.down)

        return self._strike(step, step.stop, "stop, in order,", strike)

    def pause(self, step: Pause) -> bool:
        """Send SIGSTOP, and SIGCONT when the time is over, unless the process was killed meanwhile."""

        def strike(name: str) -> None:
            self._site.process(name).pause()
            self._later.do(self._resume(name, step.lasting))

        return self._strike(step, step.pause, "pause", strike)

    def pick(self, step: Pick) -> bool:
        """Give the target's processes a name for later steps, and break nothing."""
        names = self._targets.processes(step.pick, step)
        if names:
            self._targets.bind(step, names)
            self._site.tell(f"{step.name} is {', '.join(names)}, {step.pick.text}")
        return bool(names)

    def restart(self, step: Restart) -> bool:
        """Start the target's processes that are down; always strikes."""
        for name in self._targets.processes(step.restart, step):
            process = self._site.process(name)
            if not process.is_up:
                self._later.do(self._start(name, process.starts))
        return True

    def rolling_restart(self, step: RollingRestart) -> bool:
        """Send SIGTERM to one broker after the other, each once the one before is in sync again."""
        names = self._targets.processes(step.rolling_restart, step)
        self._targets.bind(step, names)
        if names:
            self._site.tell(f"restart one after the other: {', '.join(names)}")
            self._later.do(self._restart_each(step, names))
        return bool(names)

    async def _restart_each(self, step: RollingRestart, names: Sequence[str]) -> None:
        for name in names:
            process = self._site.process(name)
            before = InSync(self._site.ghost, self._site.topics, int(name.removeprefix("broker-")))
            starts = process.starts + process.is_up
            if process.is_up:
                self._site.tell(f"stop, in order, {name}")
                process.stop()
                self._start_after(name, step.down)
            until_s = asyncio.get_running_loop().time() + step.patience / 1e6
            if not await self._is_back(process, starts, before, until_s):
                self._site.tell(f"{name} is not in sync again after {step.patience / 1e6:g} s")
        self._site.tell("no broker is left to restart")

    async def _is_back(self, process: Process, starts: int, before: InSync, until_s: float) -> bool:
        """Wait for a broker's start of that number, until it is in sync again. Returns False if it is not in time."""
        while asyncio.get_running_loop().time() < until_s:
            if process.is_up and process.starts >= starts and before.is_back():
                return True
            await asyncio.sleep(LOOK_S)
        return False

    def _start_after(self, name: str, down_us: int | None) -> None:
        if down_us is not None:
            self._later.do(self._start_again(name, down_us))

    async def _start_again(self, name: str, down_us: int) -> None:
        """Start the process that ends now, `down_us` after its end, unless it runs by then."""
        process = self._site.process(name)
        starts = process.starts
        await process.until_ended()
        await asyncio.sleep(down_us / 1e6)
        await self._start(name, starts)

    async def _start(self, name: str, starts: int) -> None:
        """Start a process that has ended, or was killed, unless it has had more lives than `starts` by now."""
        if await self._site.process(name).start(after=starts):
            self._site.tell(f"start {name} again")

    async def _resume(self, name: str, lasting: int) -> None:
        process = self._site.process(name)
        starts = process.starts
        await asyncio.sleep(lasting / 1e6)
        if process.starts == starts and process.is_up and process.paused:
            self.resume(name)

    def resume(self, name: str) -> None:
        """Let a suspended process go on."""
        self._site.tell(f"{name} goes on")
        paused_us = self._site.process(name).resume()
        if name in self._site.clients:
            self._site.clients[name].on_resumed(paused_us)

    async def heal_all(self) -> list[str]:
        """End every pause, and start every process that is down.

        Returns the names of those that were asked to end and had to be killed.
        """
        killed: list[str] = []
        for name in (*self._site.nodes, *self._site.clients):
            process = self._site.process(name)
            if process.is_up and process.paused:
                self.resume(name)
            if process.is_up and process.is_asked and not await process.end():
                killed.append(name)
            if not process.is_up and process.starts:
                await self._start(name, process.starts)
        return killed


Handlers = dict[type[Step], Callable[[Any], bool]]


def handlers_of(site: Site, targets: Targets, links: LinkFaults, processes: ProcessFaults) -> Handlers:
    """Returns the method that carries out each step that processes can suffer, by its class."""
    topics = TopicFaults(site.topics, site.tell, site.admin.ask, lambda step: leader_of(targets, step))
    return {
        Kill: processes.kill, Stop: processes.stop, Pause: processes.pause, Pick: processes.pick,
        Restart: processes.restart, RollingRestart: processes.rolling_restart,
        Cut: links.cut, Clog: links.clog, Isolate: links.isolate,
        Slow: links.slow, Lose: links.lose, Narrow: links.narrow, HangUp: links.hang_up, Heal: links.heal,
        CreateTopic: topics.create, DeleteTopic: topics.delete, AlterTopic: topics.alter,
    }  # fmt: skip


def leader_of(targets: Targets, step: CreateTopic) -> int | None:
    """Returns the broker that shall lead the new topic, None while there is none."""
    names = targets.processes(step.leader, step) if step.leader is not None else []
    return int(names[0].removeprefix("broker-")) if names else None
