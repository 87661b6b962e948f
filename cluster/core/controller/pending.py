"""What the controller has decided and what of it is committed: two images, and the answers that wait in between.

| image | what it has | who looks at it |
| --- | --- | --- |
| `committed` | what is committed | answers about metadata, tables, checkers |
| `pending` | that, and all that was appended since | decisions: each sees the one before (KR-CTL-1) |

Both are values, so what is not committed can be dropped as a whole (KR-CTL-2). Kafka: SnapshotRegistry, the timeline
data structures of QuorumController.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from cluster.core.controller.observations import observations
from cluster.core.effects import Effect, Observe, Reply
from cluster.core.errors import ClusterError
from cluster.core.messages import ResponseBody
from cluster.core.metadata.delta import MetadataDelta
from cluster.core.metadata.image import CurrentImage, MetadataImage
from cluster.core.metadata.log import MetadataLog
from cluster.core.metadata.records import MetadataRecord
from storage.errors import StorageError

NO_CALL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision:
    """A decision whose reply and observations wait until all that `image` rests on is committed (CTL-3)."""

    image: MetadataImage
    observed: tuple[Observe, ...]
    call: int
    reply: ResponseBody | None


@final
class PendingChanges:
    """The decisions that are not committed yet, in order, and the image that they lead to."""

    def __init__(self) -> None:
        self.committed = MetadataImage()
        # The controls decide on it; only this class replaces it.
        self.pending = CurrentImage()
        self._waiting: list[_Decision] = []

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def begin(self, image: MetadataImage) -> None:
        """Begins a life with what the log holds, which is all committed."""
        assert self.is_empty, len(self._waiting)
        self.committed = self.pending.image = image

    def append(
        self,
        log: MetadataLog,
        records: Sequence[MetadataRecord],
        now_ms: int,
        *,
        call: int = NO_CALL,
        reply: ResponseBody | None = None,
    ) -> None:
        """Applies the records to the pending image, appends them as one change, and keeps the reply until the commit.

        What cannot be replayed is so never written. Raises ClusterError for a record that is too large, StorageError,
        OSError: nothing of the change is in the image then.
        """
        before = self.pending.image
        observed = self._replay(records, log.end_offset)
        try:
            if records:
                log.append(records, now_ms)
        except (ClusterError, StorageError, OSError):
            self.drop_to(before)
            raise
        image = self.pending.image
        assert image.next_offset == log.end_offset, (image.next_offset, log.end_offset)
        self._waiting.append(_Decision(image=image, observed=observed, call=call, reply=reply))

    def _replay(self, records: Sequence[MetadataRecord], first_offset: int) -> tuple[Observe, ...]:
        delta, observed = MetadataDelta(self.pending.image), []
        for offset, record in enumerate(records, first_offset):
            observed += observations(record, offset, delta)
            delta.apply(record, offset)
        if records:
            self.pending.image = delta.after()
        return tuple(observed)

    def drop_to(self, image: MetadataImage) -> None:
        """Goes back to an image from before changes that are not in the log."""
        assert self.committed.next_offset <= image.next_offset, image.next_offset
        self.pending.image = image

    def drop(self) -> None:
        """Forgets all that is not committed: it may be lost, so nothing may build on it, and nobody is told of it."""
        self._waiting.clear()
        self.drop_to(self.committed)
        assert self.pending.image is self.committed, self.pending.image.next_offset

    def commit(self, end_offset: int) -> list[Effect]:
        """Makes all decisions below `end_offset` public, in order. Returns their observations and replies."""
        effects: list[Effect] = []
        while self._waiting and self._waiting[0].image.next_offset <= end_offset:
            decision = self._waiting.pop(0)
            assert self.committed.next_offset <= decision.image.next_offset, decision.image.next_offset
            self.committed = decision.image
            effects += decision.observed
            if decision.reply is not None:
                effects.append(Reply(call=decision.call, body=decision.reply))
        assert self.committed.next_offset <= self.pending.image.next_offset, self.committed.next_offset
        return effects
