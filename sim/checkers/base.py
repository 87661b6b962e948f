"""The base of all checkers, and the jury that shows each sighting to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from sim.checkers.ghost import Ghost
from sim.checkers.sightings import EpochsSeen, Loaded, Sighting

# The most violations that a run keeps: after the first ones, further ones say nothing new.
MOST_VIOLATIONS = 50

Judge = Callable[..., str | None]
# A node, and its life.
Life = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One case in which a rule did not hold: the checker's name, the virtual time, and what was wrong."""

    checker: str
    at_us: int
    what: str


class Checker:
    """One rule. `judges` maps a class of sightings to a method `(partition, sighting) -> what is wrong, or None`.

    The method sees the ghost as it was before the sighting.
    """

    name: ClassVar[str]

    def __init__(self, ghost: Ghost) -> None:
        self.ghost = ghost

    def judges(self) -> Mapping[type, Judge]:
        raise NotImplementedError


@final
class Jury:
    """Shows each sighting to the checkers that judge its kind, then to the ghost.

    `on_violation` is called with each violation that is kept, at the moment when it is found.
    """

    def __init__(
        self,
        ghost: Ghost,
        checkers: Iterable[Checker],
        *,
        now_us: Callable[[], int],
        on_violation: Callable[[Violation], None],
    ) -> None:
        self.ghost = ghost
        self.violations: list[Violation] = []
        # Why nothing is judged any more; empty as long as it is.
        self.adjourned = ""
        self.now_us, self._on_violation = now_us, on_violation
        self._judges: dict[type, list[tuple[str, Judge]]] = {}
        for checker in checkers:
            for kind, judge in checker.judges().items():
                self._judges.setdefault(kind, []).append((checker.name, judge))

    def see(self, sighting: Sighting) -> None:
        """Let the checkers judge a sighting, then let the ghost apply it, unless it has given up the partition."""
        partition, kind = self.ghost.partition(sighting.partition), type(sighting)
        # Only what a start loads makes the ghost give up a partition.
        if (partition.unjudged or kind is Loaded or kind is EpochsSeen) and self.ghost.give_up(
            partition, sighting
        ):
            return
        for name, judge in self._judges.get(kind, ()):
            what = judge(partition, sighting)
            if what is not None:
                self.report(name, what)
        self.ghost.apply(partition, sighting)

    def report(self, checker: str, what: str) -> None:
        """Keep a violation found by the checker of that name; ignored after MOST_VIOLATIONS, and once adjourned."""
        if not self.adjourned and len(self.violations) < MOST_VIOLATIONS:
            violation = Violation(checker=checker, at_us=self.now_us(), what=what)
            self.violations.append(violation)
            self._on_violation(violation)
