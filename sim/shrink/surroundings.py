"""Passes over what surrounds the events: the length of a run, its cluster, its network, its topics and its settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sim.scenario.model import Scenario
from sim.scenario.values import parse_duration
from sim.shrink.data import Change, Edit, Path_, changed, deleted, part
from sim.shrink.families import checker_of
from sim.shrink.search import Failing

_GRAIN_US = 100_000
_DEFAULT_BROKERS = 3


def duration_text(us: int) -> str:
    """Returns a duration as a file has it, in the largest unit that is exact."""
    for unit, size in (("s", 1_000_000), ("ms", 1_000)):
        if us % size == 0:
            return f"{us // size}{unit}"
    return f"{us}us"


def tail(failing: Failing) -> list[Edit]:
    """Returns edits that end the run soon after its failure, or in fractions of its time if it fails later."""
    end_us = parse_duration(failing.data.get("duration", "20s"))
    warm_up_us = parse_duration(failing.data.get("warm_up", "2s"))
    soon_us = (max(failing.outcome.at_us, warm_up_us) // _GRAIN_US + 2) * _GRAIN_US
    if failing.outcome.at_us and soon_us < end_us:
        return [changed(duration_text(soon_us), "duration")]
    shorter = [end_us * quarters // 4 // _GRAIN_US * _GRAIN_US for quarters in (1, 2, 3)]
    return [changed(duration_text(us), "duration") for us in shorter if us > warm_up_us]


def warm_up(failing: Failing) -> list[Edit]:
    """Returns edits that let steps strike earlier."""
    now_us = parse_duration(failing.data.get("warm_up", "2s"))
    rungs = (0, 500_000, 1_000_000)
    return [changed(duration_text(us), "warm_up") for us in rungs if us < now_us]


def kinds(failing: Failing) -> list[Edit]:
    """Returns edits that switch off what disturbs the whole run, and one for all steps of each verb."""
    paths: list[Path_] = [("cluster", key) for key in ("clocks", "disk", "jobs", "directories")]
    paths += [("network", key) for key in ("duplicates", "loss", "transport", "latency")]
    # A constant latency is simpler than the usual one.
    paths += [] if _is_constant(failing) else [("network", "spread")]
    paths += [("strict",), ("excuses",), ("canaries",), ("buggify",)]
    # What does not agree in a short time may agree in a long one: that would be another failure.
    paths += [] if checker_of(failing.outcome.signature) == "convergence" else [("converge",)]
    found = [deleted(*path) for path in paths if part(failing.data, path) is not None]
    return found + list(_verbs(failing))


def _verbs(failing: Failing) -> Iterator[Edit]:
    """Yields for each verb the edit that deletes its steps."""
    steps = failing.data.get("steps", [])
    by_verb: dict[str, list[int]] = {}
    for index, step in enumerate(Scenario.model_validate(failing.data).steps):
        by_verb.setdefault(step.verb, []).append(index)
    for indexes in by_verb.values():
        if len(indexes) < len(steps):
            yield tuple(Change(path=("steps", index), deletes=True) for index in indexes)


def settings(failing: Failing) -> list[Edit]:
    """Returns edits that give settings of nodes and topics their defaults."""
    found = [
        deleted("cluster", "settings", name) for name in part(failing.data, ("cluster", "settings")) or ()
    ]
    for topic, model in failing.data["topics"].items():
        found += [deleted("topics", topic, "config", name) for name in (model or {}).get("config", {})]
        found += [deleted("topics", topic, "exists")] if "exists" in (model or {}) else []
    return found


def points(failing: Failing) -> list[Edit]:
    """Returns edits that switch off one buggify point each."""
    count = len(part(failing.data, ("buggify", "points")) or ())
    return [deleted("buggify", "points", index) for index in range(count)]


def topics(failing: Failing) -> list[Edit]:
    """Returns edits that delete topics, with their clients and steps, as long as one is left."""
    names = list(failing.data["topics"])
    return [deleted("topics", name) for name in names] if len(names) > 1 else []


def brokers(failing: Failing) -> list[Edit]:
    """Returns edits that leave fewer brokers."""
    count = part(failing.data, ("cluster", "brokers")) or _DEFAULT_BROKERS
    return [changed(fewer, "cluster", "brokers") for fewer in range(1, count)]


def partitions(failing: Failing, topic: str) -> list[Edit]:
    """Returns edits that leave one partition of a topic, or two, or half; steps mean the first instead of others."""
    count = part(failing.data, ("topics", topic, "partitions")) or 1
    rungs = sorted({1, 2, count // 2} - {0})
    return [
        (Change(path=("topics", topic, "partitions"), value=fewer), *_moved_to_first(failing, topic, fewer))
        for fewer in rungs
        if fewer < count
    ]


def _moved_to_first(failing: Failing, topic: str, count: int) -> Iterator[Change]:
    """Yields changes by which steps name the first partition of a topic instead of one that is no longer there."""
    pattern = re.compile(rf"(?<![a-zA-Z0-9._-]){re.escape(topic)}/([0-9]+)")

    def first(match: re.Match[str]) -> str:
        return match[0] if int(match[1]) < count else f"{topic}/0"

    for index, step in enumerate(failing.data.get("steps", [])):
        for key, value in step.items():
            if (moved := _replaced(pattern, first, value)) != value:
                yield Change(path=("steps", index, key), value=moved)


def _replaced(pattern: re.Pattern[str], first: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [_replaced(pattern, first, each) for each in value]
    return pattern.sub(first, value) if isinstance(value, str) else value


def replicas(failing: Failing, topic: str) -> list[Edit]:
    """Returns edits that leave fewer replicas of a topic."""
    count = part(failing.data, ("topics", topic, "replicas")) or _DEFAULT_BROKERS
    return [changed(fewer, "topics", topic, "replicas") for fewer in range(1, count)]


def constant_latency(failing: Failing) -> list[Edit]:
    """Returns the edit by which every message takes the same time."""
    return [] if _is_constant(failing) else [changed("0us", "network", "spread")]


def _is_constant(failing: Failing) -> bool:
    spread = part(failing.data, ("network", "spread"))
    return spread is not None and parse_duration(spread) == 0
