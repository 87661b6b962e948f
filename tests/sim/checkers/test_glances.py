"""A glance at a leader: it is like the one before only if nothing has changed that its state is made of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sim.witness.leaders import Glance

ISR, CONFIG, IMAGE = object(), object(), object()


def glance(of: SimpleNamespace, image: object = IMAGE) -> Glance:
    parts: Any = (of, of.leader, image)
    return Glance(*parts)


def replica() -> SimpleNamespace:
    """Returns what a glance sees of a replica that leads, with two followers."""
    followers = {
        number: SimpleNamespace(log_end_offset=4, last_caught_up_ms=9, broker_epoch=1) for number in (2, 3)
    }
    local = SimpleNamespace(config=CONFIG, log_end_offset=5, recovery_point=2)
    return SimpleNamespace(
        leader=SimpleNamespace(isr=ISR, followers=followers, lag_time_max_ms=30),
        leader_epoch=3,
        flushed_ms=8,
        log=SimpleNamespace(
            local=local,
            marks=SimpleNamespace(high_watermark=4),
            epochs=SimpleNamespace(last_epoch=3, last_start=1),
        ),
    )


def test_a_partition_that_stands_still_looks_alike() -> None:
    found = replica()
    assert glance(found).is_like(glance(found))


@pytest.mark.parametrize(
    "path",
    [
        "leader_epoch",
        "flushed_ms",
        "leader.lag_time_max_ms",
        "log.local.log_end_offset",
        "log.local.recovery_point",
        "log.marks.high_watermark",
        "log.epochs.last_epoch",
        "log.epochs.last_start",
    ],
)
def test_a_number_that_has_changed_is_seen(path: str) -> None:
    found = replica()
    before, holder = glance(found), found
    *way, name = path.split(".")
    for step in way:
        holder = getattr(holder, step)
    setattr(holder, name, getattr(holder, name) + 1)
    assert not glance(found).is_like(before)


@pytest.mark.parametrize("name", ["log_end_offset", "last_caught_up_ms", "broker_epoch"])
def test_what_the_leader_knows_of_a_follower_is_seen(name: str) -> None:
    found = replica()
    before = glance(found)
    setattr(found.leader.followers[3], name, 7)
    assert not glance(found).is_like(before)


def test_other_objects_are_seen() -> None:
    found = replica()
    before = glance(found)
    assert not glance(found, object()).is_like(before)
    for holder, name in ((found.leader, "isr"), (found.log.local, "config")):
        kept = getattr(holder, name)
        setattr(holder, name, object())
        assert not glance(found).is_like(before), name
        setattr(holder, name, kept)
    found.leader.followers.pop(3)
    assert not glance(found).is_like(before)
