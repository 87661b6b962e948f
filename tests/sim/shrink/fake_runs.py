"""Runs that cost nothing: whether a scenario fails is a rule over its data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import final

from sim.shrink.data import Data
from sim.shrink.search import Failing, Search
from sim.shrink.trial import Outcome, Trial

SIGNATURE = "truncation: cut N"
HELD = Outcome(signature="")


@final
class FakeRunner:
    """Runs trials by a rule that returns the signature of the failure, or an empty text."""

    def __init__(self, rule: Callable[[Data, int], str]) -> None:
        self.rule = rule
        self.trials: list[Trial] = []

    def outcomes(self, trials: Sequence[Trial], best: Outcome) -> Iterator[Outcome]:
        for trial in trials:
            self.trials.append(trial)
            signature = self.rule(trial.data, trial.seed)
            yield Outcome(signature=signature, at_us=5_000_000, events=100, sends=10) if signature else HELD


def search_of(data: Data, rule: Callable[[Data, int], str], most_trials: int = 10_000) -> Search:
    """Returns a search for a smaller scenario that fails by the rule with the signature SIGNATURE."""
    first = Failing(
        data=data, seed=7, outcome=Outcome(signature=SIGNATURE, at_us=5_000_000, events=100, sends=10)
    )
    return Search(first, FakeRunner(rule), may_go_on=lambda count: count < most_trials)
