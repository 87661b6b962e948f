"""Waits for the conditions of a scenario's steps: on acknowledgements, in-sync sets, truncations and leaders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import final

from sim.checkers.ghost import Ghost
from sim.hosts.history import History
from sim.scenario.values import Condition


@final
class Lookout:
    """Waits for the conditions of one step, one after the other.

    `look` must be called after every event that may make a condition true.
    """

    def __init__(self, ghost: Ghost, history: History) -> None:
        self._ghost, self._history = ghost, history
        # The conditions that have not held yet; only the first is checked.
        self._waiting: Sequence[Condition] = ()
        self._then: Callable[[], None] | None = None
        # How often what a fact counts has happened to a partition, and how often when the wait for the first began.
        self._counts: dict[tuple[str, str], int] = {}
        self._count_before = self._epoch_before = 0

    def wait(self, conditions: Sequence[Condition], then: Callable[[], None]) -> None:
        """Call `then` once, when the last condition holds; each counts only after those before it have held."""
        assert conditions, "a step that waits names a condition"
        assert not self._waiting, (self._waiting, conditions)
        self._then = then
        self._begin(conditions)
        self.look()

    def give_up(self) -> Condition | None:
        """Stop waiting. Returns the condition that was waited for, or None."""
        waiting, self._waiting = self._waiting, ()
        return waiting[0] if waiting else None

    def on_truncated(self, partition: str) -> None:
        """Count a truncation of one of the partition's replicas."""
        self._count("truncated", partition)

    def on_proposed(self, partition: str, isr: Collection[str]) -> None:
        """Count a proposed in-sync set of the partition, if it has more members than the committed one."""
        if len(isr) > len(self._ghost.partition(partition).isr):
            self._count("joining", partition)

    def _count(self, fact: str, partition: str) -> None:
        before = self._counts.get((fact, partition), 0)
        assert before >= 0, (fact, partition, before)
        self._counts[fact, partition] = before + 1

    def look(self) -> None:
        """Check whether the condition that is waited for holds now."""
        while self._waiting and self._waiting[0].holds(self._value(self._waiting[0])):
            if len(self._waiting) > 1:
                self._begin(self._waiting[1:])
            else:
                self._waiting = ()
                assert self._then is not None, "a wait needs an action"
                self._then()

    def _begin(self, conditions: Sequence[Condition]) -> None:
        self._waiting = conditions
        self._epoch_before = self._ghost.partition(_partition_of(conditions[0])).epoch
        self._count_before = self._counts.get((conditions[0].fact, _partition_of(conditions[0])), 0)

    def _value(self, condition: Condition) -> int:
        name = _partition_of(condition)
        match condition.fact:
            case "after-ack":
                return self._history.acknowledged.get(name, 0)
            case "isr":
                return len(self._ghost.partition(name).isr)
            case "truncated" | "joining":
                return self._counts.get((condition.fact, name), 0) - self._count_before
            case "elected":
                partition = self._ghost.partition(name)
                return partition.epoch - self._epoch_before if partition.leader >= 0 else 0
            case _:
                return int(self._ghost.partition(name).leader >= 0)


def _partition_of(condition: Condition) -> str:
    return f"{condition.topic}-{condition.partition}"
