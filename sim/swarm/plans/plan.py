"""Draws a plan: which kinds of faults are on, how often each strikes, and when."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from sim.swarm.choices import Choices, Part
from sim.swarm.plans.catalogue import FAULTS
from sim.swarm.plans.ground import LAST, Fault, Ground
from sim.swarm.plans.shapes import AIMED, ALLOWED, APART, AT_WORK, Shape
from sim.swarm.profiles import Profile

# Steps strike from so long after the warm-up on. The topics exist by then, and clients are at work, unless the network
# is very bad.
_AFTER_WARM_UP_MS = 200
# The time that is left after the last fault, so that it strikes before everything is healed.
_LAST_MS = 300
# How long a step looks for its target or its moment, unless it says so itself: those after it may wait for it.
_WITHIN = "1s"
# In so many of a hundred plans of nothing but chains each chain comes to its end before the next one begins. Leaders
# that follow each other uncleanly always do: they take a topic's leader and its properties from all other faults.
_IN_TURN_PERCENT = 80
# The partition that a step of a chain aims at.
_AIMED_AT = re.compile(r"\(([\w.-]+/\d+)\b")
# How long the next chain waits until all replicas of its partition are in sync.
_WHOLE_WITHIN = "3s"


class Strike(NamedTuple):
    """One fault of a plan: its time, its kind, and its steps."""

    at_ms: int
    # Orders the faults of one moment.
    rank: int
    kind: str
    steps: list[Part]


def draw_plan(
    ground: Ground, shape: Shape, choices: Choices, end_ms: int, only: Collection[str] = ()
) -> list[Strike]:
    """Returns the faults in the order of their times; with `only` those of these kinds, the same as without it."""
    assert first_step_ms(ground) + _LAST_MS < end_ms, end_ms
    drawn = sorted(_all(ground, shape, choices, end_ms))
    kept = _spread(drawn, shape.most)
    is_aimed = shape is AIMED and choices.chance(_IN_TURN_PERCENT, "in turn")
    if is_aimed or shape in (APART, ALLOWED, AT_WORK):
        kept = _in_turn(kept, first_step_ms(ground), end_ms)
    if is_aimed:
        first = next((strike for strike in kept if FAULTS[strike.kind].family == "chain"), None)
        may_heal = all(FAULTS[strike.kind].family != "controller" for strike in kept)
        kept = [_from_whole(ground, strike, is_mended=may_heal and strike is not first) for strike in kept]
    return [strike for strike in kept if not only or strike.kind in only]


def first_step_ms(ground: Ground) -> int:
    """Returns the time from which on steps strike."""
    return ground.scenario.warm_up // 1_000 + _AFTER_WARM_UP_MS


def steps_of(plan: list[Strike]) -> list[Part]:
    """Returns the plan as the steps of a scenario. Names of targets are made different for each fault."""
    steps: list[Part] = []
    for number, strike in enumerate(plan, start=1):
        names = {str(step["as"]): f"{step['as']}{number}" for step in strike.steps if "as" in step}
        for index, step in enumerate(strike.steps):
            at: Part = {"at": f"{strike.at_ms}ms"} if index == 0 and "when" not in step else {}
            named = {key: _renamed(value, names) for key, value in step.items()}
            steps.append(at | {"within": _WITHIN} | named)
    return steps


def _renamed(value: object, names: Mapping[str, str]) -> object:
    """Returns the value with other names of targets in it; a link, as `L <-> broker 1`, has its target as a word."""
    if not isinstance(value, str):
        return value
    return " ".join(names.get(word, word) for word in value.split(" "))


def _all(ground: Ground, shape: Shape, choices: Choices, end_ms: int) -> Iterator[Strike]:
    first_ms = first_step_ms(ground)
    for fault in FAULTS.values():
        own = choices.within("fault", fault.name)
        if not fault.is_possible(ground):
            continue
        for number in range(_count(fault, shape, own, ground.profile)):
            each = own.within(number)
            steps = fault.draw(ground, each)
            last_ms = max(first_ms, end_ms - _LAST_MS - fault.lasts_ms)
            at_ms = last_ms if fault.family == LAST else each.between(first_ms, last_ms, "at")
            if steps:
                yield Strike(at_ms, each.below(1 << 30, "rank"), fault.name, steps)


def _count(fault: Fault, shape: Shape, choices: Choices, profile: Profile) -> int:
    """Returns how often a kind strikes in this plan: not at all unless it is on in this seed."""
    if fault.family == "controller":
        percent = fault.percent if profile is Profile.EDGE else 0
    elif fault.family == LAST:
        # In small plans nothing is to hide what the one fault, or the two, have done.
        percent = fault.percent if shape.most > 2 else 0
    elif fault.family == "work" and shape is not AT_WORK:
        # No job is slow, so nothing is at work.
        percent = 0
    else:
        percent = min(100, fault.percent * shape.weights.get(fault.family, shape.others) // 100)
    if not choices.chance(percent, "on"):
        return 0
    return choices.between(1, fault.most, "count")


def _from_whole(ground: Ground, strike: Strike, *, is_mended: bool) -> Strike:
    """Returns the chain with steps before it that wait until all replicas are in sync.

    With `is_mended` they end what the chain before has left. They would end an absence of the controller, too.
    """
    aims = _AIMED_AT.findall(" ".join([str(value) for step in strike.steps for value in step.values()]))
    if FAULTS[strike.kind].family != "chain" or not aims:
        return strike
    leader: Part = {"pick": f"leader({aims[0]})"}
    before: list[Part] = [{"heal": "all"}, {"restart": "all"}] if is_mended else [leader]
    whole: Part = {"when": f"isr({aims[0]}) >= {ground.replicas(aims[0])}", "within": _WHOLE_WITHIN}
    return strike._replace(steps=[*before, whole | leader, *strike.steps])


def _spread(drawn: list[Strike], most: int) -> list[Strike]:
    """Returns at most so many of the faults, those of lowest rank, in order of time, beside those that stay."""
    staying, others = _apart(drawn)
    return sorted((*staying, *others[:most]))


def _apart(strikes: list[Strike]) -> tuple[list[Strike], list[Strike]]:
    """Returns the faults that no other ones displace, as the controller's absence, and the others by their rank."""
    staying = [strike for strike in strikes if FAULTS[strike.kind].family in ("controller", LAST)]
    others = [strike for strike in strikes if strike not in staying]
    return staying, sorted(others, key=lambda strike: strike.rank)


def _in_turn(kept: list[Strike], first_ms: int, end_ms: int) -> list[Strike]:
    """Returns the faults one after the other, as far as there is time for them, beside those that stay."""
    staying, others = _apart(kept)
    end_ms = min([end_ms, *[strike.at_ms for strike in staying if FAULTS[strike.kind].family == LAST]])
    at_ms, placed = first_ms, [strike._replace(at_ms=first_ms) for strike in others[:1]]
    for before, strike in pairwise(others):
        at_ms += FAULTS[before.kind].lasts_ms
        if at_ms + FAULTS[strike.kind].lasts_ms > end_ms:
            break
        placed.append(strike._replace(at_ms=at_ms))
    assert len(placed) <= len(others), (placed, others)
    return sorted((*staying, *placed))
