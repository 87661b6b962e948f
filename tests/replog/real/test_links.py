"""What a link between two processes does to the bytes that it carries."""

from __future__ import annotations

import asyncio

from replog.real.links import RETRANSMIT_US, Link, Links
from storage.draws import Draws


def link(*, loss_percent: int = 0) -> Link:
    return Link("a", "b", Draws(1), loss_percent=loss_percent)


def test_a_link_that_is_held_twice_carries_again_after_two_releases() -> None:
    held = link()
    held.hold()
    held.hold()
    held.release()
    assert held.is_held
    held.release()
    assert not held.is_held


def test_a_heal_ends_all_holds_and_the_release_of_an_earlier_hold_changes_nothing_then() -> None:
    held = link()
    held.hold()
    before = held.generation
    held.heal()
    held.release()
    assert (held.is_held, held.generation) == (False, before + 1)
    held.hold()
    assert held.is_held


def test_whoever_waits_for_a_held_link_goes_on_when_it_is_free() -> None:
    async def waits() -> bool:
        held = link()
        held.hold()
        waiting = asyncio.get_running_loop().create_task(held.until_free())
        await asyncio.sleep(0)
        has_waited = not waiting.done()
        held.release()
        await waiting
        return has_waited

    assert asyncio.run(waits())


def test_lost_bytes_come_a_retransmission_later_and_a_heal_keeps_what_the_network_loses() -> None:
    lossy = link(loss_percent=30)
    delays = [lossy.delay_us() for _ in range(1_000)]
    assert set(delays) == {0, RETRANSMIT_US}
    assert 200 < delays.count(RETRANSMIT_US) < 400
    lossy.loss_percent, lossy.extra_us = 100, 5
    assert lossy.delay_us() == RETRANSMIT_US + 5
    lossy.heal()
    assert (lossy.loss_percent, lossy.extra_us) == (30, 0)


def test_the_links_between_groups_are_those_between_different_processes_each_once() -> None:
    links = Links(Draws(0))
    forth = links.between(["a", "b"], ["b", "c"], both_ways=False)
    assert [(each.source, each.target) for each in forth] == [("a", "b"), ("a", "c"), ("b", "c")]
    both = links.between(["a"], ["b"], both_ways=True)
    assert [(each.source, each.target) for each in both] == [("a", "b"), ("b", "a")]
    assert both[0] is forth[0]
