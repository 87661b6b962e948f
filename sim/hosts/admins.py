"""Simulated admin clients: each creates, alters, grows, describes and deletes a topic of its own through any broker.

Nobody else uses these topics. What brokers make of the requests is judged by the witness and by `forwarded-requests`;
these clients check that each of their calls has one outcome, in time.
"""

from __future__ import annotations

from typing import final

from cluster.core.client.admin import AdminCore, AdminRequest
from cluster.core.client.config import AdminConfig
from cluster.core.client.effects import Answered, Described
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    DEFAULT_COUNT,
    AlterTopicConfigsRequest,
    AlterTopicConfigsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
    MetadataRequest,
    MetadataResponse,
    ResponseBody,
)
from sim.hosts.lives import ClientShell
from sim.hosts.shell import Watcher
from sim.scenario.model import AdminModel
from sim.world.clock import Clock
from sim.world.network import Network
from sim.world.streams import Stream
from sim.world.time import World
from sim.world.trace import Trace

# How long a call may take; an outcome may come later by what clocks differ and steps take.
API_TIMEOUT_MS, _BOUND_MS = 8_000, 1_500
# Longer than a broker waits for the controller, so that it is the broker which has to answer.
_REQUEST_TIMEOUT_MS = 3_000
_ANSWERS = (
    MetadataResponse, CreateTopicResponse, DeleteTopicResponse, AlterTopicConfigsResponse, CreatePartitionsResponse,
)  # fmt: skip
# What a node answers that is starting, or does not answer at all; and a topic that is not there, which is an outcome.
_OF_THE_NODE = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE})
_FINAL = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_CONFIGS = (
    (("segment.ms", "700"),),
    (("retention.ms", "2000"), ("segment.ms", "")),
    (("flush.messages", "1"), ("retention.ms", "")),
    (("min.insync.replicas", "2"), ("flush.messages", "")),
    (("min.insync.replicas", ""),),
    # No controller takes these.
    (("retention.ms", "soon"),),
)


def topic_of(name: str) -> str:
    """Returns the topic of the admin client of that name."""
    return f"of-{name}"


@final
class AdminShell(ClientShell):
    """An admin client that asks for something drawn about its topic at each turn, whatever is still under way."""

    def __init__(
        self, world: World, network: Network, trace: Trace, watcher: Watcher, *, name: str, node_id: int,
        bootstrap: tuple[int, ...], model: AdminModel, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            world, network, trace, watcher, name=name, node_id=node_id, bootstrap=bootstrap, clock=clock
        )
        self._topic, self._every_us, self._is_finished = topic_of(name), model.every, False
        self._brokers = sorted(bootstrap)
        self._wishes = Stream(world.draws, "administer", name)
        # When each call without an outcome began, by ticket: in the time of the world, which the bound counts, and in
        # milliseconds of the client's clock.
        self._open: dict[int, tuple[int, int]] = {}
        self._next_ticket = 0
        self._actions[Answered] = self._on_answered
        self._actions[Described] = self._on_described

    @property
    def is_done(self) -> bool:
        """Whether each call has its outcome."""
        return not self._open

    def finish(self) -> None:
        """Ask for nothing more; what is under way still gets its outcome."""
        self._is_finished = True

    def _live(self) -> None:
        config = AdminConfig(request_timeout_ms=_REQUEST_TIMEOUT_MS, default_api_timeout_ms=API_TIMEOUT_MS)
        self.administrator = AdminCore(config)
        self.core = self.administrator
        self.world.after(self.actor, self._every_us, self._on_pace, self.life_number)

    def _on_pace(self, life_number: int) -> None:
        if life_number != self.life_number or self._is_finished:
            return
        self._judge_patience()
        self._ask()
        self.world.after(self.actor, self._every_us, self._on_pace, self.life_number)

    def _ask(self) -> None:
        """Begin a drawn call."""
        ticket, self._next_ticket = self._next_ticket, self._next_ticket + 1
        assert ticket not in self._open, (self.name, ticket)
        self._wait_us = 0
        now_ms, wish = self.clock.now_ms(), self._wish()
        self._open[ticket] = self.world.now_us, now_ms
        if wish is None:
            self.perform(self.administrator.describe(now_ms, (self._topic,), ticket=ticket))
        else:
            self.perform(self.administrator.ask(now_ms, wish, ticket=ticket))

    def _wish(self) -> AdminRequest | None:
        """Draws what is asked for; None for a description."""
        match self._wishes.below(10):
            case 0 | 1 | 2:
                return self._wish_for_topic()
            case 3 | 4 | 5:
                configs = _CONFIGS[self._wishes.below(len(_CONFIGS))]
                return AlterTopicConfigsRequest(name=self._topic, configs=configs)
            case 6:
                return CreatePartitionsRequest(name=self._topic, count=2 + self._wishes.below(3))
            case 7:
                return DeleteTopicRequest(name=self._topic)
            case 8:
                return MetadataRequest(topics=None)
            case _:
                return None

    def _wish_for_topic(self) -> CreateTopicRequest:
        """Draws a topic to create: of a size, of the size that the controller likes, or on brokers of its choice."""
        partitions, replicas = 1 + self._wishes.below(3), 1 + self._wishes.below(3)
        match self._wishes.below(5):
            case 0:
                return CreateTopicRequest(
                    name=self._topic, partitions=DEFAULT_COUNT, replication_factor=DEFAULT_COUNT
                )
            case 1 | 2:
                # Some of them may be fenced, or have never been registered.
                count, first = len(self._brokers), self._wishes.below(len(self._brokers))
                assignment = [
                    tuple([self._brokers[(first + number + place) % count] for place in range(replicas)])
                    for number in range(partitions)
                ]
                return CreateTopicRequest(name=self._topic, assignment=tuple(assignment))
            case _:
                return CreateTopicRequest(
                    name=self._topic, partitions=partitions, replication_factor=replicas
                )

    def _on_answered(self, effect: Answered) -> None:
        self._judge_error(effect.ticket, effect.error, effect.body)
        self._conclude(effect.ticket, has_none=effect.body is None and effect.error is ErrorCode.NONE)

    def _on_described(self, effect: Described) -> None:
        brokers = [each.broker_id for each in effect.replicas]
        known = [] if effect.metadata is None else [each.broker_id for each in effect.metadata.brokers]
        if brokers != sorted(set(brokers)) or not set(brokers) <= set(known):
            self._complain(f"brokers {brokers} described their replicas; asked were {known}")
        self._judge_error(effect.ticket, effect.error, effect.metadata)
        self._conclude(effect.ticket, has_none=effect.metadata is None and effect.error is ErrorCode.NONE)

    def _judge_error(self, ticket: int, error: ErrorCode, body: ResponseBody | None) -> None:
        """Judge that a refusal is not taken for the answer, nor for the end: another broker may have an answer, or the
        same one later."""
        waited_ms = self.clock.now_ms() - self._open.get(ticket, (0, 0))[1]
        if (
            (error.is_retriable or error in _OF_THE_NODE)
            and error not in _FINAL
            and waited_ms < API_TIMEOUT_MS
        ):
            self._complain(
                f"call {ticket} is given up after {waited_ms} ms of {API_TIMEOUT_MS}: {error.name}"
            )
        if error is ErrorCode.NONE and isinstance(body, _ANSWERS) and body.error is not ErrorCode.NONE:
            self._complain(f"a refusal was taken for the answer: {body}")

    def _conclude(self, ticket: int, *, has_none: bool) -> None:
        """Take the outcome of a call; with `has_none` it is neither an answer nor an error."""
        if self._open.pop(ticket, None) is None or has_none:
            self._complain(f"call {ticket} has a second outcome, or an empty one")

    def _judge_patience(self) -> None:
        for ticket, (began_us, _) in self._open.items():
            waited_ms = (self.world.now_us - began_us) // 1_000
            if waited_ms > API_TIMEOUT_MS + _BOUND_MS:
                self._complain(f"call {ticket} has no outcome after {waited_ms} ms")

    def _complain(self, what: str) -> None:
        """Report a failure of this client, unless bits have flipped that no checksum covers."""
        if not self.network.counts.unchecked:
            self._fail(AssertionError(what))

    def _forget_all(self, *, is_orderly: bool) -> None:
        self._open.clear()
