"""The outgoing connections of a shell: `cluster/core/connection/` over simulated links, with the codec of real ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, final

from cluster.core.connection.backoff import FIRST_BACKOFF_MS, Backoff
from cluster.core.connection.codec import STREAM_REQUESTS, Codec, Malformed
from cluster.core.connection.outgoing import (
    MOST_OF_A_METHOD,
    NEVER_MS,
    Answer,
    Ended,
    Outgoing,
    OutgoingStream,
)
from cluster.core.connection.pieces import cut
from cluster.core.effects import Send
from cluster.core.events import TransportError
from cluster.shell.streams import why_refused
from sim.hosts.timers import Timers
from sim.world.clock import Clock
from sim.world.network import BREAK_US, RETRANSMIT_US, Network, Transport
from sim.world.packets import Channel, Connection, Endpoint, Kind, Packet
from sim.world.time import Actor, World

_CONNECT = "connect "
# Why a call failed if its stream ended without a reason: as it does once the other side has nothing left to answer.
ENDED_BY_PEER = "the peer ended the stream"
# Why calls fail whose connection the other side knows no more.
RESET = "connection reset"


class Caller(Endpoint, Protocol):
    """The shell that asks. Clock and alarms are those of its life."""

    paused: bool
    clock: Clock

    def deliver(self, call: int, body: Answer, source: int, sent_us: int) -> None:
        """Receives the answer to a call; -1 for `sent_us` where nobody sent it."""

    def write_later(self, delay_us: int, end: Callable[[], None]) -> None:
        """Lets `end` end the write of a frame that takes so long."""

    def on_waiting_call(self, target: int, path: str, taken: int, most: int) -> None:
        """Learns that unary calls of a method wait while the peer has `taken` of the `most` that it may have."""

    def on_late_alarm(self, call: int, late_ms: int) -> None:
        """Learns that a connection asks to be woken that long after the time-out of a call that it has just taken."""


@final
class Peer:
    """One node that is called: the core of the connection to it, and the connection of this time."""

    __slots__ = (
        "alarm_ms", "attempts", "backoff", "calls", "channels", "connection", "is_ready", "outgoing", "streams",
        "target", "unwritten", "waiting", "writing",
    )  # fmt: skip

    def __init__(self, target: int, codec: Codec, most_of_a_method: int) -> None:
        self.target = target
        self.outgoing = Outgoing(codec, most_of_a_method)
        self.backoff = Backoff()
        self.connection: Connection | None = None
        # Whether the other side has accepted the connection.
        self.is_ready = False
        # How often the connection was asked for.
        self.attempts = 0
        # The channel of each open stream that has written, by path.
        self.channels: dict[str, Channel] = {}
        # The open streams, and the unary calls, by the number of their channel.
        self.streams: dict[int, OutgoingStream] = {}
        self.calls: dict[int, tuple[int, Channel]] = {}
        # The method of each unary call that has no channel yet.
        self.waiting: dict[int, str] = {}
        # The streams with calls that are not written yet, in order.
        self.unwritten: dict[OutgoingStream, None] = {}
        # The streams of which a frame is being written.
        self.writing: dict[OutgoingStream, None] = {}
        # When the core will be asked for calls that are overdue.
        self.alarm_ms = NEVER_MS

    def forget_connection(self) -> None:
        """Begins as if never connected; the core has ended all calls."""
        self.connection, self.is_ready, self.attempts = None, False, 0
        self.channels.clear()
        self.streams.clear()
        self.calls.clear()
        self.waiting.clear()
        self.unwritten.clear()
        self.writing.clear()


@final
class Dialer:
    """The outgoing connections of one life of a shell, each made when it is first used."""

    def __init__(self, host: Caller, world: World, network: Network, actor: Actor) -> None:
        self._host, self._world, self._network, self._actor = host, world, network, actor
        self._peers: dict[int, Peer] = {}
        self._alarms = Timers(world, actor, self._on_alarm)
        # The peers to which something may have to be written, and the alarms that rang while the host was paused.
        self.dirty: dict[int, Peer] = {}
        self._late: list[str] = []
        # The peers to which a connection was lost then, though unary calls wait, with the reason.
        self._undialed: dict[int, str] = {}
        self._most_of_a_method = MOST_OF_A_METHOD
        # The node that is not reached, and until when.
        self._refused: tuple[int, int] | None = None

    def refuse(self, target: int) -> None:
        """Refuse calls to that node for a short time, as after an attempt to connect that failed."""
        assert target not in self._peers, target
        self._refused = target, self._host.clock.now_ms() + FIRST_BACKOFF_MS

    def limit_calls(self, most_of_a_method: int) -> None:
        """Let no more unary calls of a method be with a peer at a time; to be called before the first call."""
        assert not self._peers, len(self._peers)
        self._most_of_a_method = most_of_a_method

    def send(self, effect: Send, target: int) -> None:
        """Queues a call; `flush` writes it. While the node cannot be reached, the call fails at once."""
        peer = self._peers.get(target)
        if peer is None:
            peer = self._peers[target] = Peer(target, self._network.codec, self._most_of_a_method)
        now_ms = self._host.clock.now_ms()
        if self._refused is not None and self._is_refused(target, now_ms):
            self._soon(effect.call, TransportError(reason="connection refused"), target)
            return
        if peer.connection is None and not self._dial(peer, now_ms):
            self._soon(effect.call, TransportError(reason=peer.backoff.reason), target)
            return
        body = effect.body
        if isinstance(body, STREAM_REQUESTS):
            stream = peer.outgoing.send_on_stream(now_ms, effect, body)
            peer.unwritten[stream] = None
            alarm_ms = stream.alarm_ms
        else:
            peer.outgoing.unary.send(now_ms, effect.call, body, effect.timeout_ms)
            peer.waiting[effect.call] = self._network.codec.unary.path_of(body)
            alarm_ms = peer.outgoing.unary.alarm_ms
        late_ms = alarm_ms - now_ms - effect.timeout_ms
        if late_ms > 0:
            self._host.on_late_alarm(effect.call, late_ms)
        self._arm(peer, alarm_ms)
        self.dirty[target] = peer

    def _is_refused(self, target: int, now_ms: int) -> bool:
        assert self._refused is not None, target
        if now_ms >= self._refused[1]:
            self._refused = None
        return self._refused is not None and self._refused[0] == target

    def _soon(self, call: int, body: Answer, target: int) -> None:
        """Deliver after the step that is running; never inside it."""
        token = (self._host.life_number, call, body, target)
        self._world.after(self._actor, 0, self._deliver_later, token)

    def _deliver_later(self, token: tuple[int, int, Answer, int]) -> None:
        life_number, call, body, target = token
        if life_number == self._host.life_number:
            self._host.deliver(call, body, target, -1)

    def _arm(self, peer: Peer, alarm_ms: int) -> None:
        if alarm_ms < peer.alarm_ms:
            peer.alarm_ms = alarm_ms
            self._alarms.set(str(peer.target), self._host.clock.delay_us(alarm_ms))

    def _dial(self, peer: Peer, now_ms: int) -> bool:
        """Begins a connection. Returns False while the peer was not reachable a moment ago."""
        assert peer.connection is None, peer.target
        if not peer.backoff.may_connect(now_ms):
            return False
        peer.connection = self._network.connect(self._host, peer.target)
        peer.is_ready = self._network.transport is Transport.DATAGRAM
        return True

    def _knock(self, peer: Peer, wait_us: int) -> None:
        """Ask for the connection; a machine without power may hear it only the second or third time."""
        assert peer.connection is not None, peer.target
        self._network.send(Kind.CONNECT, peer.connection, wait_us, to_target=True)
        self._alarms.set(f"{_CONNECT}{peer.target}", wait_us + (RETRANSMIT_US << peer.attempts))
        peer.attempts += 1

    def flush(self, wait_us: int) -> None:
        """Write in `wait_us` what waits: of each stream, the calls of this turn are one frame."""
        dirty, self.dirty = self.dirty, {}
        for peer in dirty.values():
            self._write(peer, wait_us)

    def _write(self, peer: Peer, wait_us: int) -> None:
        connection = peer.connection
        if connection is None:
            return
        if not peer.is_ready:
            if peer.attempts == 0:
                self._knock(peer, wait_us)
            return
        if peer.outgoing.unary.has_next:
            self._write_calls(peer, connection, wait_us)
        if peer.waiting:
            self._show_waiting(peer)
        for stream in tuple(peer.unwritten):
            if self._write_stream(peer, connection, stream, wait_us):
                del peer.unwritten[stream]

    def _write_calls(self, peer: Peer, connection: Connection, wait_us: int) -> None:
        unary = peer.outgoing.unary
        while (asked := unary.next_call()) is not None:
            call, path, frame = asked
            if refused := why_refused(frame):
                self._fail_call(peer, call, refused)
                continue
            channel = self._network.open(connection, path)
            peer.calls[channel.number] = (call, channel)
            del peer.waiting[call]
            for piece in cut(frame, channel.piece_bytes):
                self._network.send(
                    Kind.FRAME, connection, wait_us, to_target=True, channel=channel, data=piece
                )

    def _show_waiting(self, peer: Peer) -> None:
        """Show the methods of which calls wait although the peer is connected."""
        for path in dict.fromkeys(peer.waiting.values()):
            taken = sum([channel.path == path for _, channel in peer.calls.values()])
            self._host.on_waiting_call(peer.target, path, taken, self._most_of_a_method)

    def _write_stream(self, peer: Peer, connection: Connection, stream: OutgoingStream, wait_us: int) -> bool:
        """Writes what waits on a stream. Returns False while a frame is written, or the other side must read first."""
        if not stream.is_open:
            return True
        path = stream.codec.path
        channel = peer.channels.get(path)
        if channel is None or peer.streams.get(channel.number) is not stream:
            channel = peer.channels[path] = self._network.open(connection, path)
            peer.streams[channel.number] = stream
            stream.piece_bytes, stream.frame_bytes = channel.piece_bytes, channel.frame_bytes
        lane = channel.there
        while stream.has_frame and stream not in peer.writing:
            lane.is_blocked = lane.unread_bytes >= lane.window_bytes
            if lane.is_blocked:
                return False
            frame = stream.next_frame()
            assert frame is not None, path
            if refused := why_refused(frame):
                self._hang_up(peer, channel)
                self._end_stream(peer, channel, refused)
                return True
            if channel.write_us:
                peer.writing[stream] = None
                end = partial(self._end_write, peer, stream, channel, frame)
                self._host.write_later(wait_us + channel.write_us, end)
            else:
                self._send(channel, frame, wait_us)
                stream.on_written()
        if stream in peer.writing:
            return False
        if stream.is_finishing and not lane.is_closed:
            lane.is_closed = True
            self._network.send(Kind.HALF_CLOSE, connection, wait_us, to_target=True, channel=channel)
        return True

    def _send(self, channel: Channel, frame: bytes, wait_us: int) -> None:
        if self._network.transport is Transport.STREAM:
            channel.there.unread_bytes += len(frame)
        self._network.send(
            Kind.FRAME, channel.connection, wait_us, to_target=True, channel=channel, data=frame
        )

    def _end_write(self, peer: Peer, stream: OutgoingStream, channel: Channel, frame: bytes) -> None:
        """The frame leaves, unless the stream has ended meanwhile."""
        if peer.streams.get(channel.number) is stream:
            del peer.writing[stream]
            self._send(channel, frame, 0)
            stream.on_written()
            self._write(peer, 0)
        else:
            peer.writing.pop(stream, None)

    def finish(self, *, every: bool = False) -> bool:
        """Closes the sending side of each stream with calls that expect no reply (acks=0), or of `every` one.

        They are closed once all is written. Returns whether one of them is open: its node has not yet read everything,
        or has not yet answered the others.
        """
        found = [
            (peer, stream)
            for peer in self._peers.values()
            for stream in peer.outgoing.streams
            if every or stream.has_sent_silent
        ]
        for peer, stream in found:
            assert peer.connection is not None, peer.target
            if not stream.is_finishing:
                stream.finish()
                peer.unwritten[stream] = None
                self._write(peer, 0)
        return bool(found)

    def read(self, packet: Packet) -> None:
        """Takes a packet of a node that was called."""
        peer = self._peers.get(packet.connection.target)
        if peer is None or peer.connection is not packet.connection:
            self._reset(packet)
            return
        match packet.kind:
            case Kind.FRAME:
                self._read_frame(peer, packet)
            case Kind.ACCEPT:
                peer.is_ready = True
                peer.backoff.on_success()
                self._write(peer, 0)
            case Kind.CREDIT:
                self._write(peer, 0)
            case Kind.REFUSE:
                # The answer to an earlier knock may come after a later one was accepted; TCP drops it then.
                if not peer.is_ready:
                    self._fail(peer, "connection refused", is_backing_off=True)
            case Kind.RESET:
                self._fail(peer, RESET)
            case Kind.RESET_CHANNEL:
                self._end_channel(peer, packet)
            case Kind.CONNECT | Kind.HALF_CLOSE:
                raise AssertionError(f"{self._host.name} called, and got {packet.kind}")

    def _reset(self, packet: Packet) -> None:
        """Let the machine tell the sender that the connection was given up, unless the sender has given it up too."""
        is_given_up = packet.kind in (Kind.REFUSE, Kind.RESET)
        if self._network.transport is Transport.STREAM and not is_given_up:
            self._network.send(Kind.RESET, packet.connection, 0, to_target=True)

    def _read_frame(self, peer: Peer, packet: Packet) -> None:
        channel = packet.channel
        assert channel is not None, packet.kind
        stream = peer.streams.get(channel.number)
        if stream is not None:
            read(self._network, channel, packet, to_target=True)
            try:
                answers = stream.on_frame(packet.data)
            except Malformed as error:
                self._network.note_unreadable(self._host.name, str(error))
                self._hang_up(peer, channel)
                self._end_stream(peer, channel, str(error))
                return
            self._deliver(answers, peer.target, packet.sent_us)
            return
        if (asked := peer.calls.pop(channel.number, None)) is not None:
            self._read_answer(peer, asked[0], packet)

    def _read_answer(self, peer: Peer, call: int, packet: Packet) -> None:
        """Takes the answer to a unary call."""
        try:
            answer = peer.outgoing.unary.on_frame(call, packet.data)
        except Malformed as error:
            self._network.note_unreadable(self._host.name, str(error))
            self._fail_call(peer, call, str(error))
            self._write_next(peer)
            return
        assert answer is not None, call
        self._write_next(peer)
        self._deliver([(call, answer)], peer.target, packet.sent_us)

    def _fail_call(self, peer: Peer, call: int, reason: str) -> None:
        """Ends a unary call alone."""
        self._soon(call, self._failed(peer, call, reason), peer.target)

    def _write_next(self, peer: Peer) -> None:
        """Writes the unary calls that waited for the place of one that has ended."""
        if peer.outgoing.unary.has_next:
            self._write(peer, 0)
        elif peer.waiting and peer.is_ready:
            self._show_waiting(peer)

    def _end_stream(self, peer: Peer, channel: Channel, reason: str) -> None:
        """Ends a stream with all its calls."""
        stream = peer.streams.pop(channel.number)
        assert stream.is_open, (channel.path, reason)
        for call, error in stream.end(reason):
            self._soon(call, error, peer.target)

    def _end_channel(self, peer: Peer, packet: Packet) -> None:
        """The other side has ended a stream, and so all calls on it, or a unary call."""
        assert packet.channel is not None, packet.kind
        reason = packet.data.decode() or ENDED_BY_PEER
        stream = peer.streams.pop(packet.channel.number, None)
        if stream is not None:
            self._deliver(stream.end(reason), peer.target, -1)
        if (asked := peer.calls.pop(packet.channel.number, None)) is not None:
            self._fail_call(peer, asked[0], reason)
            self._write_next(peer)

    def _deliver(self, ended: Ended, target: int, sent_us: int) -> None:
        for call, body in ended:
            self._host.deliver(call, body, target, sent_us)

    def _fail(self, peer: Peer, reason: str, *, is_backing_off: bool = False) -> None:
        """The connection is lost, and with it its streams and each unary call that had begun.

        The unary calls that waited for a place begin now, on the next connection, or fail as soon as they do.
        """
        if is_backing_off:
            peer.backoff.on_failure(self._host.clock.now_ms(), reason)
        self._alarms.cancel(f"{_CONNECT}{peer.target}")
        outgoing, waiting = peer.outgoing, dict(peer.waiting)
        asked = [call for call, _ in peer.calls.values()]
        ended = [each for stream in outgoing.streams for each in stream.end(reason)]
        peer.forget_connection()
        ended += [(call, self._failed(peer, call, reason)) for call in asked]
        if outgoing.unary.has_next:
            peer.waiting = waiting
            if self._host.paused:
                # It learns of the loss when it goes on.
                self._undialed[peer.target] = reason
            else:
                ended += self._begin_again(peer, reason)
        self._deliver(ended, peer.target, -1)

    def _begin_again(self, peer: Peer, reason: str) -> Ended:
        """Dials for the unary calls that have a place and no connection. Returns them, failed, if that is too early."""
        if peer.connection is not None or self._dial(peer, self._host.clock.now_ms()):
            self._write(peer, 0)
            return []
        ended: Ended = []
        while (begun := peer.outgoing.unary.next_call()) is not None:
            ended.append((begun[0], self._failed(peer, begun[0], reason)))
        return ended

    def _failed(self, peer: Peer, call: int, reason: str) -> TransportError:
        """Returns the end of a unary call that has failed, alone."""
        error = peer.outgoing.unary.fail(call, reason)
        peer.waiting.pop(call, None)
        assert error is not None, (call, reason)
        return error

    def connection_to(self, target: int) -> Connection | None:
        """Returns the present connection to a node, if there is one."""
        peer = self._peers.get(target)
        return None if peer is None else peer.connection

    def on_broken(self, connection: Connection) -> bool:
        """Ends a connection on which nothing could be sent for too long. Returns whether it is one of these."""
        peer = self._peers.get(connection.target)
        if peer is None or peer.connection is not connection:
            return False
        self._fail(peer, "connection broken", is_backing_off=not peer.is_ready)
        return True

    def _on_alarm(self, key: str) -> None:
        if self._host.paused:
            self._late.append(key)
        elif key.startswith(_CONNECT):
            self._on_unanswered(self._peers[int(key.removeprefix(_CONNECT))])
        else:
            self._on_deadline(self._peers[int(key)])

    def _on_unanswered(self, peer: Peer) -> None:
        if peer.is_ready or peer.connection is None:
            return
        if (RETRANSMIT_US << peer.attempts) - RETRANSMIT_US >= BREAK_US:
            self._fail(peer, "connection timed out", is_backing_off=True)
        else:
            self._knock(peer, 0)

    def _on_deadline(self, peer: Peer) -> None:
        """Ends what is overdue: a stream with all its calls, a unary call alone."""
        now_ms = self._host.clock.now_ms()
        outgoing = peer.outgoing
        peer.alarm_ms = NEVER_MS
        ended: Ended = []
        for stream in outgoing.streams:
            ended += stream.on_time(now_ms)
            if not stream.is_open:
                channel = peer.channels.pop(stream.codec.path, None)
                if channel is not None and peer.streams.pop(channel.number, None) is not None:
                    self._hang_up(peer, channel)
        late = outgoing.unary.on_time(now_ms)
        if late:
            self._drop_calls(peer, {call for call, _ in late})
            self._write_next(peer)
        alarms = [outgoing.unary.alarm_ms, *[stream.alarm_ms for stream in outgoing.streams]]
        self._arm(peer, min(alarms))
        self._deliver([*ended, *late], peer.target, -1)

    def _drop_calls(self, peer: Peer, late: set[int]) -> None:
        peer.waiting = {call: path for call, path in peer.waiting.items() if call not in late}
        for number, (call, channel) in list(peer.calls.items()):
            if call in late:
                del peer.calls[number]
                self._hang_up(peer, channel)

    def _hang_up(self, peer: Peer, channel: Channel) -> None:
        """Tell the other side that a channel has ended."""
        assert peer.connection is not None, peer.target
        self._network.send(Kind.RESET_CHANNEL, peer.connection, 0, to_target=True, channel=channel)

    def hold_alarms(self, since_us: int) -> None:
        """Ring no alarm: the clock stands still since then."""
        self._alarms.hold(since_us)

    def release_alarms(self, behind_us: int) -> None:
        """Ring them again, each so much later."""
        self._alarms.release(behind_us)

    def resume(self) -> None:
        """Begin again where a connection was lost during a pause, and ring the alarms that were due in it."""
        late, self._late = self._late, []
        undialed, self._undialed = self._undialed, {}
        life_number = self._host.life_number
        for target, reason in undialed.items():
            peer = self._peers.get(target)
            if peer is not None and self._host.life_number == life_number:
                self._deliver(self._begin_again(peer, reason), target, -1)
        for key in late:
            # What an alarm delivers may end the life, and its connections with it.
            if self._host.life_number == life_number:
                self._on_alarm(key)

    def end(self) -> list[Connection]:
        """End all of it with the life of the shell, without a word to anybody; returns the connections."""
        self._alarms.end()
        connections = [peer.connection for peer in self._peers.values() if peer.connection is not None]
        self._peers.clear()
        self.dirty.clear()
        self._late.clear()
        self._undialed.clear()
        return connections


def read(network: Network, channel: Channel, packet: Packet, *, to_target: bool) -> None:
    """Notes that a frame was read; its writer is told so if it waits for that. `to_target`: where the writer is."""
    if network.transport is Transport.DATAGRAM:
        return
    lane = channel.back if to_target else channel.there
    lane.unread_bytes -= len(packet.data)
    assert lane.unread_bytes >= 0, (channel.path, lane.unread_bytes)
    if lane.is_blocked and lane.unread_bytes < lane.window_bytes:
        lane.is_blocked = False
        network.send(Kind.CREDIT, packet.connection, 0, to_target=to_target, channel=channel)
