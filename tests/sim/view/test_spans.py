"""Faults become spans from the words of the world."""

from __future__ import annotations

import pytest

from sim.view.spans import LINKS, Span, Spans


def spans_of(*told: str) -> list[tuple[str, str, int, int]]:
    """Returns lane, kind, first and end of the spans of these lines, one an event, with one more event after them."""
    spans = Spans()
    for index, text in enumerate(told):
        spans.on_told(index, text)
    return [(span.lane, span.what, span.first, span.end) for span in spans.finish(len(told))]


@pytest.mark.parametrize(
    ("begin", "end", "lane", "what"),
    [
        ("pause broker-2, the leader(t/0)", "broker-2 goes on", "broker-2", "paused"),
        ("the disk of b-1 takes 4 ms longer for each call", "the disk of b-1 is fast again", "b-1", "slow disk"),
        ("broker-1 replays no metadata", "broker-1 replays metadata again", "broker-1", "no metadata"),
        ("cut Late <-> leader(t/0)", "heal Late <-> leader(t/0)", LINKS, "cut"),
        ("slow clients -> leader(t/0) by 300 ms", "clients -> leader(t/0) is fast again", LINKS, "slow"),
        ("lose 20% on all -> all", "all -> all loses nothing any more", LINKS, "loss"),
        ("lose 40% of Fetch on a -> b", "a -> b loses nothing any more", LINKS, "loss"),
        ("clog broker 2 <-> others", "unclog broker 2 <-> others", LINKS, "clogged"),
        ("a -> b carries 16384 bytes a second", "a -> b is wide again", LINKS, "narrow"),
        (
            "flip a bit in 9% of the messages with records on a -> b", "a -> b flips no bits any more", LINKS,
            "flipped bits",
        ),
        (
            "flip a bit in 9% of the messages, anywhere, on a -> b", "a -> b flips no bits any more", LINKS,
            "flipped bits",
        ),
        ("the disk of broker-1 hangs", "the disk of broker-1 hangs no more", "broker-1", "disk hangs"),
        ("the disk of broker-1 fails with io", "the disk of broker-1 works again", "broker-1", "disk fails"),
        ("syncs of broker-1 write nothing from now on", "syncs of broker-1 write again", "broker-1", "syncs lie"),
        ("5% of what b-1 writes is lost", "what b-1 writes arrives again", "b-1", "writes go astray"),
        ("each step of producer-1 takes 4 ms longer", "producer-1 is fast again", "producer-1", "slow steps"),
        ("the clock of b-1 stands still", "the clock of b-1 runs again, from where it stood", "b-1", "clock stands"),
    ],
)  # fmt: skip
def test_a_fault_lasts_until_the_words_that_end_it(begin: str, end: str, lane: str, what: str) -> None:
    assert spans_of(begin, "elsewhere", end, "later") == [(lane, what, 0, 2)]


def test_a_fault_that_is_never_ended_lasts_until_everything_is_healed() -> None:
    told = ("cut a -> b", "heal everything; the cluster has to agree now", "every replica agrees")
    assert spans_of(*told) == [(LINKS, "cut", 0, 1)]


def test_a_node_is_healed_under_the_name_that_the_scenario_gave_it() -> None:
    told = ("cut broker-2 <-> everyone but clients", "kill broker-2, the First", "heal First", "later")
    assert spans_of(*told) == [(LINKS, "cut", 0, 2)]


def test_a_node_of_which_nothing_was_said_is_the_one_that_is_cut_off() -> None:
    assert spans_of("cut broker-2 <-> everyone", "heal Lonely", "later") == [(LINKS, "cut", 0, 1)]


def test_healing_one_node_leaves_the_faults_of_another() -> None:
    told = ("cut broker-1 -> broker-2", "cut broker-3 <-> everyone", "heal broker-1", "later")
    assert spans_of(*told) == [(LINKS, "cut", 0, 2), (LINKS, "cut", 1, 4)]


def test_healing_links_ends_their_faults_that_strike_some_methods_too() -> None:
    told = ("clog a -> b, Fetch only", "slow a -> b, Fetch and Produce only by 5 ms", "heal a -> b", "later")
    assert spans_of(*told) == [(LINKS, "clogged", 0, 2), (LINKS, "slow", 1, 2)]


@pytest.mark.parametrize("everything", ["all", "all links", "all <-> others"])
def test_healing_all_links_ends_the_faults_of_each(everything: str) -> None:
    told = ("cut broker-1 -> broker-2", "clog broker 3 <-> others", f"heal {everything}", "later")
    assert spans_of(*told) == [(LINKS, "cut", 0, 2), (LINKS, "clogged", 1, 2)]


def test_a_pause_of_a_node_that_is_down_is_none() -> None:
    assert spans_of("pause broker-2, the leader(t/0): it is down already") == []


def test_a_process_is_down_from_its_end_to_its_start_and_a_pause_ends_with_it() -> None:
    spans = Spans()
    spans.on_told(0, "pause broker-1")
    spans.on_life(2, "broker-1", "end", {"how": "power"})
    spans.on_life(5, "broker-1", "start", {"life": 2})
    assert spans.finish(9) == [
        Span("broker-1", "paused", 0, 2, "pause broker-1"),
        Span("broker-1", "down", 2, 5, "power loss"),
    ]
