"""The points that are on in one run: asks the seed whether a point fires, and counts how often it did."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import final

from sim.buggify.points import POINTS
from storage.draws import CountedDraws, Draws

# Receives the name of a point and the node at which it has fired.
OnFire = Callable[[str, str], None]


@final
class Buggify:
    """The buggify points of one run, all of them off but those of `points`.

    Whether a point fires at a node depends on the seed, on both names, and on how often it was asked there: without one
    of the points, the others fire as before.
    """

    __slots__ = ("_asked", "_counted", "_draws", "_on_fire", "_percents", "fired")

    def __init__(
        self,
        draws: Draws,
        points: Iterable[str],
        *,
        percent: int | None = None,
        on_fire: OnFire = lambda point, place: None,
    ) -> None:
        """`percent` is the share of its moments in which each point fires; None: that of the catalogue."""
        self._draws, self._on_fire = draws.child("buggify"), on_fire
        self._percents = {name: POINTS[name].percent if percent is None else percent for name in points}
        # By point and node: how often it was asked there, and its draws by that count.
        self._asked: dict[tuple[str, str], int] = {}
        self._counted: dict[tuple[str, str], CountedDraws] = {}
        # How often each point that is on has fired.
        self.fired = dict.fromkeys(self._percents, 0)

    def is_on(self, point: str) -> bool:
        """Whether the point may fire at all, without a draw."""
        return point in self._percents

    def fires(self, point: str, place: str) -> bool:
        """Whether the point fires now at the node called `place`."""
        percent = self._percents.get(point)
        if percent is None:
            assert point in POINTS, point
            return False
        key = (point, place)
        if key not in self._asked:
            self._asked[key], self._counted[key] = 0, self._draws.counted(point, place)
        self._asked[key] += 1
        if self._counted[key].bits(self._asked[key]) % 100 >= percent:
            return False
        self.fired[point] += 1
        self._on_fire(point, place)
        return True

    def between(self, low: int, high: int, point: str, place: str) -> int:
        """Returns how much of it there is when the point has just fired: from `low` to `high`, both inclusive."""
        assert (point, place) in self._asked, (point, place)
        return self._draws.between(low, high, "how much", point, place, self._asked[point, place])

    def more_us(self, most_ms: int, point: str, place: str) -> int:
        """Returns a drawn time of up to `most_ms` milliseconds, in microseconds; 0 if the point does not fire."""
        assert most_ms > 0, most_ms
        # Most points are off, and some are asked for at each step.
        if point not in self._percents or not self.fires(point, place):
            assert point in POINTS, point
            return 0
        return self.between(1_000, 1_000 * most_ms, point, place)

    def end(self) -> None:
        """Let no point fire any more: what is left of the run is judged by how soon it comes to rest."""
        self._percents.clear()
