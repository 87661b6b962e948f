"""Judges orderly stops: the controller lets a broker go once all others have learned of its leave (BRK-7, BRK-8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from cluster.core.broker.lifecycle import SHUTDOWN_TIMER
from cluster.core.effects import Reply, RunJob, SetTimer, Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Request, Response, Shutdown, TimerFired
from cluster.core.messages import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from cluster.core.metadata.image import BrokerRegistration, MetadataImage
from sim.checkers.base import Jury

# What a broker signs with the registration of its process.
SignedRequest = AllocateProducerIdsRequest | AlterPartitionRequest | BrokerHeartbeatRequest
# A registration: the broker and its epoch.
Registered = tuple[int, int]


@final
class OrderlyStops:
    """Judges each heartbeat of a broker that stops, by the metadata on which the controller decides.

    The broker has left all ISRs and leads nothing; it stops once each active broker has read what the controller had
    decided until then, not before. What is decided later must not hold it up (KAFKA-14292). The broker itself ends when
    the controller lets it go, or at its deadline, which it sets when it is asked to stop. The controller that is asked
    to stop ends with the step after which it waits for no job any more, and with none before.
    """

    name = "orderly-stops"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # How far each broker has read, by its heartbeats.
        self._read: dict[Registered, int] = {}
        # What the others must read before the broker may stop.
        self._targets: dict[Registered, int] = {}
        self._fenced: frozenset[int] = frozenset()
        # The lives of brokers that the controller has registered.
        self._registered: set[tuple[int, int]] = set()
        # The lives of brokers that were asked to stop.
        self._asked: set[tuple[int, int]] = set()
        # Whether the controller was asked to stop.
        self._is_closing = False

    def on_registered(self, node_id: int, life: int) -> None:
        """Receives that a broker has learned of its registration, in that life of its process."""
        self._registered.add((node_id, life))

    def on_broker_step(
        self, node_id: int, life: int, events: Sequence[Event], effects: Sequence[object]
    ) -> None:
        """Receives a step of a broker that was asked to stop: only some end it, and the first sets its deadline."""
        if any(type(event) is Shutdown for event in events) and (node_id, life) not in self._asked:
            self._asked.add((node_id, life))
            if not any(map(_bounds_stop, effects)):
                self._jury.report(self.name, f"broker {node_id} is to stop, and has set itself no deadline")
        if any(type(effect) is RunJob and effect.kind == "shutdown" for effect in effects):
            is_registered = (node_id, life) in self._registered
            if not any(_may_end(event, is_registered=is_registered) for event in events):
                what = "ends before the controller lets it go, and before its deadline"
                self._jury.report(self.name, f"broker {node_id} {what}")

    def on_died(self) -> None:
        """Receives the end of the controller's process, which has forgotten what brokers have read."""
        self._read.clear()
        self._targets.clear()
        self._is_closing = False

    def on_step(self, events: Sequence[Event], effects: Sequence[object], image: MetadataImage) -> None:
        """Receives a step of the controller; `image` has all that it has decided, durable or not."""
        event = events[0]
        if type(event) is Request and isinstance(event.body, BrokerHeartbeatRequest):
            broker = image.brokers.get(event.body.broker_id)
            # A refusal may wait for the disk, behind the answers of changes: then it is not among the effects.
            if broker is not None and is_signed(event.body, image) and not is_refused(event.call, effects):
                self._on_heartbeat(broker, event.body, image)
        self._fenced = frozenset([number for number, each in image.brokers.items() if each.fenced])

    def on_controller_step(
        self, events: Sequence[Event], effects: Sequence[object], *, has_job: bool
    ) -> None:
        """Judge whether a step of the controller ends it; `has_job` says whether one goes on that was begun before."""
        self._is_closing |= any(type(event) is Shutdown for event in events)
        if any(type(effect) is Stop for effect in effects):
            if has_job:
                self._jury.report(self.name, "the controller ends, although a job of it goes on")
        elif self._is_closing and not has_job and not any(type(effect) is RunJob for effect in effects):
            self._jury.report(self.name, "the controller is to stop, waits for no job, and does not end")

    def _on_heartbeat(
        self, broker: BrokerRegistration, request: BrokerHeartbeatRequest, image: MetadataImage
    ) -> None:
        key = (broker.broker_id, broker.broker_epoch)
        # A fenced broker has no session, and begins one with the heartbeat that ends this.
        known = -1 if broker.broker_id in self._fenced else self._read.get(key, -1)
        self._read[key] = max(known, request.metadata_offset)
        self._judge_leave(broker, request, image)
        if broker.fenced or not broker.in_controlled_shutdown:
            # Its session has ended, and with it this stop: it may be unfenced by a late heartbeat, and begin another.
            self._targets.pop(key, None)
            return
        is_first = key not in self._targets
        target = self._targets.setdefault(key, image.next_offset)
        leads = any(each.leader == broker.broker_id for each in image.partitions())
        if is_first or leads or not all(self._has_read(each, target) for each in image.brokers.values()):
            return
        what = f"is kept from stopping, although all active brokers have read below {target}"
        self._jury.report(self.name, f"broker {broker.broker_id} in epoch {broker.broker_epoch} {what}")

    def _judge_leave(
        self, broker: BrokerRegistration, request: BrokerHeartbeatRequest, image: MetadataImage
    ) -> None:
        """Report a broker that this step lets go, although another one has not read what was decided for its leave."""
        target = self._targets.get((broker.broker_id, broker.broker_epoch))
        was_fenced = broker.broker_id in self._fenced
        if target is None or was_fenced or not broker.fenced or request.want_fence:
            return
        behind = [each.broker_id for each in image.brokers.values() if not self._has_read(each, target)]
        if behind:
            who = f"broker {broker.broker_id} in epoch {broker.broker_epoch}"
            self._jury.report(self.name, f"{who} may stop; brokers {behind} have not read below {target}")

    def _has_read(self, broker: BrokerRegistration, target: int) -> bool:
        return not broker.is_active or self._read.get((broker.broker_id, broker.broker_epoch), -1) >= target


def is_signed(body: SignedRequest, image: MetadataImage) -> bool:
    """Whether a request is of the registered process of the broker, of this cluster."""
    broker, header = image.brokers.get(body.broker_id), body.header
    if broker is None or header is None:
        return False
    named = (header.broker_id, header.broker_epoch, body.broker_epoch, header.incarnation)
    registered = (broker.broker_id, broker.broker_epoch, broker.broker_epoch, broker.incarnation)
    return named == registered and header.cluster_id in ("", image.cluster_id)


def _bounds_stop(effect: object) -> bool:
    """Whether a broker that does this will end, whatever the controller says."""
    if isinstance(effect, SetTimer):
        return effect.key == SHUTDOWN_TIMER
    return isinstance(effect, Stop) or (isinstance(effect, RunJob) and effect.kind == "shutdown")


def _may_end(event: Event, *, is_registered: bool) -> bool:
    match event:
        case Response(body=BrokerHeartbeatResponse(should_shut_down=True)):
            return True
        case TimerFired(key=key):
            return key == SHUTDOWN_TIMER
        case Shutdown():
            return not is_registered
        case _:
            return False


def is_refused(call: int, effects: Sequence[object]) -> bool:
    """Whether the controller has refused the request at once, as one that is closing does."""
    return any(
        type(effect) is Reply
        and effect.call == call
        and getattr(effect.body, "error", ErrorCode.NONE) is not ErrorCode.NONE
        for effect in effects
    )
