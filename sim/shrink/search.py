"""The search for a smaller scenario that fails alike: it tries candidates, and keeps the smallest that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, final

from sim.shrink.data import Data, Edit, apply, key_of, tidied
from sim.shrink.ddmin import ddmin
from sim.shrink.families import are_alike
from sim.shrink.trial import Outcome, Trial

# Other seeds that a candidate may fail with, when the first seed has nothing left to take away.
NUISANCE_SEEDS = 4


class BudgetSpent(Exception):
    """The time or the number of trials of a search is over."""


class Runner(Protocol):
    """Runs trials."""

    def outcomes(self, trials: Sequence[Trial], best: Outcome) -> Iterable[Outcome]:
        """Yields what came of each trial in their order; `best` is what the best one so far took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """A scenario that fails, with the seed and what came of it."""

    data: Data
    seed: int
    outcome: Outcome


@final
class Search:
    """Holds the smallest failing scenario so far, `best`, and tries to replace it by a smaller one.

    `count` is the number of trials. Every method that tries raises BudgetSpent; `best` is then still one that failed.
    """

    def __init__(
        self, failing: Failing, runner: Runner, *,
        may_go_on: Callable[[int], bool], on_smaller: Callable[[str, Failing], None] = lambda name, best: None,
    ) -> None:  # fmt: skip
        """`may_go_on` takes the number of trials so far; `on_smaller` is called with each new best one."""
        self.best, self._runner = failing, runner
        self._signature = failing.outcome.signature
        self._first_seed = failing.seed
        self._may_go_on, self._on_smaller = may_go_on, on_smaller
        self._tried: set[tuple[str, int]] = set()
        self.count = 0
        # The name of what is tried, for `on_smaller`.
        self.name = ""
        self.nuisance_count = 0

    def first(self, candidates: Iterable[Data]) -> int | None:
        """Returns the index of the first candidate that fails alike, which is the best then; None if there is none.

        Candidates that cannot be run, or have been tried, are passed over; one that is the best already fails, untried.
        """
        if not self._may_go_on(self.count):
            raise BudgetSpent
        trials: list[Trial] = []
        indexes: list[int] = []
        same: int | None = None
        for index, candidate in enumerate(candidates):
            data = tidied(candidate)
            if data is not None and key_of(data) == key_of(self.best.data):
                same = index
                break
            for trial in self._trials(data) if data is not None else ():
                trials.append(trial)
                indexes.append(index)
        for number, outcome in enumerate(self._runner.outcomes(trials, self.best.outcome)):
            self.count += 1
            trial = trials[number]
            self._tried.add((key_of(trial.data), trial.seed))
            if are_alike(outcome.signature, self._signature):
                self.best = Failing(data=trial.data, seed=trial.seed, outcome=outcome)
                self._on_smaller(self.name, self.best)
                return indexes[number]
            if not self._may_go_on(self.count):
                raise BudgetSpent
        return same

    def _trials(self, data: Data) -> list[Trial]:
        """Returns the trials of a candidate: with the seed of the best one first, then with the nuisance seeds."""
        others = [self._first_seed + number for number in range(self.nuisance_count + 1)]
        seeds = [self.best.seed, *(seed for seed in others if seed != self.best.seed)][
            : self.nuisance_count + 1
        ]
        key = key_of(data)
        return [Trial(data=data, seed=seed) for seed in seeds if (key, seed) not in self._tried]

    def take_away(self, edits: Sequence[Edit]) -> None:
        """Apply as many of the edits as the failure survives: no single other one can be applied to what is left."""
        base = self.best.data

        def first_failing(kept: Sequence[Sequence[Edit]]) -> int | None:
            """Returns the first that fails of the candidates to which all edits but the kept ones are applied."""
            return self.first(apply(base, (edit for edit in edits if edit not in left)) for left in kept)

        ddmin(edits, first_failing)

    def choose(self, ladders: Iterable[Callable[[Failing], Sequence[Edit]]]) -> None:
        """Apply of each ladder, which lists edits from the simplest on, the first that the failure survives."""
        for ladder in ladders:
            base = self.best.data
            self.first([apply(base, [edit]) for edit in ladder(self.best)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One way to make a scenario smaller: edits of which any may be left out, then ladders of edits to choose from."""

    name: str
    edits: Callable[[Failing], Sequence[Edit]] = lambda failing: ()
    ladders: Callable[[Failing], Sequence[Callable[[Failing], Sequence[Edit]]]] = lambda failing: ()


def shrink(search: Search, passes: Sequence[Pass]) -> bool:
    """Go through the passes until none helps, first with one seed and then with others. Returns False if interrupted.

    Stops early, and returns normally, when the budget is spent or on Ctrl-C: the search has the best one so far.
    """
    try:
        for nuisance_count in (0, NUISANCE_SEEDS):
            search.nuisance_count = nuisance_count
            before = ""
            while before != (before := key_of(search.best.data)):
                for each in passes:
                    search.name = each.name
                    search.take_away(each.edits(search.best))
                    search.choose(each.ladders(search.best))
    except (BudgetSpent, KeyboardInterrupt) as ended:
        return isinstance(ended, BudgetSpent)
    return True
