"""What the real shell does to a core happens in a simulated run too: turns, broken streams, jobs, lag, lone clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from cluster.core.broker.broker import Broker
from cluster.core.connection.outgoing import Ended, OutgoingStream
from cluster.core.effects import Effect
from cluster.core.events import Event, Request
from cluster.shell.streams import PRODUCE
from sim.hosts.node import Node
from sim.hosts.shell import Queued
from sim.run import Run, Verdict
from sim.scenario.loading import parse_scenario

SCENARIO = """\
scenario: one-world
duration: 8s
cluster: {brokers: 3}
topics:
  t: {partitions: 2, replicas: 3}
  u: {partitions: 1, replicas: 3, exists: false}
producers:
  - {topic: t, rate: 100/s, acks: all}
  - {topic: t, rate: 100/s, acks: all}
consumers:
  - {topic: t}
steps:
  - {at: 1s, slow_cpu: all, by: 5ms, for: 1s}
  - {at: 2500ms, lag_metadata: "follower(t/0, 1)", for: 1500ms}
  - {at: 2600ms, create_topic: u}
  - {at: 2700ms, pause: leader(t/0), for: 2500ms}
  - {at: 6s, kill: producer 1, down: 300ms}
"""
Tally = Counter[str]


def count_turns(patch: pytest.MonkeyPatch, tally: Tally) -> None:
    """Counts the steps of brokers with requests of several kinds."""
    steps = Broker.steps

    def counted(self: Broker, now_ms: int, events: Sequence[Event]) -> list[Effect]:
        kinds = {type(event.body) for event in events if isinstance(event, Request)}
        tally["steps of several kinds"] += len(kinds) > 1
        return steps(self, now_ms, events)

    patch.setattr(Broker, "steps", counted)


def count_broken_streams(patch: pytest.MonkeyPatch, tally: Tally) -> None:
    """Counts the streams that end by the time-out of one call, and fail others with it."""
    on_time = OutgoingStream.on_time

    def counted(self: OutgoingStream, now_ms: int) -> Ended:
        ended = on_time(self, now_ms)
        tally["streams that a time-out ends"] += bool(ended)
        tally["calls that fail with another one"] += self.codec is PRODUCE and len(ended) > 1
        return ended

    patch.setattr(OutgoingStream, "on_time", counted)


def count_overlaps(patch: pytest.MonkeyPatch, tally: Tally) -> None:
    """Counts the steps of nodes while a job runs, and requests to a broker whose metadata lags."""
    handle = Node._handle

    def counted(self: Node, turn: list[Queued]) -> None:
        tally["steps beside a job"] += bool(self._jobs)
        is_request = isinstance(turn[0][0], Request)
        tally["requests to a broker that lags"] += is_request and bool(self._held_metadata)
        handle(self, turn)

    patch.setattr(Node, "_handle", counted)


@pytest.fixture(scope="module")
def ended() -> tuple[Run, Tally]:
    """A run that has ended, and what was counted in it."""
    tally: Tally = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for count in (count_turns, count_broken_streams, count_overlaps):
            count(patch, tally)
        run = Run(parse_scenario(SCENARIO), 1)
        result = run.go("")
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    return run, tally


@pytest.mark.slow
@pytest.mark.parametrize(
    "what",
    [
        "steps of several kinds",
        "streams that a time-out ends",
        "calls that fail with another one",
        "steps beside a job",
        "requests to a broker that lags",
    ],
)
def test_a_run_reaches_what_only_the_real_shell_once_did(ended: tuple[Run, Tally], what: str) -> None:
    assert ended[1][what] > 0, ended[1]


@pytest.mark.slow
def test_a_client_that_is_killed_takes_no_other_client_with_it(ended: tuple[Run, Tally]) -> None:
    killed, other = ended[0].cluster.producers
    assert (killed.starts, other.starts) == (2, 1)
    assert killed.actor is not other.actor and killed.clock is not other.clock
    sends = [send for send in ended[0].history.sends if send.producer == other.name]
    assert sends and all(send.error != "KILLED" for send in sends)
