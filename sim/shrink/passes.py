"""The passes of a shrink in their order: what takes most away comes first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sim.shrink import events, surroundings
from sim.shrink.data import Edit
from sim.shrink.search import Failing, Pass

Ladder = Callable[[Failing], Sequence[Edit]]


def _topology(failing: Failing) -> list[Ladder]:
    names = list(failing.data["topics"])
    return [
        *(partial(surroundings.partitions, topic=name) for name in names),
        surroundings.brokers,
        *(partial(surroundings.replicas, topic=name) for name in names),
        *(
            partial(events.client_counts, kind=kind, index=index)
            for kind in ("producers", "consumers", "seekers", "admins")
            for index in range(len(failing.data.get(kind, [])))
        ),
    ]


def _operations(failing: Failing) -> list[Ladder]:
    indexes = range(len(failing.data.get("producers", [])))
    records: list[Ladder] = [partial(events.records, index=index) for index in indexes]
    return [*records, *(partial(events.rates, index=index) for index in indexes)]


def _each_step(failing: Failing) -> list[Ladder]:
    return [
        partial(ladder, index=index)
        for index in range(len(failing.data.get("steps", [])))
        for ladder in (events.mildness, events.lengths, events.moments)
    ]


PASSES: tuple[Pass, ...] = (
    Pass(name="tail", ladders=lambda failing: [surroundings.tail]),
    Pass(name="kinds", edits=surroundings.kinds),
    Pass(name="topics", edits=surroundings.topics),
    Pass(name="steps", edits=events.steps),
    Pass(name="buggify points", edits=surroundings.points),
    Pass(name="clients", edits=events.clients),
    Pass(name="topology", ladders=_topology),
    Pass(
        name="settings", edits=lambda failing: [*surroundings.settings(failing), *events.client_keys(failing)]
    ),
    Pass(name="operations", ladders=_operations),
    Pass(name="details", edits=events.details),
    Pass(name="single steps", ladders=_each_step),
    Pass(name="warm-up", ladders=lambda failing: [surroundings.warm_up]),
    Pass(name="latencies", ladders=lambda failing: [surroundings.constant_latency]),
    Pass(name="end", ladders=lambda failing: [surroundings.tail]),
)
