"""Tiny cores that keep the contract of `cluster/core/effects.py`, to test shells without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cluster.core.connection.outgoing import Answer
from cluster.core.connection.rooms import Room
from cluster.core.effects import Effect, Observe, Reply, Send, SetTimer
from cluster.core.events import Event, Request, Response, TimerFired, TransportError
from cluster.core.messages import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    RequestBody,
    ResponseBody,
    TopicPartition,
)
from sim.hosts.node import Node, NodeCore, new_disk
from sim.hosts.shell import Shell
from sim.world.network import Network, Transport
from sim.world.packets import Exchange
from sim.world.time import World
from sim.world.trace import Trace
from storage.disk.filesystem import FileSystem
from storage.draws import Draws

T0 = TopicPartition("t", 0)


def ask(to: int, call: int, number: int = 0, timeout_ms: int = 1_000, replica_id: int = -1) -> Send:
    """A request on a stream: that of consumers, or of followers for a replica id."""
    item = FetchPartition(topic_partition=T0, fetch_offset=number)
    body = FetchRequest(replica_id=replica_id, partitions=(item,))
    return Send(to=to, call=call, body=body, timeout_ms=timeout_ms)


def ask_alone(to: int, call: int, number: int = 0, timeout_ms: int = 1_000) -> Send:
    """A unary call."""
    return Send(to=to, call=call, body=MetadataRequest(topics=(str(number),)), timeout_ms=timeout_ms)


class Echo:
    """A core that answers each request with its content. `log` holds what came, with its time."""

    def __init__(self, first: Sequence[Effect] = (), log: list[tuple[int, Event]] | None = None) -> None:
        self.first = list(first)
        self.log: list[tuple[int, Event]] = [] if log is None else log

    def start(self, now_ms: int) -> list[Effect]:
        return self.first

    def step(self, now_ms: int, event: Event) -> Sequence[object]:
        self.log.append((now_ms, event))
        if isinstance(event, Request):
            return [Reply(call=event.call, body=echo_of(event.body))]
        return []

    def errors(self) -> list[str]:
        """Return the reasons of the transport errors that came, in order."""
        return [
            event.body.reason
            for _, event in self.log
            if isinstance(event, Response) and isinstance(event.body, TransportError)
        ]

    def answers(self) -> list[int]:
        return [event.call for _, event in self.log if isinstance(event, Response)]

    def asked(self) -> list[int]:
        """The numbers of the requests, in the order in which they came."""
        return [number_in(event.body) for _, event in self.log if isinstance(event, Request)]


def number_in(body: RequestBody) -> int:
    if isinstance(body, FetchRequest):
        return body.partitions[0].fetch_offset
    assert isinstance(body, MetadataRequest) and body.topics is not None
    return int(body.topics[0])


def echo_of(body: RequestBody) -> ResponseBody:
    if isinstance(body, FetchRequest):
        item = FetchPartitionResponse(topic_partition=T0, high_watermark=number_in(body))
        return FetchResponse(partitions=(item,))
    return MetadataResponse(cluster_id=str(number_in(body)))


class Asker(Echo):
    """A core that sends one request each millisecond, so that each is a frame of its own."""

    def __init__(self, asks: Sequence[Send], first_ms: int) -> None:
        super().__init__([timer(str(each), first_ms + each) for each in range(len(asks))])
        self.asks = asks

    def step(self, now_ms: int, event: Event) -> Sequence[object]:
        self.log.append((now_ms, event))
        return [self.asks[int(event.key)]] if isinstance(event, TimerFired) else []


class Silent(Echo):
    """A core that answers nothing, takes several requests at once, and remembers what it was told to forget."""

    def __init__(self, first: Sequence[Effect] = ()) -> None:
        super().__init__(first)
        self.turns: list[int] = []
        self.forgotten: list[int] = []

    def step(self, now_ms: int, event: Event) -> Sequence[object]:
        return self.steps(now_ms, (event,))

    def steps(self, now_ms: int, events: Sequence[Event]) -> Sequence[object]:
        self.turns.append(len(events))
        self.log += [(now_ms, event) for event in events]
        return []

    def forget(self, call: int) -> None:
        self.forgotten.append(call)


class Onlooker:
    """An observer that writes down what it is shown."""

    def __init__(self) -> None:
        self.observed: list[str] = []
        self.idle_replies = 0
        self.failures: list[Exception] = []
        self.ends: list[tuple[str, bool, bool]] = []
        self.stops: list[str] = []

    def on_observes(self, shell: Shell, observes: list[Observe]) -> None:
        self.observed += [observe.kind for observe in observes]

    def on_step(self, shell: Shell, events: Sequence[Event], effects: Sequence[object]) -> None:
        return

    def on_failure(self, shell: Shell, error: Exception) -> None:
        self.failures.append(error)

    def on_reply(self, shell: Shell, exchange: Exchange, body: ResponseBody) -> None:
        return

    def on_idle_reply(self, shell: Shell, body: ResponseBody) -> None:
        self.idle_replies += 1

    def on_left(self, shell: Shell, exchange: Exchange) -> None:
        return

    def on_accepted_silently(self, shell: Shell, exchange: Exchange) -> None:
        return

    def on_places(self, shell: Shell, room: Room, in_core: int, unwritten: int, held_up: int) -> None:
        return

    def on_waiting_call(self, shell: Shell, target: int, path: str, taken: int, most: int) -> None:
        return

    def on_late_alarm(self, shell: Shell, call: int, late_ms: int) -> None:
        return

    def on_sent(self, shell: Shell, effect: Send, target: int) -> None:
        return

    def on_accepted(self, shell: Shell, exchange: Exchange) -> None:
        return

    def on_answered(self, shell: Shell, call: int, body: Answer) -> None:
        return

    def on_stop(self, shell: Shell, reason: str) -> None:
        self.stops.append(reason)

    def on_metadata(self, node: Node) -> None:
        return

    def on_power_loss(self, shell: Shell) -> None:
        return

    def on_unwound(self, node: Node) -> None:
        pass

    def on_end(self, shell: Shell, *, lost_power: bool, in_order: bool) -> None:
        self.ends.append((shell.name, lost_power, in_order))


class Site:
    """A world with nodes 1, 2, …, each over the core that `make` returns for it."""

    def __init__(
        self,
        make: Callable[[int], NodeCore],
        nodes: int = 2,
        *,
        seed: int = 1,
        transport: Transport = Transport.STREAM,
        loss_percent: int = 0,
        duplicate_percent: int = 0,
        job_means_us: Mapping[str, int] | None = None,
        onlooker: Onlooker | None = None,
    ) -> None:
        self._job_means_us = job_means_us
        self.world = World(Draws(seed))
        self.trace = Trace()
        self.network = Network(
            self.world,
            self.trace,
            transport=transport,
            loss_percent=loss_percent,
            duplicate_percent=duplicate_percent,
        )
        self.onlooker = onlooker or Onlooker()
        self.nodes = {number: self._node(number, make) for number in range(1, nodes + 1)}

    def _node(self, number: int, make: Callable[[int], NodeCore]) -> Node:
        def make_core(file_system: FileSystem, draws: Draws) -> NodeCore:
            return make(number)

        return Node(
            self.world,
            self.network,
            self.trace,
            self.onlooker,
            name=f"node-{number}",
            node_id=number,
            disk=new_disk(self.world, f"node-{number}"),
            make_core=make_core,
            job_means_us=self._job_means_us,
        )

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()


def timer(key: str, at_ms: int) -> SetTimer:
    return SetTimer(key=key, at_ms=at_ms)
