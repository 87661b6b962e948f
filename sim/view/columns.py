"""The events of a page as columns of numbers, and their lines as one text."""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from enum import IntFlag
from typing import final

from sim.view.trace_file import Event

# No node, no sending event, no time of sending.
NOTHING = -1
# Copies of a message that the network doubled arrive within as many messages of each other.
_REMEMBERED = 4096
_NETWORK = "network"
_CONTROLLER_ID, _CLIENT_IDS_FROM = 1000, 2000
# The order in which a run numbers its clients (sim/cluster.py).
_CLIENTS = ("producer", "consumer", "seeker", "admin")
# Why the network says that messages are lost which waited in a connection: nobody says when they were sent.
_WITH_CONNECTION = "connection broken"


class Flag(IntFlag):
    """What the page must show of an event at one look; it knows these numbers."""

    LOST = 1
    DUPLICATE = 2
    # A refused request, a broken connection, a failed send.
    FAILED = 4
    VIOLATION = 8
    FAULT = 16
    # An event that the story tells.
    TOLD = 32


@final
class Names:
    """Numbers for names, in the order in which they are first asked for."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def all(self) -> list[str]:
        return list(self._numbers)


@final
class Columns:
    """One row an event. A message that was lost has the row of its receiver, which never got it."""

    def __init__(self) -> None:
        self.nodes, self.kinds = Names(), Names()
        # Microseconds; a double holds them exactly.
        self.at_us = array("d")
        self.sent_us = array("d")
        self.node = array("h")
        self.source = array("h")
        self.kind = array("h")
        self.flags = array("B")
        # The row of the event whose step sent the message.
        self.cause = array("i")
        self._text = zlib.compressobj(6)
        self._compressed = bytearray()
        self.text_bytes = 0
        # The rows of each node's own events, with their times, to find who sent a message.
        self._rows: dict[int, tuple[array[int], array[float]]] = {}
        # Row, numbers of sender and receiver, and whether the message was lost with its connection.
        self._lost: list[tuple[int, int, int, bool]] = []
        self._seen: OrderedDict[tuple[int, bytes], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.at_us)

    def skip(self, event: Event) -> None:
        """Leave an event out; its node has its number and its lane all the same."""
        self.nodes.number(event.node)

    def add(self, event: Event, flags: Flag) -> int:
        """Add an event; returns its row."""
        row = len(self)
        if event.kind == "lost" and event.node == _NETWORK:
            self._add_lost(row, event, flags)
        else:
            self._add_event(row, event, flags)
        self._keep(event.text)
        assert len(self.at_us) == len(self.cause) == row + 1, (len(self.at_us), len(self.cause), row)
        return row

    def _add_event(self, row: int, event: Event, flags: Flag) -> None:
        node, source, cause, sent_us = self.nodes.number(event.node), NOTHING, NOTHING, NOTHING
        if event.kind in ("request", "response"):
            source = self.nodes.number(str(event.members["from"]))
            sent_us = int(event.members["sent"])
            cause = self._sender(source, sent_us)
            if event.kind == "request" and self._is_copy(node, event.text):
                flags |= Flag.DUPLICATE
        self._put(event.at_us, sent_us, node, source, kind_of(event), flags, cause)
        rows, times = self._rows.setdefault(node, (array("i"), array("d")))
        rows.append(row)
        times.append(event.at_us)

    def _add_lost(self, row: int, event: Event, flags: Flag) -> None:
        is_with_connection = event.members.get("why") == _WITH_CONNECTION
        self._lost.append((row, int(event.members["from"]), int(event.members["to"]), is_with_connection))
        self._put(event.at_us, event.at_us, NOTHING, NOTHING, "lost", flags | Flag.LOST, NOTHING)

    def _put(
        self, at_us: int, sent_us: int, node: int, source: int, kind: str, flags: Flag, cause: int
    ) -> None:
        self.at_us.append(at_us)
        self.sent_us.append(sent_us)
        self.node.append(node)
        self.source.append(source)
        self.kind.append(self.kinds.number(kind))
        self.flags.append(flags)
        self.cause.append(cause)

    def _sender(self, source: int, sent_us: int) -> int:
        """Returns the last row of the sender up to that time: a step sends at its end, before the next step begins."""
        rows, times = self._rows.get(source, (array("i"), array("d")))
        place = bisect_right(times, sent_us)
        return rows[place - 1] if place and sent_us >= 0 else NOTHING

    def _last_before(self, row: int, node: int) -> int:
        """Returns the node's last row before another row: what is lost was sent by a step that is written already."""
        rows, _ = self._rows.get(node, (array("i"), array("d")))
        place = bisect_left(rows, row)
        return rows[place - 1] if place else NOTHING

    def _is_copy(self, node: int, text: bytes) -> bool:
        """Whether the node has got the same request, sent at the same moment, a short while ago."""
        key = (node, text[text.index(b'"from":') :])
        if key in self._seen:
            return True
        self._seen[key] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return False

    def _keep(self, text: bytes) -> None:
        self._compressed += self._text.compress(text + b"\n")
        self.text_bytes += len(text) + 1

    def finish(self) -> bytes:
        """Returns the lines of all events, compressed; lost messages have their nodes after that."""
        names = self.nodes.all()
        for row, source, target, is_with_connection in self._lost:
            self.source[row] = self.nodes.number(node_name(source, names))
            self.node[row] = self.nodes.number(node_name(target, names))
            self.cause[row] = NOTHING if is_with_connection else self._last_before(row, self.source[row])
        self._lost.clear()
        return bytes(self._compressed + self._text.flush())

    def arrays(self) -> dict[str, array[int] | array[float]]:
        """Returns the columns under the names by which the page asks for them."""
        return {
            "at": self.at_us, "sent": self.sent_us, "node": self.node, "source": self.source,
            "kind": self.kind, "flags": self.flags, "cause": self.cause,
        }  # fmt: skip


def kind_of(event: Event) -> str:
    """Returns what happened in one word: the class of a message, else the event's kind."""
    body = event.members.get("body")
    return str(body["is"]) if isinstance(body, dict) and "is" in body else event.kind


def node_name(node_id: int, names: list[str]) -> str:
    """Returns the name of a node by its number; `names` are those of all nodes that the trace has named so far.

    Clients are numbered after the admin that creates the topics, kind by kind.
    """
    if node_id == _CONTROLLER_ID:
        return "controller"
    if node_id < _CONTROLLER_ID:
        return f"broker-{node_id}"
    number = node_id - _CLIENT_IDS_FROM
    if number == 0:
        return "admin"
    for kind in _CLIENTS:
        count = _highest(kind, names)
        if number <= count:
            return f"{kind}-{number}"
        number -= count
    return f"client {node_id}"


def _highest(kind: str, names: list[str]) -> int:
    """Returns the highest number of a client of that kind; 0 if there is none."""
    ends = [name.removeprefix(f"{kind}-") for name in names if name.startswith(f"{kind}-")]
    return max((int(end) for end in ends if end.isdecimal()), default=0)
