"""The brokers that the controller has heard of lately: soft state, which ends with the controller.

Kafka: BrokerHeartbeatManager.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

# No heartbeat came yet in this life of the controller.
NEVER_READ = -1


@dataclass(slots=True, kw_only=True)
class Session:
    """A broker's last sign of life; one for each broker that is registered and unfenced."""

    last_contact_ms: int
    # The next offset of the metadata log that the broker reads.
    metadata_offset: int = NEVER_READ
    # Noted once for each shutdown (KAFKA-14292).
    controlled_shutdown_offset: int = -1


@final
class Sessions:
    """When each broker was last heard of, and up to where it has read."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._sessions: dict[int, Session] = {}

    def begin(self, broker_id: int, now_ms: int, metadata_offset: int = NEVER_READ) -> None:
        """The broker is unfenced from now on, or this controller has just started (BRK-3: afresh)."""
        self._sessions[broker_id] = Session(last_contact_ms=now_ms, metadata_offset=metadata_offset)

    def end(self, broker_id: int) -> None:
        """The broker is fenced; nothing expires any more."""
        self._sessions.pop(broker_id, None)

    def touch(self, broker_id: int, now_ms: int, metadata_offset: int) -> None:
        """A heartbeat of the current epoch came, even one whose sender no longer waits for the answer
        (BRK-9).
        """
        session = self._sessions.get(broker_id)
        if session is not None:
            session.last_contact_ms = now_ms
            session.metadata_offset = max(session.metadata_offset, metadata_offset)

    def is_live(self, broker_id: int, now_ms: int) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and now_ms - session.last_contact_ms <= self.timeout_ms

    def longest_silent(self) -> tuple[int, int] | None:
        """(time of expiry, broker) of the one that expires first; the smaller id of two."""
        return min(
            ((self._expiry_ms(session), broker_id) for broker_id, session in self._sessions.items()),
            default=None,
        )

    def expired(self, now_ms: int) -> int | None:
        """One broker whose session is over: the longest silent (BRK-4)."""
        first = self.longest_silent()
        return first[1] if first is not None and first[0] <= now_ms else None

    def _expiry_ms(self, session: Session) -> int:
        return session.last_contact_ms + self.timeout_ms + 1

    def remember_shutdown(self, broker_id: int, offset: int) -> int:
        """The metadata offset that all must reach before the broker may go; the first call decides."""
        session = self._sessions[broker_id]
        if session.controlled_shutdown_offset < 0:
            session.controlled_shutdown_offset = offset
        return session.controlled_shutdown_offset

    def metadata_offset(self, broker_id: int) -> int:
        session = self._sessions.get(broker_id)
        return NEVER_READ if session is None else session.metadata_offset
