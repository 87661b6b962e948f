"""A broker's life towards the controller: it registers, sends heartbeats, is unfenced, and leaves in order.

Kafka: BrokerLifecycleManager; rules BRK-1 to BRK-8.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import final

from cluster.core import fencing
from cluster.core.broker.ending import Ending, OrderlyStop
from cluster.core.broker.logs import BrokerLogs
from cluster.core.broker.publication import Publication
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import (
    NO_BROKER_EPOCH,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    Header,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    ResponseBody,
)
from cluster.core.replica.context import ReplicaContext
from storage.draws import Draws

REGISTER_TIMER = "broker.register"
HEARTBEAT_TIMER = "broker.heartbeat"
SHUTDOWN_TIMER = "broker.shutdown"
# Kafka's delay between the first two heartbeats of a leave.
FIRST_LEAVE_DELAY_MS = 50


class BrokerState(StrEnum):
    """The state of a broker towards the controller, in the order of its life."""

    # Not registered yet.
    STARTING = "starting"
    # Registered, and fenced until it has caught up.
    RECOVERY = "recovery"
    RUNNING = "running"
    PENDING_SHUTDOWN = "pending_shutdown"
    SHUTTING_DOWN = "shutting_down"


@final
class Lifecycle:
    """Registers the broker, and keeps it registered. At most one registration and one heartbeat are on their way."""

    def __init__(
        self,
        context: ReplicaContext,
        logs: BrokerLogs,
        publication: Publication,
        ending: Ending,
        orderly_stop: OrderlyStop,
        draws: Draws,
    ) -> None:
        self._context = context
        self._config = context.config
        self._logs = logs
        self._publication = publication
        self._ending = ending
        self._orderly_stop = orderly_stop
        self.incarnation = "".join(f"{draws.bits('incarnation', half):016x}" for half in range(2))
        self.state = BrokerState.STARTING
        self.is_unfenced = False
        # How many requests failed in a row.
        self._failures = 0
        self._is_registering = False
        self._is_beating = False
        # Something changed while a heartbeat was in flight.
        self._is_beat_due = False
        self._leave_beats = 0

    def start(self, now_ms: int) -> None:
        self._name_itself()
        self._register(now_ms)

    def _name_itself(self) -> None:
        """Makes the header of all requests to other nodes, at the start and when the broker epoch is new (G-4)."""
        self._context.header = Header(
            cluster_id=self._logs.cluster_id,
            broker_id=self._config.node_id,
            broker_epoch=self._context.broker_epoch,
            incarnation=self.incarnation,
        )

    def _register(self, now_ms: int) -> None:
        if self._is_registering or self.state is BrokerState.SHUTTING_DOWN:
            return
        assert not self._ending.is_over, self.state
        own_epoch = self._context.broker_epoch
        assert own_epoch == NO_BROKER_EPOCH or self.state is not BrokerState.STARTING, own_epoch
        self._is_registering = True
        request = RegisterBrokerRequest(
            header=self._context.header,
            broker_id=self._config.node_id,
            incarnation=self.incarnation,
            host=self._config.host,
            port=self._config.port,
            previous_broker_epoch=self._logs.previous_broker_epoch,
            cluster_id=self._logs.cluster_id,
        )
        self._context.outbox.send(
            self._config.controller_id,
            request,
            timeout_ms=self._config.heartbeat_timeout_ms,
            then=self._on_registration,
        )

    def _on_registration(self, now_ms: int, body: ResponseBody | TransportError) -> None:
        assert self._is_registering, body
        assert not self._ending.is_over, self.state
        self._is_registering = False
        match body:
            case RegisterBrokerResponse(error=ErrorCode.NONE):
                self._on_registered(now_ms, body)
            case RegisterBrokerResponse(error=ErrorCode.INCONSISTENT_CLUSTER_ID):
                self._ending.fail(
                    "the controller refused the registration: this broker belongs to another cluster"
                )
            case _:
                # DUPLICATE_BROKER_REGISTRATION lasts until the session of the last life has expired.
                self._failures += 1
                self._context.outbox.set_timer(REGISTER_TIMER, now_ms + self._backoff_ms(), self._register)

    def _on_registered(self, now_ms: int, body: RegisterBrokerResponse) -> None:
        # The end forgets all handlers, that of the registration too.
        assert self.state is not BrokerState.SHUTTING_DOWN, body
        self._failures = 0
        self._context.broker_epoch = body.broker_epoch
        if self.state is BrokerState.STARTING:
            self.state = BrokerState.RECOVERY
        self._context.outbox.observe("broker.registered", broker_epoch=body.broker_epoch)
        self._logs.remember_cluster(body.cluster_id)
        self._name_itself()
        if self._publication.maybe_publish_first(now_ms):
            self.beat(now_ms)
        self.beat(now_ms)

    def _backoff_ms(self) -> int:
        assert self._failures > 0, self._failures
        doubled = self._config.retry_backoff_ms << min(self._failures - 1, 20)
        return min(doubled, self._config.retry_backoff_max_ms)

    def beat(self, now_ms: int) -> None:
        """Sends a heartbeat now, or as soon as the one in flight is answered; none before the registration."""
        if self._context.broker_epoch == NO_BROKER_EPOCH or self.state is BrokerState.SHUTTING_DOWN:
            return
        if self._is_beating:
            self._is_beat_due = True
            return
        assert self.state is not BrokerState.STARTING, self._context.broker_epoch
        assert not self._ending.is_over, self.state
        self._is_beating, self._is_beat_due = True, False
        request = BrokerHeartbeatRequest(
            header=self._context.header,
            broker_id=self._config.node_id,
            broker_epoch=self._context.broker_epoch,
            metadata_offset=self._context.metadata.image.next_offset,
            want_fence=self.wants_fence(),
            want_shutdown=self.state is BrokerState.PENDING_SHUTDOWN,
            offline_partitions=self._context.offline_partitions(),
        )
        self._context.outbox.cancel_timer(HEARTBEAT_TIMER)
        self._context.outbox.send(
            self._config.controller_id,
            request,
            timeout_ms=self._config.heartbeat_timeout_ms,
            then=partial(self._on_heartbeat, request.broker_epoch),
        )

    def wants_fence(self) -> bool:
        """Returns whether the broker must stay fenced: it does not act yet on its own registration (BRK-2)."""
        return not self._publication.has_caught_up()

    def _on_heartbeat(self, broker_epoch: int, now_ms: int, body: ResponseBody | TransportError) -> None:
        assert self._is_beating, body
        self._is_beating = False
        if not fencing.is_answer_to_life(broker_epoch, self._context.broker_epoch):
            # The answer is late: it tells of a life that this process has replaced by a new registration since.
            self.beat(now_ms)
            return
        match body:
            case BrokerHeartbeatResponse(error=ErrorCode.NONE):
                self._failures = 0
                self._on_beat(now_ms, body)
            case BrokerHeartbeatResponse(
                error=ErrorCode.STALE_BROKER_EPOCH | ErrorCode.BROKER_ID_NOT_REGISTERED
            ):
                # Heartbeats go on after the registration is answered.
                self._step_down()
                self._register(now_ms)
                assert self._is_registering, self.state
            case _:
                self._failures += 1
                delay_ms = min(self._backoff_ms(), self._config.broker_heartbeat_interval_ms)
                self._beat_after(now_ms, delay_ms)

    def maybe_step_down(self, now_ms: int) -> bool:
        """Steps down if the metadata names another process as this broker. Returns whether it names one."""
        if not self._publication.is_superseded():
            return False
        if self._step_down():
            self._register(now_ms)
        return True

    def _step_down(self) -> bool:
        """Ends all roles of this process: another one is registered under its id. Returns whether it did.

        Kafka's broker goes on, and is only refused by others (BRK-3). But the next leader epoch of the id is for the
        other process, and this one would take it for its own.
        """
        if not self._publication.withdraw():
            return False
        self._context.outbox.observe("broker.superseded", broker_epoch=self._context.broker_epoch)
        return True

    def _on_beat(self, now_ms: int, body: BrokerHeartbeatResponse) -> None:
        self._note_fenced(body.is_fenced)
        if self.state is BrokerState.PENDING_SHUTDOWN:
            self._on_leave_beat(now_ms, body)
        elif self._is_beat_due:
            self.beat(now_ms)
        else:
            self._beat_after(now_ms, self._config.broker_heartbeat_interval_ms)

    def _note_fenced(self, is_fenced: bool) -> None:
        """Notes whether the controller has fenced the broker, which serves on until the metadata ends its roles."""
        if is_fenced == (not self.is_unfenced):
            return
        assert self.state is not BrokerState.STARTING, is_fenced
        self.is_unfenced = not is_fenced
        self._context.outbox.observe("broker.fenced" if is_fenced else "broker.unfenced")
        if self.state is BrokerState.RECOVERY and self.is_unfenced:
            self.state = BrokerState.RUNNING
        assert self.state is not BrokerState.RECOVERY or not self.is_unfenced, is_fenced

    def _beat_after(self, now_ms: int, delay_ms: int) -> None:
        self._context.outbox.set_timer(HEARTBEAT_TIMER, now_ms + delay_ms, self.beat)

    def leave(self, now_ms: int) -> None:
        """Asks the controller to move the leaders away; the broker ends at a deadline all the same (BRK-7, BRK-8)."""
        if self.state in (BrokerState.PENDING_SHUTDOWN, BrokerState.SHUTTING_DOWN):
            return
        if self._context.broker_epoch == NO_BROKER_EPOCH:
            self.end(now_ms)
            return
        assert not self._context.is_shutting_down, self.state
        self.state = BrokerState.PENDING_SHUTDOWN
        self._context.is_shutting_down = True
        deadline_ms = now_ms + self._config.controlled_shutdown_timeout_ms
        self._context.outbox.set_timer(SHUTDOWN_TIMER, deadline_ms, self.end)
        self.beat(now_ms)
        # The controller is asked now, or as soon as the heartbeat in flight is answered.
        assert self._is_beating, self._context.broker_epoch

    def _on_leave_beat(self, now_ms: int, body: BrokerHeartbeatResponse) -> None:
        assert self._context.is_shutting_down, self.state
        if body.should_shut_down:
            self.end(now_ms)
            return
        assert not self._is_beating, self._leave_beats
        self._leave_beats += 1
        if self._is_beat_due or self._leave_beats == 1:
            self._beat_after(now_ms, FIRST_LEAVE_DELAY_MS)
        else:
            self._beat_after(
                now_ms, min(self._config.retry_backoff_max_ms, self._config.broker_heartbeat_interval_ms)
            )

    def end(self, now_ms: int) -> None:
        if self.state is not BrokerState.SHUTTING_DOWN:
            self.state = BrokerState.SHUTTING_DOWN
            self._orderly_stop.begin(now_ms)
