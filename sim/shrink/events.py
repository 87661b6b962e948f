"""Passes over the events: what clients do, which faults strike, when, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sim.scenario.values import Instant, parse_duration, parse_instant, parse_percent, parse_rate
from sim.shrink.data import Change, Edit, changed, deleted, part
from sim.shrink.search import Failing
from sim.shrink.surroundings import duration_text

_RATES = (1, 2, 5, 10, 20, 50, 100)
_COUNTS = (1, 2, 3, 5, 8, 12, 20, 50, 100, 200)
_TIMES_US = tuple(1_000 * ms for ms in (1, 10, 100, 500, 1_000, 2_000, 3_000, 5_000, 10_000))
# From the simplest on: nothing is lost, all is lost, and then what only a draw can say.
_KEEPS = ("all", "none", "prefix", "subset", "torn")
_GRAINS_US = (1_000_000, 500_000, 100_000, 10_000)
_CLIENTS = ("producers", "consumers", "seekers", "admins")
# Keys of a producer that mean a usual one if they are left out.
_USUAL = (
    "acks",
    "idempotent",
    "in_flight",
    "size",
    "linger",
    "batch",
    "keys",
    "unanswered",
    "delivery_timeout",
)
_DURATIONS = ("for", "down", "by", "patience")


def steps(failing: Failing) -> list[Edit]:
    """Returns the edits that delete one step each."""
    return [deleted("steps", index) for index in range(len(failing.data.get("steps", [])))]


def clients(failing: Failing) -> list[Edit]:
    """Returns the edits that delete a group of equal clients."""
    return [deleted(kind, index) for kind in _CLIENTS for index in range(len(failing.data.get(kind, [])))]


def client_keys(failing: Failing) -> list[Edit]:
    """Returns the edits that make producers usual ones."""
    return [
        deleted("producers", index, key)
        for index, producer in enumerate(failing.data.get("producers", []))
        for key in _USUAL
        if key in producer
    ]


def client_counts(failing: Failing, kind: str, index: int) -> list[Edit]:
    """Returns edits that leave fewer equal clients of a group."""
    count = part(failing.data, (kind, index, "clients")) or 1
    return [changed(fewer, kind, index, "clients") for fewer in range(1, count)]


def rates(failing: Failing, index: int) -> list[Edit]:
    """Returns edits that slow a group of producers down."""
    now = part(failing.data, ("producers", index, "rate"))
    rate = 50 if now is None else parse_rate(now)
    return [changed(f"{each}/s", "producers", index, "rate") for each in _RATES if each < rate]


def records(failing: Failing, index: int) -> list[Edit]:
    """Returns edits that let a group of producers send fewer records."""
    now = part(failing.data, ("producers", index, "records")) or failing.outcome.sends
    return [changed(each, "producers", index, "records") for each in _rungs(_COUNTS, now)]


def _rungs(values: Sequence[int], now: int) -> list[int]:
    """Returns the values below `now`, and what lies halfway to it from the last of them."""
    below = [value for value in values if value < now]
    halfway = (below[-1] + now) // 2 if below else 0
    return [*below, halfway] if below and below[-1] < halfway < now else below


def details(failing: Failing) -> list[Edit]:
    """Returns the edits that delete details of single steps: how long they wait, last, and what they are called."""
    found = []
    for index, step in enumerate(failing.data.get("steps", [])):
        optional = [key for key in ("within", "as", "except", "point", "rest") if key in step]
        # A step with `keep` has a default of its own, except where a process may die instead: then no power is lost.
        may_die = ("partial_write" in step and "rest" not in step) or "kill_inside" in step
        optional += ["keep"] if "keep" in step and may_die else []
        optional += [
            key for key in ("job", "log", "renames", "suffix") if key in step and "kill_inside" in step
        ]
        found += [deleted("steps", index, key) for key in optional]
        if isinstance(step.get("when"), list) and len(step["when"]) > 1:
            found += [deleted("steps", index, "when", place) for place in range(len(step["when"]) - 1)]
    return found


def _step(failing: Failing, index: int) -> dict[str, Any]:
    """Returns a step; an empty one if it went with another."""
    found: dict[str, Any] = part(failing.data, ("steps", index)) or {}
    return found


def moments(failing: Failing, index: int) -> list[Edit]:
    """Returns edits that let a step strike at a time, or with fewer conditions, or earlier, or at a rounder time."""
    step = _step(failing, index)
    if "when" in step:
        return [*_timed(failing, index), *_sooner(step["when"], index)]
    if "at" not in step:
        return []
    at = parse_instant(step["at"])
    earlier = [] if at.is_relative else [us for us in _EARLY_US if us < at.us]
    return [changed(_instant_text(at, us), "steps", index, "at") for us in [*earlier, *_rounder(at.us)]]


# A run whose faults strike early is a short one.
_EARLY_US = (1_000_000, 2_000_000, 3_000_000)


def _timed(failing: Failing, index: int) -> Iterator[Edit]:
    """Yields edits that give an aimed step a time: the rounder ones first, the latest before the failure last."""
    end_us = failing.outcome.at_us or parse_duration(failing.data.get("duration", "20s"))
    for us in (*_EARLY_US, end_us // 2 // 100_000 * 100_000):
        if 0 < us < end_us:
            yield (
                Change(path=("steps", index, "when"), deletes=True),
                Change(path=("steps", index, "at"), value=duration_text(us)),
            )


def _sooner(when: object, index: int) -> Iterator[Edit]:
    """Yields edits that wait for fewer acknowledged records."""
    if not isinstance(when, str) or not when.startswith("after-ack("):
        return
    head, _, count = when.rpartition(" ")
    for fewer in _rungs(_COUNTS, int(count) if count.isdigit() else 0):
        yield changed(f"{head} {fewer}", "steps", index, "when")


def _rounder(us: int) -> list[int]:
    """Returns times that are rounder, the roundest first: a whole second below and above, half a second, and so on."""
    found: list[int] = []
    for grain in _GRAINS_US:
        if us % grain == 0:
            break
        found += [us // grain * grain, (us // grain + 1) * grain]
    return found


def _instant_text(at: Instant, us: int) -> str:
    return f"+{duration_text(us)}" if at.is_relative else duration_text(us)


def lengths(failing: Failing, index: int) -> list[Edit]:
    """Returns edits by which a step lasts until everything is healed, or for a rounder and shorter time."""
    step = _step(failing, index)
    found = []
    for key in _DURATIONS:
        if key not in step:
            continue
        sign, text = ("-", str(step[key])[1:]) if str(step[key]).startswith("-") else ("", str(step[key]))
        us = parse_duration(text)
        found += [] if key == "by" else [deleted("steps", index, key)]
        found += [changed(sign + duration_text(rung), "steps", index, key) for rung in _TIMES_US if rung < us]
    return found


def mildness(failing: Failing, index: int) -> list[Edit]:
    """Returns edits that make a step milder: more of the disk survives, or every message is lost instead of a share."""
    step = _step(failing, index)
    found = []
    if "keep" in step or "power" in step:
        now = step.get("keep", "subset")
        found += [changed(keep, "steps", index, "keep") for keep in _KEEPS[: _KEEPS.index(now)]]
    if "share" in step and parse_percent(step["share"]) < 100:
        found.append(changed("100%", "steps", index, "share"))
    return found
