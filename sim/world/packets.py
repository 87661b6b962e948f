"""Packets of connections between nodes, their channels, and a node as the network sees it."""

from __future__ import annotations

from enum import Enum
from typing import Protocol, final

from cluster.core.connection.merging import MERGE_CALLS_BYTES
from cluster.core.connection.pieces import PIECE_BYTES
from cluster.core.messages import RequestBody

# What may be written to a channel before the other side has read it, as in HTTP/2.
WINDOW_BYTES = 1 << 16


class Reachability(Enum):
    """The reaction of a machine to packets that arrive for a process."""

    UP = "up"
    # The process has ended, and the machine refuses the connection.
    REFUSING = "refusing"
    # The machine has no power and does not answer.
    SILENT = "silent"


class Kind(Enum):
    """What a packet is."""

    CONNECT = "connect"
    ACCEPT = "accept"
    REFUSE = "refuse"
    # Bytes of a channel.
    FRAME = "frame"
    # The other side of a channel has read, and more may be written.
    CREDIT = "credit"
    # The dialer sends nothing more on a channel, and still reads.
    HALF_CLOSE = "half_close"
    # The other side has ended a channel.
    RESET_CHANNEL = "reset_channel"
    # The other side has ended the connection.
    RESET = "reset"


# Later than any time.
NEVER_US = 1 << 62


@final
class Sender:
    """One life of a process, as far as its packets go: what it was to send after `killed_us` never leaves it."""

    __slots__ = ("killed_us",)

    def __init__(self) -> None:
        self.killed_us = NEVER_US


class Endpoint(Protocol):
    """A node or client as the network sees it."""

    node_id: int
    name: str
    life_number: int
    sender: Sender

    def reachability(self) -> Reachability: ...

    def receive(self, packet: Packet) -> None:
        """Receives a packet of a connection from or to this life."""

    def on_broken(self, connection: Connection) -> None:
        """Learns that what it sent on the connection could not be delivered for too long."""


@final
class Exchange:
    """A request as its receiver has it, until it is answered.

    `stray` is None, or for a request that nobody of the cluster has sent, why it must be refused; empty if it need not.
    """

    __slots__ = ("asked_us", "body", "path", "sent_us", "source", "stray")

    def __init__(
        self, *, source: Endpoint, body: RequestBody, path: str, sent_us: int, stray: str | None = None
    ) -> None:
        self.source, self.body, self.path, self.sent_us = source, body, path, sent_us
        self.stray = stray
        # When the core got it; -1 before.
        self.asked_us = -1


@final
class Connection:
    """A connection from a life of one process to a life of another."""

    __slots__ = ("_last_us", "_leaving", "dialer", "dialer_life", "number", "target", "target_life")

    def __init__(self, number: int, dialer: Endpoint, target: int) -> None:
        self.number, self.dialer, self.target = number, dialer, target
        self.dialer_life = dialer.life_number
        # The life that accepted the connection; 0 before, and always 0 for datagrams.
        self.target_life = 0
        # When the last packet that has left its sender arrives, at the dialer and at the target. Then the packets whose
        # senders have not ended their steps yet, each with the time of its arrival.
        self._last_us = [0, 0]
        self._leaving: tuple[list[tuple[Packet, int]], list[tuple[Packet, int]]] = ([], [])

    def note_arrival(self, side: int, packet: Packet, at_us: int, now_us: int) -> None:
        """Notes a packet that arrives at `at_us`: at the dialer, `side` 0, or at the target, 1."""
        if packet.sent_us <= now_us:
            self._last_us[side] = max(self._last_us[side], at_us)
            return
        self.last_arrival_us(side, now_us)
        self._leaving[side].append((packet, at_us))

    def last_arrival_us(self, side: int, now_us: int) -> int:
        """Returns when the last packet arrives there of those that have left or will leave; 0 if there is none.

        A process that is killed within a step sends nothing of it. The step may have waited for a disk that hangs.
        """
        leaving, last_us = self._leaving[side], self._last_us[side]
        if not leaving:
            return last_us
        sure = [(packet, at_us) for packet, at_us in leaving if packet.sent_us <= packet.sender.killed_us]
        self._last_us[side] = max([last_us, *(at_us for packet, at_us in sure if packet.sent_us <= now_us)])
        leaving[:] = [each for each in sure if each[0].sent_us > now_us]
        return max([last_us, *(at_us for _, at_us in sure)])


@final
class Lane:
    """One direction of a channel."""

    __slots__ = ("is_blocked", "is_closed", "last_arrival_us", "unread_bytes", "window_bytes")

    def __init__(self) -> None:
        self.last_arrival_us = 0
        # What may be written before the other side has read it; the last frame may exceed it.
        self.window_bytes = WINDOW_BYTES
        # What was written and not read yet by the other side.
        self.unread_bytes = 0
        # Whether its writer waits until the other side has read.
        self.is_blocked = False
        # Whether its writer has said that nothing more follows.
        self.is_closed = False


@final
class Channel:
    """A stream of a connection, or one unary call; `path` is its method."""

    __slots__ = ("back", "connection", "frame_bytes", "number", "path", "piece_bytes", "there", "write_us")

    def __init__(self, connection: Connection, number: int, path: str) -> None:
        self.connection, self.number, self.path = connection, number, path
        # To the target, and back to the dialer.
        self.there, self.back = Lane(), Lane()
        # The most bytes of a frame to the target: a larger one goes in pieces.
        self.piece_bytes = PIECE_BYTES
        # What a frame to the target takes of the waiting calls of a stream, but for the first.
        self.frame_bytes = MERGE_CALLS_BYTES
        # How long the write of a frame of a stream takes, in either direction, before the frame leaves.
        self.write_us = 0


@final
class Packet:
    """What travels: a frame, or news of a connection or channel. `to_target` says in which direction.

    It leaves its sender at `sent_us`, when the step that made it has ended.
    """

    __slots__ = ("channel", "connection", "data", "kind", "sender", "sent_us", "to_target")

    def __init__(
        self, kind: Kind, connection: Connection, to_target: bool, channel: Channel | None, data: bytes,
        sender: Sender, sent_us: int,
    ) -> None:  # fmt: skip
        self.kind, self.connection, self.to_target = kind, connection, to_target
        self.channel, self.data, self.sender, self.sent_us = channel, data, sender, sent_us

    @property
    def method(self) -> str:
        """The method that the packet belongs to, such as `AlterPartition`; empty for news of a connection."""
        return "" if self.channel is None else self.channel.path.rpartition("/")[2]
