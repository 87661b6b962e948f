"""The shell of a core in virtual time: feeds the core one event at a time and carries out its effects.

It keeps the promises of `cluster/core/effects.py`: one `Response` for each `Send`, timers that replace each other.
`sim/hosts/node.py` adds the parts that only nodes have: a disk, jobs, and lives that end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

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
from cluster.core.messages import ResponseBody
from sim.hosts.timers import Deadlines, Timers
from sim.world.clock import Clock
from sim.world.network import Exchange, Network, Reachability
from sim.world.streams import Stream
from sim.world.time import Actor, World
from sim.world.trace import Trace, encode_body

# The least time that a step takes, and the spread of the drawn time above it.
HANDLING_US = 20
HANDLING_SPREAD_US = 60


class Core(Protocol):
    """A core of the product as a shell sees it; a node's core also has `start`."""

    def step(self, now_ms: int, event: Event) -> Sequence[object]: ...


class Watcher(Protocol):
    """The watcher of a shell, from outside."""

    def on_observes(self, shell: Shell, observes: list[Observe]) -> None:
        """Receives all observations of one step, before its other effects are carried out."""

    def on_failure(self, shell: Shell, error: Exception) -> None:
        """Receives an error that a core raised; no core may raise."""

    def on_reply(self, shell: Shell, exchange: Exchange, body: ResponseBody) -> None:
        """Receives each answer to a request that expects one, before it is sent."""


Queued = tuple[Event, Exchange | None]


class Shell:
    """The common part of nodes and clients. `life_number` grows whenever a life begins or ends.

    Where a core sends to `BOOTSTRAP`, the target is drawn from the nodes in `bootstrap`.
    """

    def __init__(
        self, world: World, network: Network, trace: Trace, watcher: Watcher, *, name: str, node_id: int,
        bootstrap: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self.world, self.network, self.trace, self._watcher = world, network, trace, watcher
        self.name, self.node_id = name, node_id
        self.life_number = 0
        self.paused = False
        self._bootstrap = bootstrap
        self.clock = Clock(world)
        self.core: Core | None = None
        self.actor = Actor(world.draws, name)
        self._cost = Stream(world.draws, "handling", name)
        self._pick = Stream(world.draws, "bootstrap", name)
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

    def _forget(self) -> None:
        """End the timers and deadlines of the last life and begin with an empty memory."""
        self._timers.end()
        self._deadlines.end()
        self._begin_memory()

    def _begin_memory(self) -> None:
        """Make the state that one life holds in memory."""
        self._inbox: deque[Queued] = deque()
        self._is_waking = False
        self._busy_until_us = 0
        self._timers = Timers(self.world, self.actor, self._on_timer)
        self._deadlines = Deadlines(self.world, self.actor)
        self._outstanding: dict[int, Exchange] = {}
        self._inbound: dict[int, Exchange] = {}
        self._next_inbound = 1
        self._wait_us = 0

    def reachability(self) -> Reachability:
        return Reachability.UP if self.core is not None else Reachability.REFUSING

    def accept(self, exchange: Exchange) -> None:
        """Receives a request from the network and feeds it to the core."""
        assert exchange.target == self.node_id, (self.name, exchange.target)
        call = self._next_inbound
        self._next_inbound = call + 1
        assert call not in self._inbound, (self.name, call)
        if exchange.expects_reply:
            self._inbound[call] = exchange
        self.feed(Request(call=call, body=exchange.body), exchange)

    def answered(self, exchange: Exchange, body: ResponseBody | TransportError) -> None:
        assert self._outstanding.get(exchange.call) is exchange, (self.name, exchange.call)
        del self._outstanding[exchange.call]
        self.feed(Response(call=exchange.call, body=body), exchange)

    def feed(self, event: Event, exchange: Exchange | None = None) -> None:
        """Handle the event at once if the core is idle, else after the events before it."""
        if self._inbox or self.paused or self.world.now_us < self._busy_until_us:
            self._inbox.append((event, exchange))
            self._wake_later()
        else:
            self._handle(event, exchange)

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
            event, exchange = self._inbox.popleft()
            self._handle(event, exchange)
            if self._inbox:
                self._wake_later()
        assert not self._inbox or self._is_waking or self.paused, (self.name, len(self._inbox))

    def _handle(self, event: Event, exchange: Exchange | None) -> None:
        core = self.core
        assert core is not None, f"{self.name} handles an event while it is down"
        now_us = self.world.now_us
        assert now_us >= self._busy_until_us, (self.name, now_us, self._busy_until_us)
        self.trace.event(now_us, self.name, *_describe(event, exchange, self.network))
        try:
            effects = core.step(self.world.now_ms, event)
        except Exception as error:
            self._fail(error)
            return
        self._wait_us = cost_us = HANDLING_US + self._cost.below(HANDLING_SPREAD_US)
        self._busy_until_us = now_us + cost_us
        self.perform(effects)

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

    def _fail(self, error: Exception) -> None:
        self._watcher.on_failure(self, error)

    def _send(self, effect: Send) -> None:
        target = effect.to
        if target == BOOTSTRAP:
            target = self._bootstrap[self._pick.below(len(self._bootstrap))]
        exchange = Exchange(
            source=self, target=target, call=effect.call, body=effect.body,
            expects_reply=effect.expects_reply, sent_us=self.world.now_us + self._wait_us,
        )  # fmt: skip
        if effect.expects_reply:
            assert effect.call not in self._outstanding, f"{self.name} used call {effect.call} twice"
            self._outstanding[effect.call] = exchange
            self._deadlines.watch(exchange, effect.timeout_ms)
        else:
            exchange.is_over = True
        self.network.request(exchange, self._wait_us)
        # The network answers later, not inside the sender's step.
        assert exchange.is_over != effect.expects_reply, (self.name, effect.call)

    def _reply(self, effect: Reply) -> None:
        exchange = self._inbound.pop(effect.call, None)
        # A request with acks=0 has no exchange here, because no reply is expected.
        if exchange is not None:
            self._watcher.on_reply(self, exchange, effect.body)
            self.network.reply(exchange, effect.body, self._wait_us)

    def _set_timer(self, effect: SetTimer) -> None:
        self._timers.set(effect.key, max(self.clock.delay_us(effect.at_ms), self._wait_us))

    def _cancel_timer(self, effect: CancelTimer) -> None:
        self._timers.cancel(effect.key)

    def _on_timer(self, key: str) -> None:
        self.feed(TimerFired(key=key))

    def _run_job(self, effect: RunJob) -> None:
        raise AssertionError(f"{self.name} has no disk for job {effect.kind}")

    def _learn(self, effect: LearnEndpoint) -> None:
        """Do nothing: the network finds nodes by their numbers."""

    def _stop(self, effect: Stop) -> None:
        raise AssertionError(f"{self.name} stopped: {effect.reason}")

    def pause(self) -> None:
        """Pause the process: sockets stay open, arriving events wait, timers fire late."""
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        if self._inbox:
            self._wake_later()


def _describe(event: Event, exchange: Exchange | None, network: Network) -> tuple[str, str]:
    """Returns the kind and the members of an event's trace line."""
    if isinstance(event, Request):
        assert exchange is not None
        members = f'"call":{event.call},"from":"{exchange.source.name}","sent":{exchange.sent_us}'
        return "request", f'{members},"body":{encode_body(event.body)}'
    if isinstance(event, Response):
        assert exchange is not None
        source = network.name_of(exchange.target)
        members = f'"call":{event.call},"from":"{source}","sent":{exchange.replied_us}'
        return "response", f'{members},"body":{encode_body(event.body)}'
    if isinstance(event, TimerFired):
        return "timer", f'"key":{encode_body(event.key)}'
    if isinstance(event, JobDone):
        error = type(event.error).__name__ if event.error is not None else ""
        return "job_done", f'"job":{event.job}' + (f',"error":"{error}"' if error else "")
    assert isinstance(event, Shutdown), event
    return "shutdown", ""
