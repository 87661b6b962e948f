"""Counts the calls and files that a produced batch and a follower's fetch pass through in a simulated cluster.

`python -m tests.test_walks` prints both walks call by call: it shows which calls only forward to another.

A read begins at the nearest index entry and looks at every batch from there on, so walks of one kind differ with their
place in the index interval. The bounds apply to one walk of each kind, always the same one of this run.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pytest

from cluster.core.broker.broker import Broker
from cluster.core.effects import Reply
from cluster.core.events import Request
from cluster.core.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from sim.run import Run
from sim.scenario.loading import parse_scenario
from sim.world.time import without_garbage_collection
from tests.call_walk import Walk, recorded_walks
from tests.places import ROOT

SCENARIO = """\
scenario: walks
topics:
  t: {partitions: 1, replicas: 3, config: {min.insync.replicas: 2}}
producers:
  - {topic: t, rate: 20/s, acks: all}
consumers:
  - {topic: t}
"""
SEED = 1
WARM_UP_US = 2_400_000
RECORDED_US = 900_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The leader's steps that begin with a `request` and reply with bodies of the types in `answers`, in order."""

    name: str
    request: type[ProduceRequest | FetchRequest]
    answers: tuple[type[ProduceResponse | FetchResponse], ...]
    # The number, from 0, of the recorded walk of this kind to which the bounds apply.
    number: int
    most_calls: int
    most_moves: int


KINDS = (
    Kind(
        name="a produced batch: appended, and sent to two followers that wait",
        request=ProduceRequest,
        answers=(FetchResponse, FetchResponse),
        number=4,
        most_calls=174,
        most_moves=107,
    ),
    Kind(
        name="a follower's fetch: a batch committed, acknowledged, and sent to a consumer that waits",
        request=FetchRequest,
        answers=(ProduceResponse, FetchResponse),
        number=11,
        most_calls=162,
        most_moves=89,
    ),
)


@functools.cache
def steps_of_brokers() -> list[Walk]:
    """Return the walks of all brokers' steps, in order, over a while in which no fault strikes."""
    run = Run(parse_scenario(SCENARIO), SEED)
    with without_garbage_collection():
        run.begin()
        run.world.run_to(run.scenario.warm_up + WARM_UP_US)
        with recorded_walks(Broker.step, ROOT, ("cluster", "storage")) as walks:
            run.world.run_to(run.world.now_us + RECORDED_US)
    assert not run.jury.violations
    return walks


def walks_of(kind: Kind) -> list[Walk]:
    return [walk for walk in steps_of_brokers() if is_of(kind, walk)]


def is_of(kind: Kind, walk: Walk) -> bool:
    event, effects = walk.arguments["event"], walk.result
    assert isinstance(effects, list)
    answers = tuple(type(effect.body) for effect in effects if isinstance(effect, Reply))
    return isinstance(event, Request) and isinstance(event.body, kind.request) and answers == kind.answers


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.request.__name__)
def test_a_walk_has_no_more_calls_and_moves_than_its_bounds(kind: Kind) -> None:
    walk = walks_of(kind)[kind.number]
    assert len(walk.calls) <= kind.most_calls, "\n".join(walk.lines())
    assert walk.moves <= kind.most_moves, "\n".join(walk.lines())


def main() -> None:
    for kind in KINDS:
        walks = walks_of(kind)
        print(f"{kind.name}: {walks[kind.number]}")
        lengths = [len(walk.calls) for walk in walks]
        print(f"the {len(walks)} recorded: {min(lengths)} to {max(lengths)} calls")
        print(*walks[kind.number].lines(), "", sep="\n")


if __name__ == "__main__":
    main()
