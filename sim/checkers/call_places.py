"""The places of calls, which bound what a node holds for its clients: none is freed too early or too late."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from cluster.core.connection.rooms import Limit, NodeLimit, Room
from sim.checkers.base import Jury


@final
class CallPlaces:
    """Judges how many places a connection holds on its streams of one kind.

    A call has its place until its answer is written, not only until the core has answered it (C6): answers to a client
    that does not read would else grow without bound. After that the place is free again, and so are its bytes, for
    the calls that wait.
    """

    name = "call-places"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury

    def on_places(self, node: str, room: Room, in_core: int, unwritten: int, held_up: int) -> None:
        """Receives how many calls of a room the core of its node has.

        `unwritten` is the number of its streams with answers that are not written: each has one or more. `held_up` is
        the number of those with calls that wait, after the room has served them.
        """
        own, all_of_node = room.own, room.node
        if own.calls < in_core + unwritten:
            what = f"for {in_core} calls in the core and the answers that {unwritten} streams have to write"
            self._report(node, f"has {own.calls} places {what}")
        elif not unwritten and own.calls > in_core:
            self._report(node, f"holds {own.calls} places for {in_core} calls: all other answers are written")
        elif held_up and own.calls == 0 and all_of_node.held_bytes <= all_of_node.most_bytes:
            self._report(node, "lets the first call of a connection wait, though it may have one at any time")
        elif held_up and _has_room(own) and _has_room(all_of_node):
            self._report(node, f"lets calls wait, and has {own.calls} of {own.most_calls} places taken")
        elif all_of_node.waiting and _waits_in_vain(all_of_node):
            what = f"and has {all_of_node.calls} of {all_of_node.most_calls} places of that kind taken"
            self._report(node, f"lets the calls of another connection wait, {what}")
        elif own.calls == 0 != own.held_bytes:
            self._report(node, f"holds {own.held_bytes} bytes for a connection without any call")
        elif all_of_node.calls == 0 != all_of_node.held_bytes:
            self._report(node, f"holds {all_of_node.held_bytes} bytes, and has no call of that kind")

    def on_waiting_call(self, caller: str, target: int, path: str, taken: int, most: int) -> None:
        """Receives a method of which unary calls wait while the peer has `taken` of the `most` that it may have."""
        if taken < most:
            method = path.rpartition("/")[2]
            self._report(caller, f"lets calls of {method} to node {target} wait, which has {taken} of {most}")

    def judge_sum(self, node: str, kind: str, limit: Limit, rooms: Iterable[Room]) -> None:
        """Judge whether the limit of a whole node counts what its connections hold for one kind of stream."""
        owned = list(rooms)
        calls, held_bytes = sum(each.own.calls for each in owned), sum(each.own.held_bytes for each in owned)
        # A fetch that waits in the core holds no bytes of the node.
        if limit.calls != calls or not 0 <= limit.held_bytes <= held_bytes:
            what = f"has {limit.calls} calls with {limit.held_bytes} bytes on {kind}"
            self._report(node, f"{what}, and its connections {calls} with {held_bytes}")

    def _report(self, node: str, what: str) -> None:
        self._jury.report(self.name, f"{node} {what}")


def _waits_in_vain(node: NodeLimit) -> bool:
    """Whether the connection that waits longest for the limit of a node could go on: those behind it wait for it."""
    first = next(iter(node.waiting), None)
    return first is not None and _has_room(first.own) and _has_room(node)


def _has_room(limit: Limit) -> bool:
    """Whether there is a place, and half of the bytes: no call of a run needs more."""
    return limit.calls < limit.most_calls and limit.held_bytes <= limit.most_bytes // 2
