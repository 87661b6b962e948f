"""A broker as an observer of the metadata log: it replays the committed changes, and applies each answer as one delta.

Nothing of an answer counts until all of it was read: a damaged one is thrown away, and a change that the answer cut
waits for the rest.

Kafka: MetadataLoader.
"""

from __future__ import annotations

import logging
from typing import final

from cluster.core.broker.ending import Ending
from cluster.core.broker.lifecycle import BrokerState, Lifecycle
from cluster.core.broker.publication import Publication
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import FetchMetadataRequest, FetchMetadataResponse, ResponseBody
from cluster.core.metadata.changes import ChangeReader
from cluster.core.metadata.delta import MetadataDelta
from cluster.core.replica.context import ReplicaContext
from storage.errors import CorruptBatch, InvalidRecord

logger = logging.getLogger(__name__)

RETRY_TIMER = "metadata.retry"


@final
class MetadataObserver:
    """Fetches the metadata log from the controller for as long as the broker lives."""

    def __init__(
        self, context: ReplicaContext, publication: Publication, lifecycle: Lifecycle, ending: Ending
    ) -> None:
        self._context = context
        self._publication = publication
        self._lifecycle = lifecycle
        self._ending = ending
        # What it has read of a change that an answer cut is kept until the rest comes, and is not applied before.
        self._reader = ChangeReader()
        self._endpoints: dict[int, tuple[str, int]] = {}

    def start(self, now_ms: int) -> None:
        self._fetch(now_ms)

    def _fetch(self, now_ms: int) -> None:
        config = self._context.config
        request = FetchMetadataRequest(
            header=self._context.header,
            broker_id=config.node_id,
            offset=self._reader.next_offset,
            max_wait_ms=config.replica_fetch_wait_max_ms,
            max_bytes=config.controller_quorum_fetch_max_bytes,
        )
        self._context.outbox.send(
            config.controller_id,
            request,
            timeout_ms=config.replica_fetch_wait_max_ms + config.heartbeat_timeout_ms,
            then=self._on_answer,
        )

    def _on_answer(self, now_ms: int, body: ResponseBody | TransportError) -> None:
        if self._lifecycle.state is BrokerState.SHUTTING_DOWN:
            return
        if not isinstance(body, FetchMetadataResponse) or body.error is not ErrorCode.NONE:
            delay_ms = self._context.config.retry_backoff_ms
            self._context.outbox.set_timer(RETRY_TIMER, now_ms + delay_ms, self._fetch)
            return
        self._publication.note_high_watermark(body.high_watermark)
        try:
            delta = self._read(body.records)
        except CorruptBatch as error:
            self._fetch_again(now_ms, error)
        except InvalidRecord as error:
            # Every broker would make another image of what follows.
            self._ending.fail(f"the metadata cannot be replayed: {error}")
        else:
            self.publish(now_ms, delta)
            self._fetch(now_ms)

    def _read(self, data: bytes) -> MetadataDelta:
        """Returns the delta of all changes that are whole now. Raises CorruptBatch, InvalidRecord."""
        delta = MetadataDelta(self._context.metadata.image)
        for change in self._reader.read(data):
            delta.apply_change(change)
        return delta

    def _fetch_again(self, now_ms: int, error: CorruptBatch) -> None:
        """Throws an answer away whose bytes are damaged; what is applied already stays, and serves on."""
        logger.error("metadata answer refused: broker=%d reason=%s", self._context.broker_id, error)
        self._context.outbox.observe("metadata.damaged", reason=str(error))
        boundary = self._context.metadata.image.next_offset
        self._reader.restart(boundary)
        assert not self._reader.is_within_a_change, boundary
        delay_ms = self._context.config.retry_backoff_max_ms
        self._context.outbox.set_timer(RETRY_TIMER, now_ms + delay_ms, self._fetch)

    def _learn_endpoints(self, delta: MetadataDelta) -> None:
        for broker_id in delta.changed_brokers:
            broker = self._context.metadata.image.brokers[broker_id]
            assert broker.broker_id == broker_id, (broker_id, broker)
            endpoint = (broker.host, broker.port)
            if self._endpoints.get(broker_id) != endpoint:
                self._endpoints[broker_id] = endpoint
                self._context.outbox.learn_endpoint(broker_id, broker.host, broker.port)
        # No broker ever leaves the image.
        known, registered = len(self._endpoints), len(self._context.metadata.image.brokers)
        assert known <= registered, (known, registered)

    def publish(self, now_ms: int, delta: MetadataDelta) -> None:
        """Adopts the image after `delta`, and then applies the delta to the roles at once (CTL-5, KR-BRK-3)."""
        self._context.adopt_image(delta.after())
        self._learn_endpoints(delta)
        if self._lifecycle.maybe_step_down(now_ms):
            return
        if self._publication.is_published:
            self._publication.publish(now_ms, delta)
        elif self._publication.maybe_publish_first(now_ms):
            # The broker need not stay fenced until its next heartbeat is due.
            self._lifecycle.beat(now_ms)
