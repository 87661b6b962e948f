"""A broker as an observer of the metadata log: it replays what is committed, and acts on whole hand-overs.

Kafka: MetadataLoader, BrokerMetadataPublisher.
"""

from __future__ import annotations

from typing import final

from cluster.broker_lifecycle import Lifecycle
from cluster.errors import ErrorCode
from cluster.events import TransportError
from cluster.messages import FetchMetadataRequest, FetchMetadataResponse, ResponseBody
from cluster.metadata import MetadataDelta
from cluster.metadata_batches import read_metadata_batches
from cluster.replica.context import NO_BROKER_EPOCH, ReplicaContext
from cluster.replica.roles import Roles

RETRY_TIMER = "metadata.retry"
FETCH_BYTES = 1 << 20


@final
class MetadataObserver:
    """Nothing is acted on before this life's registration is replayed (KAFKA-14857).

    The registration takes from the last life what it led. A broker that led on from there, at the old leader
    epoch but perhaps without the tail that it lost, could write another record at the same offset and epoch.
    """

    def __init__(self, context: ReplicaContext, roles: Roles) -> None:
        self._context = context
        self._image = context.image
        self._roles = roles
        self._lifecycle: Lifecycle | None = None
        self.is_published = False
        self._is_stopped = False
        self._endpoints: dict[int, tuple[str, int]] = {}
        self._first_high_watermark: int | None = None  # what was committed when this broker first asked

    def attach(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle

    def start(self, now_ms: int) -> None:
        self._fetch(now_ms)

    def stop(self) -> None:
        self._is_stopped = True

    def has_caught_up(self) -> bool:
        return self.is_published and self._has_own_registration()

    def _has_own_registration(self) -> bool:
        own_epoch = self._context.broker_epoch
        return own_epoch != NO_BROKER_EPOCH and self._image.next_offset > own_epoch

    # fetching

    def _fetch(self, now_ms: int) -> None:
        config = self._context.config
        request = FetchMetadataRequest(
            broker_id=config.node_id,
            offset=self._image.next_offset,
            max_wait_ms=config.replica_fetch_wait_max_ms,
            max_bytes=FETCH_BYTES,
        )
        self._context.outbox.send(
            config.controller_id,
            request,
            timeout_ms=config.replica_fetch_wait_max_ms + config.heartbeat_timeout_ms,
            then=self._on_answer,
        )

    def _on_answer(self, now_ms: int, body: ResponseBody | TransportError) -> None:
        if self._is_stopped:
            return
        if not isinstance(body, FetchMetadataResponse) or body.error is not ErrorCode.NONE:
            delay_ms = self._context.config.retry_backoff_ms
            self._context.outbox.set_timer(RETRY_TIMER, now_ms + delay_ms, self._fetch)
            return
        if self._first_high_watermark is None:
            self._first_high_watermark = body.high_watermark
        delta = MetadataDelta(self._image)
        for offset, record in read_metadata_batches(body.records):
            if offset >= self._image.next_offset:
                delta.apply(record, offset)
        self._learn_endpoints(delta)
        self.publish(now_ms, delta)
        self._fetch(now_ms)

    def _learn_endpoints(self, delta: MetadataDelta) -> None:
        for broker_id in delta.changed_brokers:
            broker = self._image.brokers[broker_id]
            endpoint = (broker.host, broker.port)
            if self._endpoints.get(broker_id) != endpoint:
                self._endpoints[broker_id] = endpoint
                self._context.outbox.learn_endpoint(broker_id, broker.host, broker.port)

    # acting

    def publish(self, now_ms: int, delta: MetadataDelta) -> None:
        """The image first, then the roles (KR-BRK-3); a hand-over is acted on as one (CTL-5)."""
        if self.is_published:
            self._roles.apply_delta(now_ms, delta)
        else:
            self.maybe_publish_first(now_ms)

    def may_publish(self) -> bool:
        first = self._first_high_watermark
        has_loaded = first is not None and self._image.next_offset >= first
        return has_loaded and self._has_own_registration()

    def maybe_publish_first(self, now_ms: int) -> bool:
        if self.is_published or not self.may_publish():
            return False
        self.is_published = True
        self._roles.apply_image(now_ms)
        if self._lifecycle is not None:
            self._lifecycle.beat(now_ms)  # it need not stay fenced until the next heartbeat is due
        return True
