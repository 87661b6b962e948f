"""Any course of calls, deadlines and crashes, drawn: both worlds show the clients the same, and what a model says."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ports.call_cases import KINDS, SHORT_MS, answered, asked, connect, release
from tests.ports.call_cores import Ask, Kind
from tests.ports.call_world import CallWorld
from tests.ports.test_calls import real, simulated

# A kept call is in flight until it is released, its time is over, its stream ends, or the server does.
Op = tuple[str, Kind]
PROBES_FROM = 100_000
OPS = st.tuples(
    st.sampled_from(["call", "keep", "keep", "release", "time out", "crash"]), st.sampled_from(KINDS)
)


@final
@dataclass
class Course:
    """One course of operations in one world, with the calls that have to be in flight."""

    world: CallWorld
    numbers: count[int] = field(default_factory=count)
    # The calls that look for the next server: how many fail depends on the time that each takes.
    probes: count[int] = field(default_factory=lambda: count(PROBES_FROM))
    in_flight: dict[int, Kind] = field(default_factory=dict)
    seen: list[object] = field(default_factory=list)

    async def follow(self, ops: list[Op]) -> object:
        await connect(self.world)
        for verb, kind in ops:
            await getattr(self, verb.replace(" ", "_"))(kind)
        self.seen.append(sorted(self.world.server.forgotten))
        return self.seen

    async def _note(self, *numbers: int) -> None:
        """Wait for the end of these calls, and note how each ended."""
        await answered(self.world, *numbers)
        self.seen.append([(number, self.world.clients[0].of(number)) for number in numbers])
        for number in numbers:
            self.in_flight.pop(number, None)

    async def _send_kept(self, kind: Kind, timeout_ms: int) -> int:
        number = next(self.numbers)
        self.world.server.keeps = True
        self.world.send(Ask(number=number, kind=kind, timeout_ms=timeout_ms))
        await asked(self.world, number)
        self.world.server.keeps = False
        self.in_flight[number] = kind
        return number

    async def call(self, kind: Kind) -> None:
        number = next(self.numbers)
        self.world.send(Ask(number=number, kind=kind))
        await self._note(number)

    async def keep(self, kind: Kind) -> None:
        await self._send_kept(kind, 60_000)

    async def release(self, kind: Kind) -> None:
        """Answer the oldest call of this kind."""
        oldest = [number for number, each in self.in_flight.items() if each == kind][:1]
        if oldest:
            release(self.world, *oldest)
            await self._note(*oldest)

    async def time_out(self, kind: Kind) -> None:
        """A stream ends with all its calls, a unary call alone."""
        late = await self._send_kept(kind, SHORT_MS)
        fail = [late] if kind == "alone" else [each for each, of in self.in_flight.items() if of == kind]
        forgotten = len(self.world.server.forgotten) + len(fail)
        await self._note(*fail)
        await self.world.until(lambda: len(self.world.server.forgotten) == forgotten)

    async def crash(self, kind: Kind) -> None:
        """All calls in flight fail; the next server is found after a while."""
        await self.world.crash_server()
        await self._note(*self.in_flight)
        await self.world.start_server()
        while not self.world.server.asked:
            number = next(self.probes)
            self.world.send(Ask(number=number, kind=kind))
            await answered(self.world, number)


@settings(max_examples=5, deadline=None, derandomize=True, database=None)
@given(st.lists(OPS, min_size=4, max_size=12))
def test_drawn_courses_are_the_same_in_both_worlds(ops: list[Op]) -> None:
    compare(ops)


@pytest.mark.slow
@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(st.lists(OPS, min_size=10, max_size=25))
def test_longer_drawn_courses_are_the_same_in_both_worlds(ops: list[Op]) -> None:
    compare(ops)


def compare(ops: list[Op]) -> None:
    async def script(world: CallWorld) -> object:
        return await Course(world).follow(ops)

    assert real(script) == simulated(script, 1)
