"""Carries out a scenario's steps on a running cluster, one after the other, by the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import final

from replog.real.faults import Handlers, Later, LinkFaults, ProcessFaults, handlers_of
from replog.real.site import Site, Targets
from replog.real.steps import why_skipped
from sim.faults.conditions import Lookout
from sim.scenario.base import Named, Step
from sim.scenario.values import Target

# The interval at which a step is tried again while its target does not exist.
POLL_S = 0.02


@final
class Plan:
    """The steps of one run: `run` carries them out in turn, `heal_all` ends whatever is left of them."""

    def __init__(
        self, site: Site, steps: Sequence[Step], lookout: Lookout, now_us: Callable[[], int]
    ) -> None:
        self._site, self._steps, self._lookout, self._now_us = site, steps, lookout, now_us
        self._targets, self._later = Targets(site), Later()
        links = LinkFaults(site, self._targets, self._later)
        self._processes = ProcessFaults(site, self._targets, self._later)
        self._handlers: Handlers = handlers_of(site, self._targets, links, self._processes)
        # The numbers, 1 for the first, of the steps that have come to their turn and whose conditions have not failed.
        self._came: list[int] = []
        self._struck_count = 0
        self.skipped: dict[int, str] = {}
        self._last_us = 0

    @property
    def unfired(self) -> list[int]:
        """The numbers of the steps that could be done and whose conditions or times never came; of all if none struck.

        A step that came to its turn and found no target is no such step but a miss.
        """
        doable = [number for number, step in enumerate(self._steps, 1) if not why_skipped(step)]
        return [number for number in doable if not self._struck_count or number not in self._came]

    async def run(self) -> None:
        """Let each step strike at its time, or when its conditions have held."""
        for number, step in enumerate(self._steps, 1):
            if not await self._comes(number, step):
                continue
            self._came.append(number)
            if why := why_skipped(step):
                self._skip(number, step, why)
            elif not self._has_struck(step):
                await self._look_for_target(number, step)
            self._last_us = self._now_us()

    def _has_struck(self, step: Step) -> bool:
        """Let the step strike. Returns False if its target does not exist."""
        has_struck = self._handlers[type(step)](step)
        self._struck_count += has_struck
        return has_struck

    async def _comes(self, number: int, step: Step) -> bool:
        """Wait for the step's time or conditions. Returns False if these have not held in time."""
        if step.at is not None:
            at_us = self._last_us + step.at.us if step.at.is_relative else step.at.us
            await asyncio.sleep((at_us - self._now_us()) / 1e6)
        if not step.when:
            return True
        held = asyncio.Event()
        self._lookout.wait(step.when, then=held.set)
        try:
            async with asyncio.timeout(step.within / 1e6):
                await held.wait()
        except TimeoutError:
            condition = self._lookout.give_up()
            assert condition is not None, number
            self._site.tell(f"step {number} gave up waiting for {condition.text}")
            return False
        return True

    def _skip(self, number: int, step: Step, why: str) -> None:
        """Tell why the step is not done; the name in its `as` still means what it would have struck."""
        self.skipped[number] = f"{step.verb} {step.target_text}: {why}"
        self._site.tell(f"step {number} is skipped: {self.skipped[number]}")
        if isinstance(step, Named) and isinstance(step.target, Target):
            self._targets.bind(step, self._targets.processes(step.target, step))

    async def _look_for_target(self, number: int, step: Step) -> None:
        """Try the step again until its target exists or its time is over; a next step with a time does not wait."""
        miss = self._site.misses.wait(f"{step.verb} {step.target_text}: its target did not exist")
        following = self._steps[number].at if number < len(self._steps) else None
        looking = self._look_again(number, step, miss)
        if following is not None and not following.is_relative:
            self._later.do(looking)
        else:
            await looking

    async def _look_again(self, number: int, step: Step, miss: int) -> None:
        until_us = self._now_us() + step.within
        while self._now_us() < until_us:
            await asyncio.sleep(POLL_S)
            if self._has_struck(step):
                self._site.misses.struck(miss)
                return
        self._site.tell(f"step {number} gave up: {step.verb} {step.target_text}: its target did not exist")

    async def until_done(self) -> None:
        """Wait until all that the steps have planned has happened, such as a start after a while."""
        await self._later.until_done()

    async def heal_all(self) -> list[str]:
        """End all faults; every process runs again, and nothing that a step has planned happens any more.

        Returns the names of the processes that a step has asked to end, and that had to be killed.
        """
        self._lookout.give_up()
        await self._later.cancel()
        for link in self._site.links.all():
            link.heal()
        return await self._processes.heal_all()
