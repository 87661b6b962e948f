"""The incoming connections of a shell: `cluster/core/connection/` over simulated links, with the codec of real ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol, final

from cluster.core.connection.codec import Malformed, OutOfBounds
from cluster.core.connection.incoming import IncomingCall, IncomingStream
from cluster.core.connection.rooms import UNARY, Limit, Room, Rooms
from cluster.core.messages import RequestBody, ResponseBody
from cluster.shell.streams import STREAMS, why_refused
from sim.hosts.outbound import read
from sim.world.network import Network, Transport
from sim.world.packets import Channel, Connection, Endpoint, Exchange, Kind, Packet


class Host(Endpoint, Protocol):
    """The shell that is asked."""

    def accept(self, exchange: Exchange, answer: Callable[[ResponseBody], None] | None) -> int:
        """Passes a request to the core after those before it and returns its number; None: nobody waits for it."""

    def forget(self, call: int) -> None:
        """Drops the reply to a request, because its sender has left."""

    def on_refused(self, refused: OutOfBounds) -> None:
        """Learns of a request that was out of bounds."""

    def write_later(self, delay_us: int, end: Callable[[], None]) -> None:
        """Lets `end` end the write of a frame that takes so long."""

    def on_places(self, room: Room, in_core: int, unwritten: int, held_up: int) -> None:
        """Learns how many calls of a room the core has, and how many streams have to write, or calls that wait."""


@final
class Entrance:
    """One channel as the core of a connection sees the node behind it."""

    __slots__ = ("_channel", "_host", "in_core", "sent_us")

    def __init__(self, host: Host, channel: Channel) -> None:
        self._host, self._channel = host, channel
        # When the frame was sent that is being read.
        self.sent_us = -1
        # How many calls the core has, and has not answered.
        self.in_core = 0

    def _exchange(self, body: RequestBody) -> Exchange:
        source = self._channel.connection.dialer
        return Exchange(source=source, body=body, path=self._channel.path, sent_us=self.sent_us)

    def ask(self, body: RequestBody, answer: Callable[[ResponseBody], None]) -> int:
        """Passes a request to the core, which has the call until it answers."""

        def on_answer(body: ResponseBody) -> None:
            self.in_core -= 1
            answer(body)

        self.in_core += 1
        return self._host.accept(self._exchange(body), on_answer)

    def ask_without_reply(self, body: RequestBody) -> None:
        self._host.accept(self._exchange(body), None)

    def forget(self, call: int) -> None:
        self.in_core -= 1
        self._host.forget(call)


@final
class Served:
    """A stream that is served, with the frames that are not read yet, because there is no room."""

    __slots__ = ("channel", "entrance", "has_all", "room", "stream", "unread", "writing")

    def __init__(self, channel: Channel, entrance: Entrance, room: Room, stream: IncomingStream) -> None:
        self.channel, self.entrance, self.room, self.stream = channel, entrance, room, stream
        self.unread: deque[Packet] = deque()
        # Whether the client has said that no frame follows.
        self.has_all = False
        # The frame that is being written; None while none is.
        self.writing: bytes | None = None

    @property
    def in_core(self) -> int:
        """How many calls the core has. A frame that comes in pieces has a place too, like one of them."""
        return self.entrance.in_core + self.stream.is_inside_frame

    @property
    def is_unwritten(self) -> bool:
        """Whether an answer is not written yet."""
        return self.writing is not None or self.stream.has_frame

    @property
    def is_held_up(self) -> bool:
        """Whether calls wait that have come."""
        return bool(self.unread) or not self.stream.is_ready


@final
class Listener:
    """The incoming connections of one life of a shell, their channels by number, and the room that they share."""

    def __init__(self, host: Host, network: Network) -> None:
        self._host, self._network = host, network
        self.rooms = Rooms()
        self._unary_rooms = Rooms()
        self._connections: dict[int, Connection] = {}
        self._streams: dict[int, Served] = {}
        # The unary calls of each channel: a datagram may come twice.
        self._calls: dict[int, tuple[Channel, list[IncomingCall]]] = {}
        # The channels that may have something to write or to read, and answers of unary calls, in order.
        self.dirty: dict[int, Served] = {}
        self.answered: list[tuple[Channel, IncomingCall, bytes]] = []

    def limit_calls(self, most_calls: int) -> None:
        """Take so many calls at a time on each stream, and on all streams of a kind together, but for one on each."""
        assert not self._streams, len(self._streams)
        self.rooms = Rooms(most_calls=most_calls, node_calls=most_calls)

    def places(self) -> list[tuple[str, Limit, list[Room]]]:
        """Returns each kind of stream with the limit of the whole node and the rooms of its connections."""
        return [
            (path, self.rooms.node(path), [room for (_, kind), room in self.rooms.items() if kind == path])
            for path in STREAMS
        ]

    def read(self, packet: Packet) -> None:
        """Takes a packet of a client. A channel begins with its first frame."""
        connection, channel = packet.connection, packet.channel
        match packet.kind:
            case Kind.CONNECT:
                if connection.target_life == 0:
                    connection.target_life = self._host.life_number
                    self._connections[connection.number] = connection
                self._network.send(Kind.ACCEPT, connection, 0, to_target=False)
            case Kind.FRAME:
                assert channel is not None, packet.kind
                if channel.path in STREAMS:
                    self._read_frame(channel, packet)
                else:
                    self._read_call(channel, packet)
            case Kind.CREDIT:
                assert channel is not None, packet.kind
                if (served := self._streams.get(channel.number)) is not None:
                    self._write(served, 0)
            case Kind.HALF_CLOSE:
                assert channel is not None, packet.kind
                self._half_close(channel)
            case Kind.RESET_CHANNEL:
                assert channel is not None, packet.kind
                self._end_channel(channel.number)
            case Kind.RESET:
                self.end_connection(connection)
            case _:
                raise AssertionError(f"{self._host.name} accepted no connection, and got {packet.kind}")

    def _read_frame(self, channel: Channel, packet: Packet) -> None:
        served = self._streams.get(channel.number)
        if served is None:
            served = self._streams[channel.number] = self._serve(channel)
        if served.has_all:
            # A stream keeps its order. A datagram that was overtaken is lost.
            assert self._network.transport is Transport.DATAGRAM, channel.path
            return
        served.unread.append(packet)
        self._go_on(served)

    def _serve(self, channel: Channel) -> Served:
        entrance = Entrance(self._host, channel)
        room = self.rooms.enter(str(channel.connection.number), channel.path)
        stream = IncomingStream(
            self._network.codec, channel.path, room, entrance,
            wake=partial(self._wake, channel.number), on_refused=self._host.on_refused,
        )  # fmt: skip
        return Served(channel, entrance, room, stream)

    def _wake(self, number: int) -> None:
        self.dirty[number] = self._streams[number]

    def _go_on(self, served: Served) -> None:
        """Read the frames that wait, as long as there is room for their calls."""
        stream = served.stream
        while served.unread and stream.is_ready:
            packet = served.unread.popleft()
            served.entrance.sent_us = packet.sent_us
            try:
                stream.on_frame(packet.data)
            except Malformed as error:
                self._network.note_unreadable(self._host.name, str(error))
                self._refuse(served, f"INVALID_ARGUMENT: {error}", 0)
                return
            read(self._network, served.channel, packet, to_target=False)
        if served.has_all and stream.is_ready and not stream.is_half_closed:
            assert not served.unread, (served.channel.path, len(served.unread))
            stream.half_close()

    def _half_close(self, channel: Channel) -> None:
        """The client sends nothing more on a stream: it ends once the client was sent all its answers."""
        served = self._streams.get(channel.number)
        if served is None:
            # Between two datagrams of a stream nothing is kept of it.
            self._hang_up(channel, 0)
            return
        assert not served.has_all, channel.path
        served.has_all = True
        self._go_on(served)
        self._write(served, 0)

    def _hang_up(self, channel: Channel, wait_us: int, reason: str = "") -> None:
        """Tell the client that a stream or call has ended, and why if it was for a failure."""
        self._network.send(
            Kind.RESET_CHANNEL, channel.connection, wait_us, to_target=False, channel=channel,
            data=reason.encode(),
        )  # fmt: skip

    def _refuse(self, served: Served, reason: str, wait_us: int) -> None:
        """End a stream for a frame that cannot be read or sent."""
        self._end_stream(served.channel.number)
        self._hang_up(served.channel, wait_us, reason)

    def _read_call(self, channel: Channel, packet: Packet) -> None:
        _, calls = self._calls.get(channel.number, (channel, []))
        if calls and calls[-1].is_inside_frame:
            call = calls[-1]
        else:
            call = self._begin_call(channel, packet)
        try:
            call.on_frame(channel.path, packet.data)
        except Malformed as error:
            self._network.note_unreadable(self._host.name, str(error))
            self._end_call(channel, call)
            self._hang_up(channel, 0, f"INVALID_ARGUMENT: {error}")

    def _begin_call(self, channel: Channel, packet: Packet) -> IncomingCall:
        entrance = Entrance(self._host, channel)
        entrance.sent_us = packet.sent_us
        room = self._unary_rooms.enter(str(channel.connection.number), UNARY)
        call = IncomingCall(
            self._network.codec, room, entrance,
            write=partial(self._on_answer, channel), on_refused=self._host.on_refused,
        )  # fmt: skip
        self._calls.setdefault(channel.number, (channel, []))[1].append(call)
        return call

    def _on_answer(self, channel: Channel, call: IncomingCall, data: bytes) -> None:
        self.answered.append((channel, call, data))

    def flush(self, wait_us: int) -> None:
        """Write in `wait_us` what was answered: of each stream, the answers of this turn are one frame."""
        written: dict[int, Served] = {}
        while self.answered or self.dirty:
            answered, self.answered = self.answered, []
            dirty, self.dirty = self.dirty, {}
            for channel, call, data in answered:
                if refused := why_refused(data):
                    self._hang_up(channel, wait_us, refused)
                else:
                    self._send(channel, data, wait_us)
                self._end_call(channel, call)
            for served in dirty.values():
                self._show_places(served, has_served=False)
                self._go_on(served)
                self._write(served, wait_us)
            written |= dirty
        for served in written.values():
            self._show_places(served, has_served=True)
        self._show_waiting()

    def _show_places(self, served: Served, *, has_served: bool) -> None:
        """Show how many calls the streams of a room have in the core, and how many have answers to write.

        Once the room `has_served` those that wait for places, how many streams have calls that still wait.
        """
        room = served.room
        if room.users != 1 or self._streams.get(served.channel.number) is not served:
            # Another stream of the connection uses the room too, or alone, because this one has ended.
            self._show_room(room, has_served=has_served)
            return
        held_up = int(served.is_held_up) if has_served else 0
        self._host.on_places(room, served.in_core, int(served.is_unwritten), held_up)

    def _show_room(self, room: Room, *, has_served: bool) -> None:
        """Show the places of all streams that use a room; what can go on, and is about to, is not held up."""
        users = [each for each in self._streams.values() if each.room is room]
        waiting = [each for each in users if each.is_held_up and each.channel.number not in self.dirty]
        held_up = len(waiting) if has_served else 0
        in_core, unwritten = sum([each.in_core for each in users]), sum([each.is_unwritten for each in users])
        self._host.on_places(room, in_core, unwritten, held_up)

    def _show_waiting(self) -> None:
        """Show the rooms that wait for the limit of the node: none of them may once there is room."""
        for path in STREAMS:
            for room in tuple(self.rooms.node(path).waiting):
                self._show_room(room, has_served=True)

    def _send(self, channel: Channel, data: bytes, wait_us: int) -> None:
        self._network.send(
            Kind.FRAME, channel.connection, wait_us, to_target=False, channel=channel, data=data
        )

    def _write(self, served: Served, wait_us: int) -> None:
        stream, channel = served.stream, served.channel
        if self._streams.get(channel.number) is not served:
            # A frame that could not be read has ended it.
            return
        lane = channel.back
        is_datagram = self._network.transport is Transport.DATAGRAM
        while stream.has_frame and served.writing is None:
            lane.is_blocked = lane.unread_bytes >= lane.window_bytes
            if lane.is_blocked:
                return
            frame = stream.next_frame()
            assert frame is not None, channel.path
            if refused := why_refused(frame):
                self._refuse(served, refused, wait_us)
                return
            if channel.write_us:
                served.writing = frame
                self._host.write_later(wait_us + channel.write_us, partial(self._end_write, served, 0))
            else:
                self._send_on_stream(channel, frame, wait_us)
                stream.on_written()
        if stream.is_drained:
            self._end_stream(channel.number)
            self._hang_up(channel, wait_us)
        elif is_datagram and stream.is_idle and not served.unread:
            # Nobody says reliably when it ends, and the next frame begins it again.
            self._end_stream(channel.number)

    def _send_on_stream(self, channel: Channel, frame: bytes, wait_us: int) -> None:
        if self._network.transport is not Transport.DATAGRAM:
            channel.back.unread_bytes += len(frame)
        self._send(channel, frame, wait_us)

    def finish_writes(self, wait_us: int) -> None:
        """Write in `wait_us` what is being written, and all behind it that clients have room for: the end is near."""
        while writing := [each for each in self._streams.values() if each.writing is not None]:
            for served in writing:
                self._end_write(served, wait_us)
            self.flush(wait_us)

    def _end_write(self, served: Served, wait_us: int) -> None:
        """The frame leaves, unless the client has left meanwhile."""
        frame, served.writing = served.writing, None
        if self._streams.get(served.channel.number) is not served or frame is None:
            return
        self._send_on_stream(served.channel, frame, wait_us)
        served.stream.on_written()
        # What waits behind it is read and written with the rest.
        self.dirty[served.channel.number] = served

    def end_turn(self) -> None:
        """Notes that the requests of this turn are with the core, and reads on where that made room."""
        # Most turns are of no request.
        for rooms in (self.rooms, self._unary_rooms):
            if rooms.fresh:
                rooms.end_turn()
        if self.dirty:
            self.flush(0)

    def _end_channel(self, number: int) -> None:
        """The client has ended a stream or call: what waits for it is dropped."""
        if (served := self._streams.get(number)) is not None:
            self._end_stream(number)
            if served.room.users:
                self._show_room(served.room, has_served=True)
            self._show_waiting()
        channel, calls = self._calls.pop(number, (None, []))
        for call in calls:
            assert channel is not None, number
            self._leave(call, channel)

    def _end_stream(self, number: int) -> None:
        served = self._streams.pop(number)
        self.dirty.pop(number, None)
        served.stream.end()
        self.rooms.leave(str(served.channel.connection.number), served.channel.path)

    def _end_call(self, channel: Channel, call: IncomingCall) -> None:
        """The answer of a unary call is written."""
        _, calls = self._calls.get(channel.number, (channel, []))
        if call in calls:
            calls.remove(call)
            if not calls:
                del self._calls[channel.number]
            self._leave(call, channel)

    def _leave(self, call: IncomingCall, channel: Channel) -> None:
        call.end()
        self._unary_rooms.leave(str(channel.connection.number), UNARY)

    def connections_from(self, node_id: int) -> list[Connection]:
        """Returns the connections that the node has made, as far as they are known here."""
        return [each for each in self._connections.values() if each.dialer.node_id == node_id]

    def end_connection(self, connection: Connection) -> None:
        """The client is gone, or cannot be reached: all its streams and calls end."""
        self._connections.pop(connection.number, None)
        streams = [each for each, served in self._streams.items() if served.channel.connection is connection]
        calls = [each for each, (channel, _) in self._calls.items() if channel.connection is connection]
        for number in (*streams, *calls):
            self._end_channel(number)

    def end(self) -> list[Connection]:
        """End all of it with the life of the shell, without a word to anybody; returns the connections."""
        connections = list(self._connections.values())
        self._connections.clear()
        self._streams.clear()
        self._calls.clear()
        self.dirty.clear()
        self.answered.clear()
        return connections
