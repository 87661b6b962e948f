"""How much clients may have in flight at a node: limits in calls and bytes, of a connection and of the whole node.

Each kind of call (a stream's name, or unary) has limits of its own: consumers that fill theirs do not stop followers.
A call holds its place until its answer is written, not only until the core has answered it: answers to a client that
does not read would otherwise grow without bound. Without room nothing is read, and HTTP/2 slows the client down.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol, final

# The most calls and bytes of one connection on streams of one kind, or in unary calls. The bytes are those that a
# request brings, and the most that its answer may hold.
MOST_CALLS = 256
MOST_BYTES = 64 << 20
# The most calls and bytes of a node of one kind. A fetch that waits in the core holds no records there: its answer
# counts once it is made. So a thousand clients may wait, and what they can be sent in one turn is bounded all the same.
NODE_CALLS = 16_384
NODE_BYTES = 512 << 20
# The most bytes of a node of one kind with those that a connection without any call may take above NODE_BYTES: one call
# of each connection would be without end, where a client makes many of them.
NODE_BYTES_WITH_FIRST_CALLS = 2 * NODE_BYTES
# What a unary call counts as, unless its request is larger: few answers are.
UNARY_BYTES = 1 << 20
UNARY = "unary"


class Waiter(Protocol):
    """Somebody with calls for which there was no room."""

    def proceed(self) -> bool:
        """Tries again. Returns whether there was room for all of them."""


class Limit:
    """A number of calls and bytes that may be taken."""

    def __init__(self, most_calls: int, most_bytes: int) -> None:
        self.most_calls, self.most_bytes = most_calls, most_bytes
        self.calls = 0
        self.held_bytes = 0

    def has_room_for(self, size_bytes: int) -> bool:
        return self.calls < self.most_calls and self.held_bytes + size_bytes <= self.most_bytes


@final
class NodeLimit(Limit):
    """The limit of a whole node for calls of one kind, and the rooms that wait for it, in order of arrival."""

    def __init__(self, most_calls: int, most_bytes: int) -> None:
        super().__init__(most_calls, most_bytes)
        self.waiting: dict[Room, None] = {}

    def has_room_for_first(self, size_bytes: int) -> bool:
        """Whether a connection without any call may take one."""
        return self.calls == 0 or self.held_bytes + size_bytes <= NODE_BYTES_WITH_FIRST_CALLS

    def wait(self, room: Room) -> None:
        self.waiting[room] = None

    def leave(self, room: Room) -> None:
        self.waiting.pop(room, None)

    def wake(self) -> None:
        """Serves the rooms that wait, until one of them still waits: nobody is overtaken."""
        while self.waiting:
            room = next(iter(self.waiting))
            room.serve()
            if room in self.waiting:
                break


@final
class Slot:
    """The place of one call, from its request to the end of the write of its answer."""

    __slots__ = ("call", "is_settled", "node_bytes", "ours", "size_bytes", "waiting_bytes")

    def __init__(self, call: int, size_bytes: int, waiting_bytes: int) -> None:
        # The client's number; it may be used twice, which is the client's own loss.
        self.call = call
        # What the slot holds of the limit of its connection, and of the node's.
        self.size_bytes = self.node_bytes = size_bytes
        # What it holds of the node's while it waits in the core.
        self.waiting_bytes = waiting_bytes
        # The node's number, while the core has the call.
        self.ours = 0
        # Whether it is answered, or has ended.
        self.is_settled = False


@final
class Room:
    """The room of one connection for calls of one kind, within the room of the node for that kind.

    A connection without any call has room for one, of any size, though the node is full: a few clients that do not read
    cannot stop it. Only NODE_BYTES_WITH_FIRST_CALLS bounds these, so that many such clients cannot fill the memory.
    """

    def __init__(self, node: NodeLimit, fresh: list[tuple[Room, Slot]], most_calls: int) -> None:
        self.own = Limit(most_calls, MOST_BYTES)
        self.node = node
        # The slots of this turn, of all rooms of the node.
        self._fresh = fresh
        self._waiting: deque[Waiter] = deque()
        self._is_serving = False
        # Whether it was the node's limit that had no room when the last call was refused.
        self._is_held_by_node = False
        # The streams and calls of the connection that use this room.
        self.users = 0

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether a call that holds at most `size_bytes` may be taken now."""
        if self.own.calls == 0:
            self._is_held_by_node = not self.node.has_room_for_first(size_bytes)
            return not self._is_held_by_node
        has_own = self.own.has_room_for(size_bytes)
        self._is_held_by_node = has_own and not self.node.has_room_for(size_bytes)
        return has_own and not self._is_held_by_node

    def take(self, call: int, size_bytes: int, waiting_bytes: int = 0) -> Slot:
        """Takes the place of a call that holds at most `size_bytes`, and `waiting_bytes` while it waits in the core."""
        assert self.has_room_for(size_bytes), (call, size_bytes)
        slot = Slot(call, size_bytes, waiting_bytes)
        own, node = self.own, self.node
        own.calls += 1
        node.calls += 1
        own.held_bytes += size_bytes
        node.held_bytes += size_bytes
        # Without bytes there is nothing to free at the end of the turn, and a refused call may have no turn at all.
        if size_bytes:
            self._fresh.append((self, slot))
        return slot

    def answered(self, slot: Slot, size_bytes: int) -> None:
        """Counts a slot by the answer that it holds now, instead of by the most that it could have been."""
        assert not slot.is_settled, slot.call
        slot.is_settled = True
        self._resize(slot, size_bytes, size_bytes)
        if self._waiting or self.node.waiting:
            self.wake()

    def waits(self, slot: Slot) -> None:
        """Counts no records of the node for a call that waits in the core without any."""
        assert not slot.is_settled, slot.call
        self._resize(slot, slot.size_bytes, slot.waiting_bytes)

    def _resize(self, slot: Slot, size_bytes: int, node_bytes: int) -> None:
        self.own.held_bytes += size_bytes - slot.size_bytes
        self.node.held_bytes += node_bytes - slot.node_bytes
        slot.size_bytes, slot.node_bytes = size_bytes, node_bytes

    def release(self, slot: Slot) -> None:
        """Frees the place of a call that has ended. Those that wait try again at the next `wake`."""
        own, node = self.own, self.node
        own.calls -= 1
        node.calls -= 1
        own.held_bytes -= slot.size_bytes
        node.held_bytes -= slot.node_bytes
        assert own.calls >= 0 <= own.held_bytes, (own.calls, own.held_bytes)
        assert node.calls >= 0 <= node.held_bytes, (node.calls, node.held_bytes)
        slot.is_settled = True

    def wait(self, waiter: Waiter) -> None:
        """Lets `waiter` proceed after those that wait already, once there is room."""
        assert waiter not in self._waiting, len(self._waiting)
        self._waiting.append(waiter)
        # What the first one misses decides: it is tried first, and what a later one misses says nothing of it.
        if len(self._waiting) == 1:
            self._wait_for_node()

    def leave(self, waiter: Waiter) -> None:
        """Removes somebody who has left from those that wait."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        if not self._waiting:
            self.node.leave(self)

    def wake(self) -> None:
        """Lets those that wait try again, after places were freed: first those of this connection."""
        if self._waiting:
            self.serve()
        if self.node.waiting:
            self.node.wake()

    def serve(self) -> None:
        """Lets those that wait in this room try again, until one of them still waits."""
        if self._is_serving:
            return
        self._is_serving = True
        try:
            while self._waiting and self._waiting[0].proceed():
                self._waiting.popleft()
        finally:
            self._is_serving = False
        self._wait_for_node()

    def _wait_for_node(self) -> None:
        """Waits for the node only where that is what is missing: else it would hold up other rooms."""
        if self._waiting and self._is_held_by_node:
            self.node.wait(self)
        else:
            self.node.leave(self)


@final
class Rooms:
    """The rooms of all connections of a node, by the address of the client and the kind of call."""

    def __init__(
        self, *, most_calls: int | None = None, node_calls: int = NODE_CALLS, node_bytes: int = NODE_BYTES
    ) -> None:
        """`most_calls` are those of each connection; None: MOST_CALLS."""
        self._most_calls = most_calls
        self._node_calls, self._node_bytes = node_calls, node_bytes
        self._rooms: dict[tuple[str, str], Room] = {}
        self._nodes: dict[str, NodeLimit] = {}
        # The places that were taken in this turn.
        self.fresh: list[tuple[Room, Slot]] = []

    def items(self) -> list[tuple[tuple[str, str], Room]]:
        """Returns each room with the client's address and the kind of call."""
        return list(self._rooms.items())

    def node(self, kind: str) -> NodeLimit:
        """Returns the limit of the whole node for a kind of call."""
        limit = self._nodes.get(kind)
        if limit is None:
            limit = self._nodes[kind] = NodeLimit(self._node_calls, self._node_bytes)
        return limit

    def enter(self, peer: str, kind: str) -> Room:
        """Returns the room for a stream or call that begins; `leave` ends it."""
        room = self._rooms.get((peer, kind))
        if room is None:
            most_calls = MOST_CALLS if self._most_calls is None else self._most_calls
            room = self._rooms[peer, kind] = Room(self.node(kind), self.fresh, most_calls)
        room.users += 1
        return room

    def leave(self, peer: str, kind: str) -> None:
        """Ends the use of a room by one stream or call; the last one removes the room."""
        room = self._rooms[peer, kind]
        room.users -= 1
        assert room.users >= 0, (peer, kind)
        if room.users == 0:
            assert room.own.calls == 0, (peer, kind, room.own.calls)
            del self._rooms[peer, kind]

    def end_turn(self) -> None:
        """Frees what calls of this turn could have needed at once: those without an answer wait in the core now."""
        if not self.fresh:
            return
        fresh = self.fresh[:]
        self.fresh.clear()
        for room, slot in fresh:
            if not slot.is_settled:
                room.waits(slot)
        for limit in self._nodes.values():
            if limit.waiting:
                limit.wake()
