"""Each call holds its place at a node until its answer is written, and no longer (C6)."""

from __future__ import annotations

from typing import final
from unittest.mock import patch

import pytest

from cluster.core.connection.outgoing import MOST_OF_A_METHOD, UnaryCalls
from cluster.core.connection.rooms import Room, Rooms
from sim.bugs import install
from sim.checkers.base import Jury
from sim.checkers.call_places import CallPlaces
from sim.checkers.ghost import Ghost
from sim.hosts.shell import Shell
from tests.sim.hosts.fake_cores import Echo, Onlooker, Site, ask, ask_alone


def judged() -> tuple[CallPlaces, Jury]:
    jury = Jury(Ghost(), (), now_us=lambda: 0, on_violation=lambda found: None)
    return CallPlaces(jury), jury


@final
class PlacesOnlooker(Onlooker):
    """An observer that shows all places to the checker."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.jury = judged()

    def on_places(self, shell: Shell, room: Room, in_core: int, unwritten: int, held_up: int) -> None:
        self.places.on_places(shell.name, room, in_core, unwritten, held_up)

    def on_waiting_call(self, shell: Shell, target: int, path: str, taken: int, most: int) -> None:
        self.places.on_waiting_call(shell.name, target, path, taken, most)


def found_in_a_run() -> list[str]:
    """Five calls of one turn, and one after them."""
    onlooker = PlacesOnlooker()
    asker = Echo([ask(2, call, call) for call in range(5)])
    site = Site(lambda number: asker if number == 1 else Echo(), onlooker=onlooker)
    site.start()
    site.world.run_to(100_000)
    site.nodes[1].perform([ask(2, 5, 5)])
    site.world.run_to(200_000)
    assert sorted(asker.answers()) == list(range(6))
    return [each.checker for each in onlooker.jury.violations]


def test_c6_a_place_that_is_freed_before_its_answer_is_written_is_found() -> None:
    assert found_in_a_run() == []
    with install("connection-frees-places-early"):
        assert set(found_in_a_run()) == {"call-places"}


def found_in_a_run_of_calls() -> list[str]:
    """Two unary calls more than a peer may have at a time, where a call that ends passes its place on."""
    onlooker = PlacesOnlooker()
    asker = Echo([ask_alone(2, call, call) for call in range(MOST_OF_A_METHOD + 2)])
    site = Site(lambda number: asker if number == 1 else Echo(), onlooker=onlooker)
    site.start()
    site.world.run_to(100_000)
    return [each.what for each in onlooker.jury.violations]


def test_c6_a_place_with_the_peer_that_is_not_passed_on_is_found() -> None:
    assert found_in_a_run_of_calls() == []
    with patch.object(UnaryCalls, "_give_places", gives_places_only_to_a_call_that_is_sent):
        found = found_in_a_run_of_calls()
    assert found[0] == f"node-1 lets calls of Metadata to node 2 wait, which has 31 of {MOST_OF_A_METHOD}"


def gives_places_only_to_a_call_that_is_sent(self: UnaryCalls, path: str) -> None:
    waiting, taken = self._waiting[path], self._places.get(path, 0)
    # A call that has just been sent is the last of those that wait.
    if waiting and taken < self._most_of_a_method and len(waiting) == 1:
        call, body = waiting.popitem(last=False)
        self._ready[call] = body
        taken += 1
    self._places[path] = taken


@pytest.mark.parametrize(("taken", "is_wrong"), [(2, False), (1, True)])
def test_c6_no_call_waits_while_the_peer_has_room(taken: int, is_wrong: bool) -> None:
    places, jury = judged()
    places.on_waiting_call("node", 2, "/replog.v1.Data/Metadata", taken, 2)
    assert bool(jury.violations) is is_wrong


def a_room(calls: int) -> tuple[Rooms, Room]:
    rooms = Rooms()
    room = rooms.enter("client", "Fetch")
    for call in range(calls):
        room.take(call, 100)
    return rooms, room


@pytest.mark.parametrize(
    ("in_core", "unwritten", "is_wrong"),
    [(2, 0, False), (1, 1, False), (0, 1, False), (1, 0, True), (2, 1, True), (0, 3, True)],
)
def test_c6_a_room_with_two_calls_has_two_in_the_core_or_to_write(
    in_core: int, unwritten: int, is_wrong: bool
) -> None:
    places, jury = judged()
    places.on_places("node", a_room(2)[1], in_core, unwritten, 0)
    assert bool(jury.violations) is is_wrong


@pytest.mark.parametrize(("most_calls", "is_wrong"), [(2, False), (3, True)])
def test_c6_no_call_waits_while_there_is_a_place(most_calls: int, is_wrong: bool) -> None:
    places, jury = judged()
    room = a_room(2)[1]
    room.own.most_calls = most_calls
    places.on_places("node", room, 2, 0, 1)
    assert bool(jury.violations) is is_wrong


@pytest.mark.parametrize(("most_calls", "is_wrong"), [(2, False), (3, True)])
def test_c6_no_connection_waits_for_the_node_while_that_has_a_place(most_calls: int, is_wrong: bool) -> None:
    places, jury = judged()
    rooms, room = a_room(2)
    room.node.wait(rooms.enter("another client", "Fetch"))
    room.node.most_calls = most_calls
    places.on_places("node", room, 2, 0, 0)
    assert ["another connection" in each.what for each in jury.violations] == [True] * is_wrong


def test_c6_bytes_that_stay_when_all_calls_have_ended_are_found() -> None:
    places, jury = judged()
    room = a_room(0)[1]
    places.on_places("node", room, 0, 0, 0)
    assert not jury.violations
    room.node.held_bytes = 1
    places.on_places("node", room, 0, 0, 0)
    room.own.held_bytes = 1
    places.on_places("node", room, 0, 0, 0)
    assert ["of that kind" in each.what for each in jury.violations] == [True, False]


def test_c6_the_limit_of_a_node_counts_the_calls_of_all_its_connections() -> None:
    places, jury = judged()
    rooms, room = a_room(2)
    limit = rooms.node("Fetch")
    places.judge_sum("node", "Fetch", limit, [room])
    rooms.end_turn()
    places.judge_sum("node", "Fetch", limit, [room])
    assert not jury.violations and limit.held_bytes == 0
    limit.calls += 1
    places.judge_sum("node", "Fetch", limit, [room])
    limit.calls, limit.held_bytes = 2, 201
    places.judge_sum("node", "Fetch", limit, [room])
    assert [each.checker for each in jury.violations] == ["call-places"] * 2


@pytest.mark.parametrize(("first_calls", "is_wrong"), [(1, False), (0, True)])
def test_c6_the_first_call_of_a_connection_waits_for_no_other(first_calls: int, is_wrong: bool) -> None:
    places, jury = judged()
    rooms, _ = a_room(2)
    other = rooms.enter("another client", "Fetch")
    other.node.most_calls = 2
    for call in range(first_calls):
        other.take(call, 100)
    places.on_places("node", other, first_calls, 0, 1)
    assert ["first call" in each.what for each in jury.violations] == [True] * is_wrong
