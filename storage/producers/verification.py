"""Producers whose transaction the coordinator was asked to confirm, and which have not written to this log yet.

The first transactional append of a producer needs the coordinator's confirmation. A guard is created before the
request and must be shown with the records: a guard from before an abort marker is no longer valid. Kafka:
VerificationGuard, VerificationStateEntry (KIP-890); rules PS23, PS4a, AP13.
"""

from __future__ import annotations

from typing import final


@final
class VerificationGuard:
    """A token that equals nothing but itself."""

    __slots__ = ()


@final
class VerificationEntry:
    """The verification of one producer. `lowest_sequence` is the least of its requests in `producer_epoch`."""

    __slots__ = ("created_ms", "guard", "lowest_sequence", "producer_epoch", "supports_epoch_bump")

    def __init__(
        self, created_ms: int, *, sequence: int, producer_epoch: int, supports_epoch_bump: bool
    ) -> None:
        self.created_ms = created_ms
        self.guard = VerificationGuard()
        self.lowest_sequence, self.producer_epoch = sequence, producer_epoch
        self.supports_epoch_bump = supports_epoch_bump

    def note(self, *, sequence: int, producer_epoch: int) -> None:
        """Note another request: a higher epoch replaces sequence and epoch, a lower one is ignored."""
        epoch_before, lowest_before = self.producer_epoch, self.lowest_sequence
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        assert self.producer_epoch >= epoch_before, (self.producer_epoch, epoch_before)
        # Within an epoch it only falls.
        assert self.producer_epoch > epoch_before or self.lowest_sequence <= lowest_before, (
            self.lowest_sequence,
            lowest_before,
        )


@final
class TransactionVerifications:
    """The verifications of one log by producer id.

    They are in memory only: after a restart the coordinator is asked again.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, VerificationEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, producer_id: int) -> VerificationEntry | None:
        return self._entries.get(producer_id)

    def note(
        self,
        producer_id: int,
        *,
        sequence: int,
        producer_epoch: int,
        supports_epoch_bump: bool = True,
        now_ms: int,
    ) -> VerificationEntry:
        """Return the producer's entry, created if necessary; its age and its guard are those of the first request."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = VerificationEntry(
                now_ms,
                sequence=sequence,
                producer_epoch=producer_epoch,
                supports_epoch_bump=supports_epoch_bump,
            )
        entry.note(sequence=sequence, producer_epoch=producer_epoch)
        assert entry.producer_epoch >= producer_epoch, (entry.producer_epoch, producer_epoch)
        return entry

    def is_verified(self, producer_id: int, guard: VerificationGuard | None) -> bool:
        """Whether `guard` was created for the transaction that the producer begins."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.guard is guard

    def forget(self, producer_id: int) -> None:
        """Drop the entry of a producer whose transaction has begun in the log, or has ended."""
        self._entries.pop(producer_id, None)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Drop the entries whose age is at least `expiration_ms` (PS13)."""
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if now_ms - entry.created_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
