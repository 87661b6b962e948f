"""The critical pair of a failure: two neighbouring events of one node in whose order it lies whether the run fails.

Two runs are the same up to some event. Then two events run in one order or in the other. With the one order the run
fails, with the other it holds. Pairs with a fault, and then those near the turning point, are tried alone. If none
decides, the pair is found by bisection: of all pairs from some event on, a drawn half change places, so that the run
holds; the critical pair is the last one from which on that is so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass
from typing import Any, final

from sim.seeds import run_seeds
from sim.shrink.reordering import Reordering, Swap
from sim.shrink.replay import run_changed
from sim.shrink.search import Failing
from sim.shrink.trial import outcome_of
from sim.world.time import World
from storage.draws import Draws

# How many pairs are tried alone, and how many ways to reorder the rest of a run.
MOST_ALONE = 32
VARIANTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order of a run's events: pairs from event number `start` to `end` (exclusive) change places.

    Variant 0 takes all of them, any other one the half that its draws say.
    """

    start: int
    end: int
    variant: int = 0

    def takes(self, event: int) -> bool:
        """Returns whether the event changes places with its neighbour."""
        is_drawn = not self.variant or Draws(self.variant).bits("swap", str(event)) & 1 == 1
        return self.start <= event < self.end and is_drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPair:
    """Two neighbouring events: in this order the run fails, in the other one it holds.

    `is_alone` says that nothing else is in another order. If not, a drawn half of the pairs after it have changed
    places in both runs.
    """

    pair: Swap
    is_alone: bool

    def lines(self) -> Iterator[str]:
        """Yields the pair for a reader."""
        yield f"critical pair: event {self.pair.event} at {self.pair.at_us / 1e6:.6f} s"
        yield f"  {self.pair.first}"
        yield f"  {self.pair.second}"
        rest = "" if self.is_alone else ", if half of the later pairs change places too"
        yield f"  in this order it fails, in the other it holds{rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """What came of a run in some order: whether it failed, in any way, and the pairs that changed places.

    For a run in its own order these are the pairs that could.
    """

    fails: bool
    swaps: tuple[Swap, ...]


# Runs the failing scenario in each of these orders, None for its own.
RunOrders = Callable[[Sequence[Order | None]], Iterator[Ordered]]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reordered:
    """The work of many processes: a failing run in other orders; number N is the N-th of `orders`."""

    failing: Failing
    bug: str | None
    orders: Sequence[Order | None]

    @property
    def title(self) -> str:
        return "critical pair"

    def run(self, seed: int) -> dict[str, Any]:
        """Run number `seed`. The row has the pairs that changed places, or could."""
        order = self.orders[seed]
        swaps: list[Swap] = []

        def choice(swap: Swap) -> bool:
            is_taken = order is not None and order.takes(swap.event)
            if is_taken or order is None:
                swaps.append(swap)
            return is_taken

        def change(world: World) -> AbstractContextManager[None]:
            return Reordering(world, choice).replacing()

        row = run_changed(self.failing, self.bug, change)
        return row | {"seed": seed, "swaps": [asdict(swap) for swap in swaps]}

    def replay(self, seed: int) -> str:
        return ""

    def results(self, jobs: int) -> Iterator[Ordered]:
        """Yields what came of each run, in their order. Closing the iterator ends those that still run."""
        with closing(run_seeds(self, range(len(self.orders)), jobs=jobs)) as results:
            for result in results:
                swaps = tuple(Swap(**swap) for swap in result.row.get("swaps", []))
                yield Ordered(fails=bool(outcome_of(result).signature), swaps=swaps)


def critical_pair(failing: Failing, bug: str | None, near: int, jobs: int) -> CriticalPair | None:
    """Returns the critical pair of a failing run; None if it fails in every order tried.

    It is looked for from event number `near` on in both directions: where the failure seems to be decided.
    """

    def run_orders(orders: Sequence[Order | None]) -> Iterator[Ordered]:
        return Reordered(failing=failing, bug=bug, orders=orders).results(jobs)

    return find_pair(failing.outcome.events, near, run_orders)


def find_pair(events: int, near: int, run_orders: RunOrders) -> CriticalPair | None:
    """Returns the critical pair of a run of so many events, and the nearest one to `near` if it decides alone."""
    (own,) = run_orders([None])
    assert own.fails, events
    before = [swap for swap in own.swaps if swap.event < events]
    nearest = sorted(before, key=lambda swap: (not swap.has_fault, abs(swap.event - near), swap.event))
    nearest = nearest[:MOST_ALONE]
    alone = run_orders([Order(start=swap.event, end=swap.event + 1) for swap in nearest])
    for swap, ordered in zip(nearest, alone, strict=False):
        if not ordered.fails:
            return CriticalPair(pair=swap, is_alone=True)
    for variant in range(1, VARIANTS + 1):
        if (pair := _bisected(events, variant, run_orders)) is not None:
            return pair
    return None


def _bisected(events: int, variant: int, run_orders: RunOrders) -> CriticalPair | None:
    """Returns the last pair such that the run holds if it and those after it change places; None if it fails then."""

    def run(start: int) -> Ordered:
        (ordered,) = run_orders([Order(start=start, end=events, variant=variant)])
        return ordered

    first = run(0)
    if first.fails or not first.swaps:
        return None
    pair, fails_from = first.swaps[0], events
    while fails_from - pair.event > 1:
        middle = (pair.event + fails_from) // 2
        ordered = run(middle)
        if ordered.fails or not ordered.swaps:
            fails_from = middle
        else:
            # From the middle to that event nothing changed places: the run is the same from there.
            pair = ordered.swaps[0]
            fails_from = max(fails_from, pair.event + 1)
    assert pair.event < fails_from, (pair, fails_from)
    return CriticalPair(pair=pair, is_alone=False)
