"""When a peer that could not be reached is tried again."""

from __future__ import annotations

from typing import final

# With gRPC's defaults a restarted server is found after 1.7 s; a fail-over should not wait so long.
FIRST_BACKOFF_MS = 50
MAX_BACKOFF_MS = 1_000


@final
class Backoff:
    """The time after a failed attempt in which calls fail at once; it grows by 1.6 with each failure in a row."""

    def __init__(self) -> None:
        self._next_ms = FIRST_BACKOFF_MS
        self._until_ms = 0
        # Why the last attempt failed.
        self.reason = ""

    def may_connect(self, now_ms: int) -> bool:
        return now_ms >= self._until_ms

    def on_failure(self, now_ms: int, reason: str) -> None:
        """Notes an attempt that failed."""
        assert FIRST_BACKOFF_MS <= self._next_ms <= MAX_BACKOFF_MS, self._next_ms
        self._until_ms = now_ms + self._next_ms
        self._next_ms = min(self._next_ms * 8 // 5, MAX_BACKOFF_MS)
        self.reason = reason

    def on_success(self) -> None:
        """Notes that the peer was reached: when it is lost, the first attempt follows at once."""
        self._next_ms, self._until_ms, self.reason = FIRST_BACKOFF_MS, 0, ""
