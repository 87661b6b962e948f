"""Runs one scenario against real processes, in real time, to the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from cluster.core.messages import TopicPartition
from replog.real.admin import RunAdmin
from replog.real.clients import Producer
from replog.real.ground import Ground, NotStarted
from replog.real.judge import DiskJudge
from replog.real.plan import Plan
from replog.real.ports import lasting_ports
from replog.real.processes import Process
from replog.real.rest import Places, Rest
from replog.real.result import RealResult
from replog.real.site import Site, broker_name
from replog.real.steps import what_differs, why_skipped
from replog.real.telling import RunClock, Teller
from replog.real.watch import Watch, partitions_of
from sim.checkers.history import LEADER_ALONE, RETENTION
from sim.faults.misses import Misses
from sim.faults.topics import create_request
from sim.hosts.history import History
from sim.judgement import starvation, verdict_on
from sim.outages import Outages
from sim.scenario.model import Scenario
from storage.draws import Draws

# The intervals of the looks at what the nodes have written, and at what each topic lacks.
WATCH_S = 0.02
OUTAGE_S = 0.1
# How long the topics of a run may have no leaders.
TOPICS_TIMEOUT_S = 60.0
# How long a short run goes on after all that its steps have planned.
AFTERWARDS_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The cluster of a run, as `Outages` sees it."""

    scenario: Scenario
    world: RunClock
    partitions: list[TopicPartition]
    brokers: dict[int, Process]
    producers: list[Producer]


@final
class RealRun:
    """The course of one run: nodes and clients start, steps strike, everything is healed, the end is judged."""

    def __init__(
        self, scenario: Scenario, seed: int, data: Path, on_line: Callable[[str], None],
        before_judgement: Callable[[Path], None] | None = None,
        choose_ports: Callable[[int], Sequence[int]] = lasting_ports, is_short: bool = False,
    ) -> None:  # fmt: skip
        """`data` is an empty directory, which gets all that nodes and clients write; `on_line` gets the story.

        `before_judgement` is called with `data` when every process has ended. `choose_ports` returns as many ports as
        it is asked for, the controller's first. A run that `is_short` heals everything soon after its last step, and
        not only when the time of the scenario is over.
        """
        self._before_judgement, self._is_short = before_judgement, is_short
        self._scenario, self._seed, self._data = scenario, seed, data
        self._clock, self._history, self._misses = RunClock(), History(), Misses()
        self._teller = Teller(self._clock, on_line)
        self._partitions = partitions_of(scenario)
        self._watch = Watch(
            scenario, data, self._history, self._now_us, note=self._teller.note,
            on_violation=lambda found: self._teller.tell(f"VIOLATED {found.checker}: {found.what}"),
        )  # fmt: skip
        self._ground = Ground(
            scenario, seed, data, self._history, self._watch, self._now_us, choose_ports
        )  # fmt: skip
        self._places: Places = {}

    def _now_us(self) -> int:
        return self._clock.now_us

    async def go(self, again: str) -> RealResult:
        """Run to the verdict; `again` is the command for another run. No process is left, whatever happens.

        Raises NotStarted, and OSError if the machine has no room for processes, files or connections.
        """
        watching: asyncio.Task[None] | None = None
        try:
            await self._ground.start_nodes()
            watching = asyncio.get_running_loop().create_task(self._keep_watching())
            async with RunAdmin(self._ground.broker_ports) as admin:
                plan, outages = await self._live(admin, watching)
            if watching.done():
                # It never returns: what it raised is why nothing was seen any more.
                watching.result()
            watching.cancel()
            killed = await self._ground.end()
            for name in killed:
                self._report_killed(name)
        finally:
            if watching is not None:
                watching.cancel()
            await self._ground.end_at_once()
        if self._before_judgement is not None:
            self._before_judgement(self._data)
        return self._judge(plan, outages, again)

    async def _keep_watching(self) -> None:
        while True:
            self._watch.look()
            await asyncio.sleep(WATCH_S)

    async def _live(self, admin: RunAdmin, watching: asyncio.Task[None]) -> tuple[Plan, Outages]:
        """Create the topics, let the clients work and the steps strike, heal everything, and wait for rest."""
        await self._create_topics(admin)
        self._clock.begin()
        assert self._clock.began_us is not None
        await self._ground.start_clients(self._clock.began_us)
        plan, outages = self._plan(admin), self._outages()
        looking = asyncio.get_running_loop().create_task(self._keep_looking(outages))
        striking = asyncio.get_running_loop().create_task(self._strike(plan))
        try:
            left_s = (self._scenario.duration - self._now_us()) / 1e6
            # Steps may be done before their time is over; whatever fails fails the run.
            done, _ = await asyncio.wait(
                {watching, looking, striking}, timeout=left_s,
                return_when=asyncio.FIRST_COMPLETED if self._is_short else asyncio.FIRST_EXCEPTION,
            )  # fmt: skip
            for task in done:
                task.result()
        finally:
            for task in (striking, looking):
                task.cancel()
            await asyncio.gather(striking, looking, return_exceptions=True)
        await self._come_to_rest(plan, admin)
        return plan, outages

    async def _create_topics(self, admin: RunAdmin) -> None:
        for differs in what_differs(self._scenario):
            self._teller.tell(f"not as simulated: {differs}")
        topics = {name: topic for name, topic in self._scenario.topics.items() if topic.exists}
        for name, topic in topics.items():
            admin.ask(create_request(name, topic))
        try:
            async with asyncio.timeout(TOPICS_TIMEOUT_S):
                await admin.until_done()
                if admin.refusals:
                    raise NotStarted(admin.refusals[0])
                for name, topic in topics.items():
                    await admin.until_led(name, topic.partitions)
        except TimeoutError as error:
            raise NotStarted(f"the topics have no leaders after {TOPICS_TIMEOUT_S:g} s") from error

    def _plan(self, admin: RunAdmin) -> Plan:
        ground = self._ground
        site = Site(
            nodes=ground.nodes, clients=ground.clients, links=ground.links, proxies=ground.proxies,
            ghost=self._watch.ghost, draws=Draws(self._seed), topics=self._scenario.topics, admin=admin,
            tell=self._teller.tell, misses=self._misses,
        )  # fmt: skip
        return Plan(site, self._scenario.steps, self._watch.lookout, self._now_us)

    def _outages(self) -> Outages:
        brokers = {
            number: self._ground.nodes[broker_name(number)]
            for number in range(1, self._scenario.cluster.brokers + 1)
        }
        scene = Scene(
            scenario=self._scenario, world=self._clock, partitions=self._partitions, brokers=brokers,
            producers=self._ground.producers,
        )  # fmt: skip
        return Outages(scene, self._watch.ghost, self._watch.lives)

    async def _keep_looking(self, outages: Outages) -> None:
        while True:
            outages.look()
            await asyncio.sleep(OUTAGE_S)

    async def _strike(self, plan: Plan) -> None:
        await asyncio.sleep((self._scenario.warm_up - self._now_us()) / 1e6)
        await plan.run()
        await plan.until_done()
        await asyncio.sleep(AFTERWARDS_S)

    async def _come_to_rest(self, plan: Plan, admin: RunAdmin) -> None:
        self._teller.tell("heal everything; the cluster has to agree now")
        self._unfired, missed = self._missed(plan)
        for name in await plan.heal_all():
            self._report_killed(name)
        for producer in self._ground.producers:
            producer.finish()
        replicas = {name: topic.replicas for name, topic in self._scenario.topics.items()}
        rest = Rest(self._watch, admin, replicas, self._partitions, self._ground)
        if lacking := await rest.wait(self._scenario.converge, self._now_us):
            self._watch.jury.report("convergence", lacking)
        else:
            self._teller.tell("every replica agrees")
        self._places = rest.places
        # What was asked for before may be refused only now.
        self._never_struck = (*missed, *(f"refused: {what}" for what in admin.refusals))

    def _missed(self, plan: Plan) -> tuple[list[int], tuple[str, ...]]:
        """Returns the steps because of which the run proves nothing, and the faults that never struck, in words."""
        unfired, never_struck = plan.unfired, self._misses.all()
        doable = sum(1 for step in self._scenario.steps if not why_skipped(step))
        if self._scenario.strict or len(unfired) == doable:
            return unfired, never_struck
        return [], (*never_struck, *(f"step {number}: its moment never came" for number in unfired))

    def _report_killed(self, name: str) -> None:
        """Report a process that did not end when it was asked to."""
        self._watch.jury.report("no-failure", f"{name} did not stop in order")

    def _judge(self, plan: Plan, outages: Outages, again: str) -> RealResult:
        """Judge history and disks; every process has ended."""
        judge = DiskJudge(self._scenario, self._data, self._watch, self._history)
        excused = judge.judge(self._partitions, self._watch.replicas(), self._places)
        if not self._scenario.excuses:
            for reason, count in excused.items():
                if reason not in (RETENTION, LEADER_ALONE):
                    self._watch.jury.report("excuses", f"{count} acknowledged records are lost: {reason}")
        excused_sends = outages.excused(self._history)
        starved = self._starved(sum(excused_sends.values()))
        skipped = [f"step {number}: {why}" for number, why in plan.skipped.items()]
        violations = tuple(self._watch.jury.violations)
        return RealResult(
            scenario=self._scenario.scenario, seed=self._seed, verdict=verdict_on(violations, starved),
            real_ms=self._now_us() // 1000, violations=violations, again=again, story=self._teller.lines,
            operations=self._history.counts(), reads=len(self._history.reads), excused=excused,
            excused_sends=excused_sends, starved_because=starved, never_struck=self._never_struck,
            skipped=(*skipped, *what_differs(self._scenario)), data=self._data if violations else None,
        )  # fmt: skip

    def _starved(self, excused_sends: int) -> str:
        """Returns why the run proved nothing; empty if it proved something."""
        steps = self._scenario.steps
        if steps and all(why_skipped(step) for step in steps):
            return "none of its steps can be done to processes"
        return starvation(self._history, self._unfired, len(steps), excused_sends)
