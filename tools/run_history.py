"""What a simulated run did, lane by lane, read from its trace: who led, who was in sync, which broker was down."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from replog import Verdict, run_scenario

# What the trace says, in words, of a broker that goes down and of one that is started again.
_DOWN = re.compile(r"^(?P<why>kill|power loss) (?:\(.*\) )?(?:at )?(?P<broker>broker-\d+)\b")
_DIES = re.compile(r"^(?P<broker>broker-\d+) writes (?P<bytes>\d+) bytes .* dies of a (?P<why>power loss)")
_START = re.compile(r"^start (?P<broker>broker-\d+) again")

# The states of a broker's lane.
LEADER, IN_SYNC, CATCHING_UP, DOWN = "leader", "in sync", "catching up", "down"
Fields = Mapping[str, int | str]


@dataclass(frozen=True, slots=True)
class Span:
    """A state of a lane from `start_us` to `end_us` of virtual time (exclusive)."""

    start_us: int
    end_us: int
    what: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened in a lane at one moment; `is_fault` if it was done to the broker."""

    at_us: int
    what: str
    is_fault: bool = False


@dataclass(slots=True)
class Lane:
    """The spans of a lane in order of time, without an overlap, and its marks."""

    spans: list[Span] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    _since_us: int = 0
    state: str = ""

    def turn(self, at_us: int, what: str) -> None:
        """Let the state of the lane be `what` from now on; none if it is empty."""
        assert self._since_us <= at_us, (self._since_us, at_us)
        if what == self.state:
            return
        if self.state and self._since_us < at_us:
            self.spans.append(Span(self._since_us, at_us, self.state))
        self._since_us, self.state = at_us, what


@dataclass(slots=True)
class History:
    """The lanes of one partition: its leader, its in-sync replicas, and each broker; all times are virtual."""

    scenario: str
    seed: int
    is_held: bool
    leader: Lane = field(default_factory=Lane)
    in_sync: Lane = field(default_factory=Lane)
    brokers: dict[str, Lane] = field(default_factory=dict)
    # The last moment at which a lane changed, and the end of the run.
    last_us: int = 0
    end_us: int = 0

    def lanes(self) -> Iterator[Lane]:
        """All lanes."""
        yield from (self.leader, self.in_sync, *self.brokers.values())


def history_of(scenario: Path, seed: int, partition: str) -> History:
    """Run the scenario and return the history of a partition such as t-0."""
    trace = io.BytesIO()
    result = run_scenario(scenario, seed, trace_file=trace)
    history = History(
        result.scenario, seed, result.verdict is Verdict.HELD, end_us=result.simulated_ms * 1000
    )
    for line in trace.getvalue().splitlines()[1:]:
        event = json.loads(line)
        if event["kind"] == "tell":
            _tell(history, event["at"], event["what"])
        elif event.get("topic_partition", partition) == partition:
            _observe(history, event["at"], event["node"], event["kind"], event)
    for lane in history.lanes():
        lane.turn(history.end_us, "")
    return history


def _tell(history: History, at_us: int, what: str) -> None:
    """Read a fault, or the start of a node after one."""
    if dies := _DIES.match(what):
        _go_down(history, at_us, dies["broker"], f"{dies['why']} after {dies['bytes']} bytes of a batch")
    elif down := _DOWN.match(what):
        _go_down(history, at_us, down["broker"], {"kill": "killed"}.get(down["why"], down["why"]))
    elif start := _START.match(what):
        _change(history, history.brokers[start["broker"]], at_us, CATCHING_UP)


def _go_down(history: History, at_us: int, broker: str, why: str) -> None:
    lane = history.brokers[broker]
    assert lane.state != DOWN, (broker, at_us)
    lane.marks.append(Mark(at_us, why, is_fault=True))
    _change(history, lane, at_us, DOWN)


def _observe(history: History, at_us: int, node: str, kind: str, event: Fields) -> None:
    """Read what a node says of the partition."""
    if kind == "broker.started":
        history.brokers.setdefault(node, Lane())
    elif kind == "controller.leader_elected":
        _change(history, history.leader, at_us, f"broker {event['leader']}, epoch {event['leader_epoch']}")
        _in_sync(history, at_us, event)
    elif kind == "controller.isr_changed":
        _in_sync(history, at_us, event)
    elif kind == "replica.became_leader":
        _change(history, history.brokers[node], at_us, LEADER)
    elif kind == "log.recovered_cut":
        _mark(history, at_us, node, f"{event['removed_bytes']:,} torn bytes cut")
    elif kind == "replica.truncated":
        _mark(history, at_us, node, f"truncates from {event['from_log_end_offset']} to {event['to_offset']}")


def _in_sync(history: History, at_us: int, event: Fields) -> None:
    numbers = sorted(str(event["isr"]).split(","))
    _change(history, history.in_sync, at_us, ",".join(numbers))
    for name, lane in history.brokers.items():
        is_in_sync = name.removeprefix("broker-") in numbers
        if lane.state != DOWN and not (lane.state == LEADER and is_in_sync):
            _change(history, lane, at_us, IN_SYNC if is_in_sync else CATCHING_UP)


def _mark(history: History, at_us: int, node: str, what: str) -> None:
    history.brokers[node].marks.append(Mark(at_us, what))
    history.last_us = at_us


def _change(history: History, lane: Lane, at_us: int, what: str) -> None:
    lane.turn(at_us, what)
    history.last_us = at_us
