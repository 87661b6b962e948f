"""The shapes of plans: which families of faults a seed has much of, and how much in all. None of them dominates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from sim.swarm.choices import Choices


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A shape: `weights` are percents by which the share of seeds with a kind of that family is scaled, else `others`.

    A plan has at most `most` faults; a chain counts as one.
    """

    name: str
    weights: Mapping[str, int]
    others: int
    most: int


SHAPES = (
    Shape(name="storm", weights={}, others=70, most=16),
    Shape(name="crashes", weights={"crash": 130, "chain": 70}, others=15, most=14),
    Shape(name="network", weights={"net": 130, "client": 60}, others=15, most=14),
    Shape(name="disks", weights={"disk": 140, "clock": 60, "crash": 40}, others=15, most=14),
    Shape(name="chains", weights={"chain": 130, "unclean": 130}, others=20, most=10),
    Shape(name="topics", weights={"topic": 140, "crash": 40}, others=20, most=12),
    # One fault or chain of any kind, and nothing that hides what it does.
    Shape(name="quiet", weights={}, others=100, most=1),
)

# Chains and nothing else: what one has set up, no other fault takes away before it strikes.
AIMED = Shape(name="aimed", weights={"chain": 250}, others=0, most=3)

# Leaders that follow each other by unclean elections. In so many of a hundred seeds that allow them, nothing else
# strikes.
APART = Shape(name="apart", weights={"unclean": 200}, others=0, most=2)
_APART_PERCENT = 75

# Unclean elections that are allowed when nobody leads any more. In so many of a hundred seeds in which a topic may come
# to allow them, nothing else strikes.
ALLOWED = Shape(name="allowed", weights={"unclean": 200}, others=0, most=2)
_ALLOWED_PERCENT = 30

# Leaders whose logs are cut while a slow job is at work on them, and nothing else. In so many of a hundred seeds of
# nothing but chains.
AT_WORK = Shape(name="at-work", weights={"work": 100}, others=0, most=3)
_AT_WORK_PERCENT = 24


def draw_shape(
    choices: Choices, *, is_aimed: bool, is_unclean: bool = False, may_be_unclean: bool = False
) -> Shape:
    """Returns the shape of a seed's plan.

    `is_unclean` says whether every leader may be elected uncleanly, `may_be_unclean` whether a step may allow it.
    """
    if is_unclean and choices.chance(_APART_PERCENT, "leaders apart"):
        return APART
    if may_be_unclean and not is_unclean and choices.chance(_ALLOWED_PERCENT, "allowed late"):
        return ALLOWED
    if is_aimed:
        return AT_WORK if choices.chance(_AT_WORK_PERCENT, "at work") else AIMED
    return choices.pick(SHAPES, "shape")
