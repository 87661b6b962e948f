"""The brokers that the controller has heard from lately: soft state, which ends with the controller.

Kafka: BrokerHeartbeatManager.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

# The broker has sent no heartbeat yet in this life of the controller.
NEVER_READ = -1


@dataclass(slots=True, kw_only=True)
class Session:
    """A broker's last sign of life; one for each broker that is registered and unfenced."""

    last_contact_ms: int
    # The next offset of the metadata log that the broker reads.
    metadata_offset: int = NEVER_READ
    # What all must read before the broker may stop; set once for each shutdown (KAFKA-14292).
    controlled_shutdown_offset: int = -1


@final
class Sessions:
    """The session of each broker: when it was last heard from, and up to where it has read."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._sessions: dict[int, Session] = {}

    def begin(self, broker_id: int, now_ms: int, metadata_offset: int = NEVER_READ) -> None:
        """Begins a session with its full time: the broker was unfenced, or the controller has started (BRK-3)."""
        # That of a fenced broker has ended.
        assert broker_id not in self._sessions, (broker_id, now_ms)
        self._sessions[broker_id] = Session(last_contact_ms=now_ms, metadata_offset=metadata_offset)

    def restorer(self, broker_id: int) -> Callable[[], None]:
        """Returns what makes the broker's session as it is now again."""
        session = self._sessions.get(broker_id)
        kept = None if session is None else replace(session)

        def restore() -> None:
            self._sessions.pop(broker_id, None)
            if kept is not None:
                self._sessions[broker_id] = kept

        return restore

    def end(self, broker_id: int) -> None:
        """Ends the session of a broker that is fenced, if there is one: it cannot expire any more."""
        self._sessions.pop(broker_id, None)

    def touch(self, broker_id: int, now_ms: int, metadata_offset: int) -> None:
        """Notes a heartbeat of the present broker epoch, even if its answer comes too late for the sender (BRK-9)."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.last_contact_ms = now_ms
            session.metadata_offset = max(session.metadata_offset, metadata_offset)

    def is_live(self, broker_id: int, now_ms: int) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and now_ms - session.last_contact_ms <= self.timeout_ms

    def longest_silent(self) -> tuple[int, int] | None:
        """Returns (time of expiry, broker id) of the session that expires first; None if there are no sessions.

        If two expire at the same time, the smaller id is first.
        """
        return min(
            ((self._expiry_ms(session), broker_id) for broker_id, session in self._sessions.items()),
            default=None,
        )

    def expired(self, now_ms: int) -> int | None:
        """Returns the longest silent broker if its session is over, else None (BRK-4)."""
        first = self.longest_silent()
        return first[1] if first is not None and first[0] <= now_ms else None

    def _expiry_ms(self, session: Session) -> int:
        return session.last_contact_ms + self.timeout_ms + 1

    def remember_shutdown(self, broker_id: int, offset: int) -> int:
        """Returns the metadata offset that all must reach before the broker may stop; the first call sets it."""
        assert offset >= 0, (broker_id, offset)
        session = self._sessions[broker_id]
        if session.controlled_shutdown_offset < 0:
            session.controlled_shutdown_offset = offset
        # The first call names the lowest offset, because the log only grows.
        kept = session.controlled_shutdown_offset
        assert kept <= offset, (broker_id, kept, offset)
        return session.controlled_shutdown_offset

    def metadata_offset(self, broker_id: int) -> int:
        session = self._sessions.get(broker_id)
        return NEVER_READ if session is None else session.metadata_offset
