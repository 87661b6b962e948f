"""The shell of a core in virtual time: feeds the core the events of a turn and carries out its effects.

It keeps the promises of `cluster/core/effects.py`: one `Response` for each `Send`, timers that replace each other.
Requests and answers come and go through `sim/hosts/inbound.py` and `sim/hosts/outbound.py`, which drive the connection
core of the product. `sim/hosts/node.py` adds the parts that only nodes have: a disk, jobs, and lives that end.

A step happens at one moment and lasts a while after it. All its calls on the disk take effect at its beginning, as if
only the return of the last one were slow; its messages leave at its end. So a process that is killed during a step
leaves the disk as it is after all calls of the step, and has told nobody. An armed crash ends a step inside a call.
Jobs need not wait for the end of the step that asks for them, and a pause does not hold up the messages of a step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeGuard

from cluster.core.connection.bootstrap import Bootstrap
from cluster.core.connection.codec import OutOfBounds
from cluster.core.connection.outgoing import Answer
from cluster.core.connection.rooms import Limit, Room
from cluster.core.effects import (
    BOOTSTRAP,
    CancelTimer,
    LearnEndpoint,
    Observe,
    Reply,
    RunJob,
    Send,
    SetTimer,
    Stop,
)
from cluster.core.events import Event, JobDone, Request, Response, Shutdown, TimerFired, TransportError
from cluster.core.messages import RequestBody, ResponseBody
from sim.buggify.host import HostPoints
from sim.hosts.inbound import Listener
from sim.hosts.outbound import Dialer
from sim.hosts.timers import Timers
from sim.world.clock import Clock
from sim.world.network import Network
from sim.world.packets import Connection, Exchange, Kind, Packet, Reachability, Sender
from sim.world.streams import Stream
from sim.world.time import Actor, World
from sim.world.trace import Trace, encode_body

# The least time that a step takes, and the spread of the drawn time above it.
HANDLING_US = 20
HANDLING_SPREAD_US = 60
# A step that takes longer than this lets what waits notice it.
LONG_STEP_US = 100_000


class Core(Protocol):
    """A core of the product as a shell sees it; a node's core also has `start`."""

    def step(self, now_ms: int, event: Event) -> Sequence[object]: ...


class ManyStepping(Protocol):
    """A core that takes several events in one step."""

    def steps(self, now_ms: int, events: Sequence[Event]) -> Sequence[object]: ...


class Forgetting(Protocol):
    """A core with requests that wait in it, which it can drop when their sender has left."""

    def forget(self, call: int) -> None: ...


# By the method's name, because a check against a protocol takes longer than a small step.
def takes_many(core: object) -> TypeGuard[ManyStepping]:
    return hasattr(core, "steps")


def can_forget(core: object) -> TypeGuard[Forgetting]:
    return hasattr(core, "forget")


class Watcher(Protocol):
    """The watcher of a shell, from outside."""

    def on_observes(self, shell: Shell, observes: list[Observe]) -> None:
        """Receives all observations of one step, before its other effects are carried out."""

    def on_step(self, shell: Shell, events: Sequence[Event], effects: Sequence[object]) -> None:
        """Receives what a core took in one step, and its effects, before they are carried out."""

    def on_failure(self, shell: Shell, error: Exception) -> None:
        """Receives an error that a core raised; no core may raise."""

    def on_reply(self, shell: Shell, exchange: Exchange, body: ResponseBody) -> None:
        """Receives each answer to a request that expects one, before it is sent."""

    def on_idle_reply(self, shell: Shell, body: ResponseBody) -> None:
        """Receives an answer to a request after the core was told that its sender has left."""

    def on_left(self, shell: Shell, exchange: Exchange) -> None:
        """Receives a request that a core has and has not answered, because its sender has left."""

    def on_sent(self, shell: Shell, effect: Send, target: int) -> None:
        """Receives a call of a core to a node."""

    def on_accepted(self, shell: Shell, exchange: Exchange) -> None:
        """Receives a request that has reached a core."""

    def on_accepted_silently(self, shell: Shell, exchange: Exchange) -> None:
        """Receives a request without a reply that has reached a core, or one that has come again."""

    def on_places(self, shell: Shell, room: Room, in_core: int, unwritten: int, held_up: int) -> None:
        """Receives how many calls of a room the core has, and how many streams have to write, or calls that wait."""

    def on_waiting_call(self, shell: Shell, target: int, path: str, taken: int, most: int) -> None:
        """Receives a method of which calls wait while the peer has `taken` of the `most` that it may have."""

    def on_late_alarm(self, shell: Shell, call: int, late_ms: int) -> None:
        """Receives a call that was just sent, and whose connection wants to be woken that long after its time-out."""

    def on_answered(self, shell: Shell, call: int, body: Answer) -> None:
        """Receives the outcome of a call when its connection has it; the core gets it then, or later."""


# An event with what its line in the trace needs: the request, or who answered and when.
Queued = tuple[Event, Exchange | tuple[int, int] | None]


class Shell:
    """The common part of nodes and clients. `life_number` grows whenever a life begins or ends.

    Where a core sends to `BOOTSTRAP`, the nodes in `bootstrap` are tried in turn, from a drawn one on.
    """

    def __init__(
        self, world: World, network: Network, trace: Trace, watcher: Watcher, *, name: str, node_id: int,
        bootstrap: tuple[int, ...] = (), clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self.world, self.network, self.trace, self._watcher = world, network, trace, watcher
        self.name, self.node_id = name, node_id
        self.life_number = 0
        self.paused = False
        # When the last step ended that took long, on a slow disk: nothing else was handled meanwhile.
        self.still_until_us = 0
        # When the last pause ended: what waited until then could not be answered.
        self.resumed_us = 0
        # When a fault made it forget a connection that it had dialed.
        self.hung_up_us = -1
        self.clock = clock if clock is not None else Clock(world)
        self.core: Core | None = None
        # The buggify points that may fire here; None where all of them are off.
        self.points: HostPoints | None = None
        # Connections of earlier lives that their other sides were not told of yet.
        self._orphans: list[Connection] = []
        self.actor = Actor(world.draws, name)
        self._cost = Stream(world.draws, "handling", name)
        # What a slow processor adds to each step.
        self.slow_us = 0
        first = world.draws.below(len(bootstrap), "bootstrap", name) if bootstrap else 0
        self._addresses = (*bootstrap[first:], *bootstrap[:first])
        self._begin_memory()
        network.join(self)
        self._actions: dict[type, Callable[..., None]] = {
            Send: self._send,
            Reply: self._reply,
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
            RunJob: self._run_job,
            LearnEndpoint: self._learn,
            Stop: self._stop,
        }

    @property
    def addresses(self) -> tuple[int, ...]:
        """The client's bootstrap addresses in their order: the nodes there."""
        return tuple(self._addresses)

    def _forget(self, *, was_killed: bool) -> None:
        """End the timers and connections of the last life and begin with an empty memory.

        One that was killed sends nothing of what waited for the end of its step.
        """
        if was_killed:
            self.sender.killed_us = self.world.now_us
        self._timers.end()
        self._orphans += self._dialer.end()
        self._orphans += self._listener.end()
        self._begin_memory()

    def _begin_memory(self) -> None:
        """Make the state that one life holds in memory."""
        self.sender = Sender()
        self._inbox: deque[Queued] = deque()
        self._is_waking = False
        self._busy_until_us = 0
        self._timers = Timers(self.world, self.actor, self._on_timer)
        self._dialer = Dialer(self, self.world, self.network, self.actor)
        self._listener = Listener(self, self.network)
        # The ends of writes that came while the process was paused.
        self._late_writes: list[tuple[int, Callable[[], None]]] = []
        if self.clock.frozen_us is not None:
            self._hold_timers(self.clock.frozen_us)
        self._bootstrap = Bootstrap(self._addresses)
        # The requests that the core has not answered, with what takes the answer.
        self._inbound: dict[int, tuple[Exchange, Callable[[ResponseBody], None]]] = {}
        self._next_inbound = 1
        # The nodes whose address the core has told: a shell of real sockets would find no others.
        self.known_nodes: set[int] = set()
        # The requests in the inbox whose senders have left.
        self._forgotten: set[int] = set()
        # The requests that the core was told to forget.
        self._left: set[int] = set()
        # Packets that came during a pause.
        self._unread: deque[Packet] = deque()
        self._wait_us = 0

    def places(self) -> list[tuple[str, Limit, list[Room]]]:
        """Returns each kind of stream with the limit of calls of the whole node and the rooms of its connections."""
        return self._listener.places()

    def _reset_orphans(self) -> None:
        """Let the machine report to the other sides that the process with these connections has ended."""
        orphans, self._orphans = self._orphans, []
        for connection in orphans:
            self.network.send(Kind.RESET, connection, 0, to_target=connection.dialer.node_id == self.node_id)

    def reachability(self) -> Reachability:
        return Reachability.UP if self.core is not None else Reachability.REFUSING

    def receive(self, packet: Packet) -> None:
        """Receives a packet from the network; a paused process reads it later."""
        if self.paused:
            self._unread.append(packet)
        else:
            self._read(packet)

    def _read(self, packet: Packet) -> None:
        life_number = self.life_number
        if packet.to_target:
            self._listener.read(packet)
            if self._listener.dirty or self._listener.answered:
                self._listener.flush(0)
        else:
            self._dialer.read(packet)
        if self.life_number == life_number:
            self._go_on()

    def write_later(self, delay_us: int, end: Callable[[], None]) -> None:
        """Let `end` end the write of a frame that takes so long; a paused process goes on with it later."""
        self.world.after(self.actor, delay_us, self._end_write, (self.life_number, end))

    def _end_write(self, token: tuple[int, Callable[[], None]]) -> None:
        life_number, end = token
        if life_number != self.life_number:
            return
        if self.paused:
            self._late_writes.append(token)
            return
        end()
        if self._listener.dirty or self._listener.answered:
            self._listener.flush(0)
        self._go_on()

    def hang_up(self, node_id: int) -> None:
        """Forget the connections with a node, which does not hear of it: its next packet meets a reset."""
        for connection in self._listener.connections_from(node_id):
            self._forget_accepted(connection)
        dialed = self._dialer.connection_to(node_id)
        if dialed is not None:
            self.hung_up_us = self.world.now_us
            self._dialer.on_broken(dialed)
        self._go_on()

    def _on_hang_up(self, token: tuple[int, int]) -> None:
        life_number, node_id = token
        if life_number == self.life_number and self.core is not None:
            self.hang_up(node_id)

    def on_broken(self, connection: Connection) -> None:
        """Learns from the machine that a connection is lost. Of one that it has accepted the dialer does not hear."""
        if not self._dialer.on_broken(connection):
            self._forget_accepted(connection)
        self._go_on()

    def _forget_accepted(self, connection: Connection) -> None:
        """End a connection that a node has dialed, whose next packet meets a reset: no life has that number."""
        connection.target_life = -1
        self._listener.end_connection(connection)

    def accept(self, exchange: Exchange, answer: Callable[[ResponseBody], None] | None) -> int:
        """Passes a request to the core after the events before it; `answer` is called with the reply, if any."""
        if answer is not None and self.points is not None:
            self._accept_strays(exchange)
        call = self._next_inbound
        self._next_inbound = call + 1
        assert call not in self._inbound, (self.name, call)
        if answer is not None:
            self._inbound[call] = (exchange, answer)
            self._watcher.on_accepted(self, exchange)
        elif exchange.path:
            self._watcher.on_accepted_silently(self, exchange)
        self._inbox.append((Request(call=call, body=exchange.body), exchange))
        if answer is not None and self.points is not None and self.points.repeats(exchange.body):
            again = Exchange(
                source=exchange.source, body=exchange.body, path=exchange.path, sent_us=exchange.sent_us
            )
            self.accept(again, None)
        return call

    def _accept_strays(self, exchange: Exchange) -> None:
        """Passes the requests to the core that have come beside one by mistake; only the watcher sees their replies."""
        assert self.points is not None, self.name
        for body, why in self.points.strays(exchange.body):
            call, self._next_inbound = self._next_inbound, self._next_inbound + 1
            assert call not in self._inbound, (self.name, call)
            stray = Exchange(
                source=exchange.source, body=body, path=exchange.path, sent_us=exchange.sent_us, stray=why
            )
            stray.asked_us = self.world.now_us
            self._inbound[call] = (stray, _drop)
            self._inbox.append((Request(call=call, body=body), stray))

    def ask_itself(self, body: RequestBody) -> None:
        """Passes a request to the core that came from nobody, and that nobody waits for."""
        self.accept(Exchange(source=self, body=body, path="", sent_us=self.world.now_us), None)
        self._go_on()

    def forget(self, call: int) -> None:
        """Drops the reply to a request, and what waits for it in the core, because its sender has left."""
        inbound = self._inbound.pop(call, None)
        if inbound is None or not can_forget(self.core):
            return
        if any(type(event) is Request and event.call == call for event, _ in self._inbox):
            # The core has not got it yet, and would park it.
            self._forgotten.add(call)
        else:
            self._watcher.on_left(self, inbound[0])
            self._tell_left(self.core, call)

    def on_refused(self, refused: OutOfBounds) -> None:
        """Learns of a request that was out of bounds; no core sends any."""
        self._watcher.on_failure(self, refused)

    def on_places(self, room: Room, in_core: int, unwritten: int, held_up: int) -> None:
        """Learns how many calls of a room the core has, and how many streams have to write, or calls that wait."""
        self._watcher.on_places(self, room, in_core, unwritten, held_up)

    def on_waiting_call(self, target: int, path: str, taken: int, most: int) -> None:
        """Learns that unary calls of a method wait while the peer has `taken` of the `most` that it may have."""
        self._watcher.on_waiting_call(self, target, path, taken, most)

    def on_late_alarm(self, call: int, late_ms: int) -> None:
        """Learns that a connection asks to be woken that long after the time-out of a call that it has just taken."""
        self._watcher.on_late_alarm(self, call, late_ms)

    def deliver(self, call: int, body: Answer, source: int, sent_us: int) -> None:
        """Receives the answer to a call of the core; one to a life that has just ended is dropped."""
        if self.core is None:
            return
        if self.points is not None:
            body = self.points.answer(body)
            if type(body) is not TransportError and self.points.hangs_up():
                self.world.after(self.actor, 0, self._on_hang_up, (self.life_number, source))
        self._watcher.on_answered(self, call, body)
        self._bootstrap.on_answer(call, body)
        self._pass_on(call, body, source, sent_us)

    def _pass_on(self, call: int, body: Answer, source: int, sent_us: int) -> None:
        """Passes an answer to the core, after the events before it."""
        assert self.core is not None, (self.name, call)
        self._inbox.append((Response(call=call, body=body), (source, sent_us)))
        self._go_on()

    def feed(self, event: Event) -> None:
        """Handle the event at once if the core is idle, else after the events before it."""
        self._inbox.append((event, None))
        self._go_on()

    def _go_on(self) -> None:
        if not self._inbox or self.paused or self._is_waking:
            return
        if self.points is not None and self.world.now_us >= self._busy_until_us:
            self._busy_until_us = self.world.now_us + self.points.gathering_us()
        if self.world.now_us < self._busy_until_us:
            self._wake_later()
        else:
            self._handle_next()

    def _wake_later(self) -> None:
        if not self._is_waking and not self.paused:
            self._is_waking = True
            delay_us = max(0, self._busy_until_us - self.world.now_us)
            self.world.after(self.actor, delay_us, self._wake, self.life_number)

    def _wake(self, life_number: int) -> None:
        if life_number != self.life_number or self.core is None:
            return
        assert self._is_waking, self.name
        self._is_waking = False
        if self._inbox and not self.paused:
            self._handle_next()

    def _handle_next(self) -> None:
        """Handle the next event; a core that takes several gets all requests that wait in one step."""
        inbox = self._inbox
        turn = [inbox.popleft()]
        has_two = inbox and type(inbox[0][0]) is Request and type(turn[0][0]) is Request
        if has_two and takes_many(self.core):
            most = self._turn_limit()
            while inbox and type(inbox[0][0]) is Request and len(turn) < most:
                turn.append(inbox.popleft())
        self._handle(turn)
        # The inbox of a new life is another one.
        if inbox and inbox is self._inbox:
            self._wake_later()

    def _turn_limit(self) -> int:
        """Returns how many requests go into the step for which one was taken from the inbox."""
        waiting = 1 + len(self._inbox)
        return waiting if self.points is None else self.points.turn_limit(waiting)

    def _handle(self, turn: list[Queued]) -> None:
        core, now_us = self.core, self.world.now_us
        assert core is not None, f"{self.name} handles an event while it is down"
        assert now_us >= self._busy_until_us, (self.name, now_us, self._busy_until_us)
        for event, origin in turn:
            if type(origin) is Exchange:
                origin.asked_us = now_us
            if self.trace.is_on:
                self.trace.event(now_us, self.name, *_describe(event, origin, self.network))
        life_number, events = self.life_number, [event for event, _ in turn]
        try:
            if len(turn) == 1:
                effects = core.step(self.clock.now_ms(), events[0])
            else:
                assert takes_many(core), self.name
                effects = core.steps(self.clock.now_ms(), events)
        except Exception as error:
            self._fail(error)
            return
        cost_us = HANDLING_US * len(turn) + self._cost.below(HANDLING_SPREAD_US) + self._disk_us()
        cost_us += self.slow_us
        if self.points is not None:
            cost_us += self.points.step_us()
        self._wait_us = cost_us
        self._busy_until_us = now_us + cost_us
        if cost_us > LONG_STEP_US:
            self.still_until_us = self._busy_until_us
        self._watcher.on_step(self, events, effects)
        self.perform(effects)
        if self.life_number == life_number:
            self._listener.end_turn()
            if self._forgotten:
                self._forget_late(turn)

    def _forget_late(self, turn: list[Queued]) -> None:
        """Drop what the core has parked by now for senders who left before."""
        assert can_forget(self.core), self.name
        for event, _ in turn:
            if type(event) is Request and event.call in self._forgotten:
                self._forgotten.remove(event.call)
                self._tell_left(self.core, event.call)

    def _tell_left(self, core: Forgetting, call: int) -> None:
        self._left.add(call)
        core.forget(call)

    def _disk_us(self) -> int:
        """Returns the time that the calls on the disk took since the last call; 0 where there is no disk."""
        return 0

    def perform(self, effects: Sequence[object]) -> None:
        """Carry out the effects, observations first: the watcher must know of a state before an answer shows it."""
        observes = [effect for effect in effects if type(effect) is Observe]
        if observes:
            self._watcher.on_observes(self, observes)
        actions, life_number = self._actions, self.life_number
        for effect in effects:
            kind = type(effect)
            if kind is not Observe:
                actions[kind](effect)
                if self.life_number != life_number:
                    # The life has ended, by `Stop` or by a fault that waited for this effect.
                    return
        if self._dialer.dirty or self._listener.dirty or self._listener.answered:
            self._flush()

    def _flush(self) -> None:
        """Write what waits, to leave when the step has ended."""
        if self._dialer.dirty:
            self._dialer.flush(self._wait_us)
        if self._listener.dirty or self._listener.answered:
            self._listener.flush(self._wait_us)

    def _fail(self, error: Exception) -> None:
        self._watcher.on_failure(self, error)

    def _send(self, effect: Send) -> None:
        target = effect.to
        if target == BOOTSTRAP:
            chosen = self._bootstrap.choose(effect.call)
            assert chosen is not None, f"{self.name} has no address"
            target = chosen
        if self.points is not None:
            body = self.points.request(effect.body)
            # Few requests are changed, and a copy of the effect takes long.
            effect = effect if body is effect.body else replace(effect, body=body)
        self._watcher.on_sent(self, effect, target)
        self._dialer.send(effect, target)

    def _reply(self, effect: Reply) -> None:
        asked = self._inbound.pop(effect.call, None)
        # A request with acks=0, or one whose sender has left, is not here.
        if asked is not None:
            exchange, answer = asked
            body = effect.body if self.points is None else self.points.reply(effect.body)
            self._watcher.on_reply(self, exchange, body)
            answer(body)
        elif effect.call in self._left:
            self._watcher.on_idle_reply(self, effect.body)

    def _set_timer(self, effect: SetTimer) -> None:
        delay_us = max(self.clock.delay_us(effect.at_ms), self._wait_us)
        if self.points is not None:
            delay_us = self.points.timer_us(self.world.now_us, delay_us)
        self._timers.set(effect.key, delay_us)

    def _cancel_timer(self, effect: CancelTimer) -> None:
        self._timers.cancel(effect.key)

    def _on_timer(self, key: str) -> None:
        if self._inbox and self.points is not None and self.points.timer_overtakes():
            self._inbox.appendleft((TimerFired(key=key), None))
            self._go_on()
        else:
            self.feed(TimerFired(key=key))

    def _run_job(self, effect: RunJob) -> None:
        raise AssertionError(f"{self.name} has no disk for job {effect.kind}")

    def _learn(self, effect: LearnEndpoint) -> None:
        """Note that the core knows the address of a node; the network finds it by its number."""
        self.known_nodes.add(effect.node_id)

    def _stop(self, effect: Stop) -> None:
        raise AssertionError(f"{self.name} stopped: {effect.reason}")

    def freeze_clock(self) -> None:
        """Let the machine's clock stand still: its timers wait, and all else goes on."""
        self.clock.freeze()
        assert self.clock.frozen_us is not None, self.name
        self._hold_timers(self.clock.frozen_us)

    def _hold_timers(self, since_us: int) -> None:
        self._timers.hold(since_us)
        self._dialer.hold_alarms(since_us)

    def thaw_clock(self, *, catches_up: bool) -> None:
        """Let the clock go on, with the right time or behind by the time that it stood."""
        behind_us = self.clock.thaw(catches_up=catches_up)
        self._timers.release(behind_us)
        self._dialer.release_alarms(behind_us)

    def pause(self) -> None:
        """Pause the process: sockets stay open, arriving events wait, timers fire late."""
        self.paused = True

    def resume(self) -> None:
        """Go on: what came is read, then late timers of connections ring, then the core goes on."""
        self.paused, self.resumed_us = False, self.world.now_us
        life_number = self.life_number
        unread, self._unread = self._unread, deque()
        for packet in unread:
            self._read(packet)
            if self.life_number != life_number:
                return
        late_writes, self._late_writes = self._late_writes, []
        for token in late_writes:
            self._end_write(token)
        if self.life_number == life_number:
            self._dialer.resume()
        if self.life_number == life_number:
            self._go_on()


def _drop(body: ResponseBody) -> None:
    """Takes the answer to a request for which nobody waits."""


def _describe(event: Event, origin: Exchange | tuple[int, int] | None, network: Network) -> tuple[str, str]:
    """Returns the kind and the members of an event's trace line."""
    if type(event) is Request:
        assert type(origin) is Exchange, event.call
        members = (
            f'"call":{event.call},"from":"{origin.source.name}","sent":{origin.sent_us},"on":"{origin.path}"'
        )
        return "request", f'{members},"body":{encode_body(event.body)}'
    if type(event) is Response:
        assert type(origin) is tuple, event.call
        members = f'"call":{event.call},"from":"{network.name_of(origin[0])}","sent":{origin[1]}'
        return "response", f'{members},"body":{encode_body(event.body)}'
    if isinstance(event, TimerFired):
        return "timer", f'"key":{encode_body(event.key)}'
    if isinstance(event, JobDone):
        error = type(event.error).__name__ if event.error is not None else ""
        return "job_done", f'"job":{event.job}' + (f',"error":"{error}"' if error else "")
    assert isinstance(event, Shutdown), event
    return "shutdown", ""
