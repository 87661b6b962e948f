"""The hand-over of the metadata that a broker replays to its roles, from the moment on when it may act on it.

Kafka: BrokerMetadataPublisher, BrokerServer's wait for the metadata to be caught up.
"""

from __future__ import annotations

from typing import final

from cluster.core import fencing
from cluster.core.messages import NO_BROKER_EPOCH
from cluster.core.metadata.delta import MetadataDelta
from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.roles import Roles


@final
class Publication:
    """Applies the first image to the roles, after this life's registration is replayed (KAFKA-14857), then each delta.

    The registration ends the leaderships of the last life. A broker that continued to lead in an old leader epoch
    might have lost the tail of its log, and could write another record at the same offset and epoch.
    """

    def __init__(self, context: ReplicaContext, roles: Roles) -> None:
        self._context = context
        self._roles = roles
        self.is_published = False
        # The offset of the image that was applied to the roles last; -1 while there are none.
        self.applied_offset = -1
        self._first_high_watermark: int | None = None
        # The broker epoch of the last life that another process has replaced.
        self._superseded_epoch = NO_BROKER_EPOCH

    def note_high_watermark(self, high_watermark: int) -> None:
        """Notes the high watermark of the first answer: all records below it are replayed before anything is
        published."""
        if self._first_high_watermark is None:
            self._first_high_watermark = high_watermark

    def has_caught_up(self) -> bool:
        """Returns whether this life's registration, and everything before it, is replayed and applied to the roles."""
        return self.is_published and self._has_own_registration()

    def _has_own_registration(self) -> bool:
        own_epoch = self._context.broker_epoch
        next_offset = self._context.metadata.image.next_offset
        is_registered = fencing.is_registered_since(own_epoch, self._superseded_epoch)
        return is_registered and fencing.is_registration_read(next_offset, own_epoch)

    def is_superseded(self) -> bool:
        """Returns whether the metadata names another process as this broker, in a later life than this one's.

        What it decides for the id is not meant for this process: two would lead in one leader epoch.
        """
        own_epoch = self._context.broker_epoch
        known = self._context.metadata.image.brokers.get(self._context.broker_id)
        # Before its registration is answered, a broker finds the one of its last process.
        if own_epoch == NO_BROKER_EPOCH or known is None:
            return False
        if not fencing.is_later_life(known.broker_epoch, own_epoch):
            return False
        return not fencing.is_same_incarnation(self._context.header.incarnation, known.incarnation)

    def withdraw(self) -> bool:
        """Ends all roles, and acts on no metadata until this process is registered again. Returns whether it did."""
        if not fencing.is_registered_since(self._context.broker_epoch, self._superseded_epoch):
            return False
        self._superseded_epoch = self._context.broker_epoch
        self.is_published = False
        self._roles.step_down()
        self.applied_offset = -1
        assert not self.may_publish(), (self._context.broker_epoch, self._superseded_epoch)
        return True

    def may_publish(self) -> bool:
        first = self._first_high_watermark
        has_loaded = first is not None and self._context.metadata.image.next_offset >= first
        return has_loaded and self._has_own_registration()

    def publish(self, now_ms: int, delta: MetadataDelta) -> None:
        """Applies the next delta to the roles, whole (CTL-5)."""
        assert self.is_published, delta.before.next_offset
        # Every delta begins where the one before ended: none is left out, and none is applied twice.
        assert self.applied_offset == delta.before.next_offset, (
            self.applied_offset,
            delta.before.next_offset,
        )
        self._roles.apply_delta(now_ms, delta)
        self.applied_offset = self._context.metadata.image.next_offset

    def maybe_publish_first(self, now_ms: int) -> bool:
        """Applies the whole image to the roles, once a life, as soon as that is allowed. Returns whether it did."""
        if self.is_published or not self.may_publish() or self.is_superseded():
            return False
        led = [each.name for each in self._context.replicas.values() if each.leader is not None]
        assert not led, led
        self.is_published = True
        self._roles.apply_image(now_ms)
        self.applied_offset = self._context.metadata.image.next_offset
        assert self.has_caught_up(), (self._context.broker_epoch, self._context.metadata.image.next_offset)
        return True
