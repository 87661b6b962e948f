"""The life of brokers as the controller sees it: rules BRK-1 to BRK-7 and BRK-9.

Kafka: ClusterControlManager.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.core import fencing
from cluster.core.controller.config import ControllerConfig
from cluster.core.controller.decisions import Decision
from cluster.core.controller.partitions import PartitionControl
from cluster.core.controller.sessions import Sessions
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import (
    MOST_BROKERS,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RequestBody,
)
from cluster.core.metadata.image import BrokerRegistration, CurrentImage, MetadataImage
from cluster.core.metadata.records import (
    BrokerChangeRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
)

MAX_PRODUCER_ID = (1 << 63) - 1


def _nothing() -> None:
    return None


class BrokerControl:
    """Decides about brokers on the pending image. A method that raises ClusterError has changed nothing."""

    def __init__(
        self,
        config: ControllerConfig,
        pending: CurrentImage,
        partitions: PartitionControl,
        sessions: Sessions,
    ) -> None:
        self.config = config
        self._pending = pending
        self.partitions = partitions
        self.sessions = sessions

    @property
    def image(self) -> MetadataImage:
        """The pending image: what is committed, and what is appended."""
        return self._pending.image

    def undo_of(self, request: RequestBody) -> Callable[[], None]:
        """Returns what takes back all that a decision on `request` notes outside of the log, if it is not appended."""
        if not isinstance(request, (RegisterBrokerRequest, BrokerHeartbeatRequest)):
            return _nothing
        broker_id, offline = request.broker_id, self.partitions.offline
        known, restore = offline.get(broker_id), self.sessions.restorer(request.broker_id)

        def undo() -> None:
            restore()
            if known is None:
                offline.pop(broker_id, None)
            else:
                offline[broker_id] = known

        return undo

    def register(self, request: RegisterBrokerRequest, now_ms: int) -> Decision:
        """Registers a new life of a broker; a repeated request gets its first answer again (BRK-1).

        Raises ClusterError.
        """
        fencing.check_cluster(request.broker_id, request.cluster_id, self.image.cluster_id)
        self.check_is_not_controller(request)
        known = self.image.brokers.get(request.broker_id)
        if known is not None and fencing.is_same_incarnation(request.incarnation, known.incarnation):
            return Decision(reply=self._registered(known.broker_epoch))
        self.check_has_room_for(request)
        self.check_no_live_session(request, now_ms)
        self.sessions.end(request.broker_id)
        self.partitions.offline.pop(request.broker_id, None)
        records: list[MetadataRecord] = [*self.records_for_old_incarnation(known)]
        broker_epoch = self.image.next_offset + len(records)
        assert known is None or broker_epoch > known.broker_epoch, (broker_epoch, known)
        records.append(
            RegisterBrokerRecord(
                broker_id=request.broker_id,
                incarnation=request.incarnation,
                host=request.host,
                port=request.port,
            )
        )
        return Decision(reply=self._registered(broker_epoch), records=tuple(records))

    def check_is_not_controller(self, request: RegisterBrokerRequest) -> None:
        """Raises ClusterError for the controller's own id: brokers would take the sender for the controller."""
        if request.broker_id == self.config.node_id:
            raise ClusterError(ErrorCode.INVALID_REQUEST, f"{request.broker_id} is the controller's own id")

    def check_has_room_for(self, request: RegisterBrokerRequest) -> None:
        """Raises ClusterError for an id too many: clients would refuse an answer with more brokers as out of bounds."""
        known = self.image.brokers
        if request.broker_id not in known and len(known) >= MOST_BROKERS:
            raise ClusterError(ErrorCode.INVALID_REQUEST, f"{len(known)} brokers are registered already")

    def check_no_live_session(self, request: RegisterBrokerRequest, now_ms: int) -> None:
        if self.sessions.is_live(request.broker_id, now_ms):
            raise ClusterError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION, f"broker {request.broker_id} has a live session"
            )

    def records_for_old_incarnation(self, known: BrokerRegistration | None) -> list[MetadataRecord]:
        """Returns what ends the roles of the last life, before the new one is registered (ELE-9)."""
        return [] if known is None else [*self.partitions.records_for_leaving(known.broker_id)]

    def _registered(self, broker_epoch: int) -> RegisterBrokerResponse:
        return RegisterBrokerResponse(broker_epoch=broker_epoch, cluster_id=self.image.cluster_id)

    def heartbeat(self, request: BrokerHeartbeatRequest, now_ms: int) -> Decision:
        """Moves the broker at most one state on (KR-BRK-1), and notes its sign of life. Raises ClusterError."""
        self.partitions.check_broker_epoch(request.broker_id, request.broker_epoch)
        broker = self.image.brokers[request.broker_id]
        self.sessions.touch(request.broker_id, now_ms, request.metadata_offset)
        offline = self.partitions.records_for_offline(request.broker_id, request.offline_partitions)
        if broker.fenced:
            return self._heartbeat_of_fenced(broker, request, now_ms)
        if request.want_fence:
            return self._fence_on_request(request)
        if broker.in_controlled_shutdown or request.want_shutdown:
            return self._shut_down(broker, request)
        return Decision(reply=self._beat(request, is_fenced=False), records=tuple(offline))

    def _heartbeat_of_fenced(
        self, broker: BrokerRegistration, request: BrokerHeartbeatRequest, now_ms: int
    ) -> Decision:
        assert broker.fenced, broker
        if request.want_shutdown:
            return Decision(reply=self._beat(request, is_fenced=True, should_shut_down=True))
        if request.want_fence or not self.has_caught_up(request):
            return Decision(reply=self._beat(request, is_fenced=True))
        self.sessions.begin(broker.broker_id, now_ms, request.metadata_offset)
        return Decision(
            reply=self._beat(request, is_fenced=False),
            records=(
                BrokerChangeRecord(
                    broker_id=broker.broker_id,
                    broker_epoch=broker.broker_epoch,
                    fenced=False,
                    in_controlled_shutdown=False,
                ),
                *self.partitions.records_for_arriving(broker.broker_id),
            ),
        )

    def has_caught_up(self, request: BrokerHeartbeatRequest) -> bool:
        """Returns whether the broker has read its own registration, and so all that came before it (BRK-2)."""
        return fencing.is_registration_read(request.metadata_offset, request.broker_epoch)

    def _fence_on_request(self, request: BrokerHeartbeatRequest) -> Decision:
        return Decision(
            reply=self._beat(request, is_fenced=True, should_shut_down=request.want_shutdown),
            records=self.records_for_fencing(request.broker_id),
        )

    def _shut_down(self, broker: BrokerRegistration, request: BrokerHeartbeatRequest) -> Decision:
        """Moves an orderly stop on by one step (BRK-7).

        First the broker leaves all ISRs and leads nothing, then all others learn of it, then it may stop.
        """
        assert not broker.fenced, broker
        leads = self.partitions.leads_something(broker.broker_id)
        if not broker.in_controlled_shutdown and leads:
            flag = BrokerChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, in_controlled_shutdown=True
            )
            records: tuple[MetadataRecord, ...] = (
                flag,
                *self.partitions.records_for_leaving(broker.broker_id),
            )
            self.sessions.remember_shutdown(broker.broker_id, self.image.next_offset + len(records))
            return Decision(reply=self._beat(request, is_fenced=False), records=records)
        if broker.in_controlled_shutdown and (leads or not self.have_all_learned_shutdown(broker.broker_id)):
            return Decision(reply=self._beat(request, is_fenced=False))
        return Decision(
            reply=self._beat(request, is_fenced=True, should_shut_down=True),
            records=self.records_for_fencing(broker.broker_id),
        )

    def have_all_learned_shutdown(self, broker_id: int) -> bool:
        """Returns whether every active broker has replayed the moves of leaders.

        A restarted controller does not remember their offset, and waits for all that is in its log.
        """
        target = self.sessions.remember_shutdown(broker_id, self.image.next_offset)
        active = [number for number in sorted(self.image.brokers) if self.image.is_active(number)]
        return all(self.sessions.metadata_offset(number) >= target for number in active)

    def _beat(
        self, request: BrokerHeartbeatRequest, *, is_fenced: bool, should_shut_down: bool = False
    ) -> BrokerHeartbeatResponse:
        return BrokerHeartbeatResponse(
            is_fenced=is_fenced, is_caught_up=self.has_caught_up(request), should_shut_down=should_shut_down
        )

    def records_for_fencing(self, broker_id: int) -> tuple[MetadataRecord, ...]:
        """Ends the broker's session, and returns the batch that fences it (BRK-5).

        The broker leaves all ISRs, leaders are elected where it led, then the fence record follows.
        """
        self.sessions.end(broker_id)
        broker = self.image.brokers[broker_id]
        assert not broker.fenced, broker
        return (
            *self.partitions.records_for_leaving(broker_id),
            BrokerChangeRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch, fenced=True),
        )

    def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> Decision:
        """Allocates a block of new producer ids; it is in the log before the broker learns of it.

        Raises ClusterError. Kafka: ProducerIdControlManager.
        """
        self.partitions.check_broker_epoch(request.broker_id, request.broker_epoch)
        first, count = self.image.next_producer_id, self.config.producer_id_block_size
        if first > MAX_PRODUCER_ID - count:
            raise ClusterError(ErrorCode.UNKNOWN_SERVER_ERROR, "producer ids are exhausted")
        record = ProducerIdsRecord(
            broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + count
        )
        return Decision(
            reply=AllocateProducerIdsResponse(first_producer_id=first, count=count), records=(record,)
        )
