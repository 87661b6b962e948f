"""Log lines on calls that fail: of which peer, and why. They are few, however often a call is tried again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

logger = logging.getLogger(__name__)

# The most reasons that are logged in such a time, each once for each peer.
MOST_REASONS = 100
PERIOD_S = 10.0


@final
@dataclass(slots=True)
class _Reason:
    """A reason of one peer: when its last line was written, and how often it came after that."""

    written_s: float
    left_out: int = 0


@final
class FailedCalls:
    """The log of the calls that fail in one process: a line for each peer and reason, then how often it came."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._reasons: dict[tuple[str, str], _Reason] = {}
        self._left_out = 0

    def write(self, peer: str, reason: str) -> None:
        """Logs a call that has failed, unless the same was logged less than PERIOD_S ago; then it is counted."""
        now_s = self._now_s()
        known = self._reasons.get((peer, reason))
        if known is not None and now_s - known.written_s < PERIOD_S:
            known.left_out += 1
            return
        if known is not None:
            # It goes on: the line that says how often it came counts this one, too.
            known.left_out += 1
        self._end_periods(now_s)
        if known is not None:
            self._reasons[peer, reason] = _Reason(now_s)
            return
        if len(self._reasons) >= MOST_REASONS:
            self._left_out += 1
            return
        if self._left_out:
            logger.warning("calls fail: left_out=%d", self._left_out)
            self._left_out = 0
        self._reasons[peer, reason] = _Reason(now_s)
        assert len(self._reasons) <= MOST_REASONS, len(self._reasons)
        logger.warning("calls fail: peer=%s %s", peer, reason)

    def _end_periods(self, now_s: float) -> None:
        """Forgets the reasons whose time is over, and logs how often they came."""
        over = [key for key, each in self._reasons.items() if now_s - each.written_s >= PERIOD_S]
        for key in over:
            if left_out := self._reasons.pop(key).left_out:
                logger.warning("calls fail: peer=%s %s times=%d", *key, left_out)
