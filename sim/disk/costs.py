"""The time that the calls of a process on its disk take, counted while they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

_MIB = 1 << 20
# Later than any time: a fault without an end of its own.
UNTIL_HEALED = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskCosts:
    """What calls cost, in microseconds: each read, write or change of a name, each MiB moved, and each sync."""

    call_us: int = 0
    mib_us: int = 0
    sync_us: int = 0


@final
class Meter:
    """Counts the calls since `take_us`.

    `slow_us` is what a fault adds to each call until the time `slow_until_us`; no call returns before `hung_until_us`.
    """

    __slots__ = (
        "_bytes",
        "_calls",
        "_syncs",
        "_waited_us",
        "costs",
        "hung_until_us",
        "slow_until_us",
        "slow_us",
    )

    def __init__(self, costs: DiskCosts) -> None:
        self.costs = costs
        self.slow_us, self.slow_until_us = 0, UNTIL_HEALED
        self.hung_until_us = 0
        self._calls = self._syncs = self._bytes = self._waited_us = 0

    def call(self, size_bytes: int = 0) -> None:
        """Count a call that moves that many bytes."""
        self._calls += 1
        self._bytes += size_bytes

    def sync(self) -> None:
        self._syncs += 1

    def wait(self, us: int) -> None:
        """Count a call that takes so much longer than it costs."""
        assert us >= 0, us
        self._waited_us += us

    def take_us(self, now_us: int) -> int:
        """Returns what the calls since the last `take_us` cost, if the first of them is made now.

        Calls that come after the end of a slow time cost what they always do.
        """
        if not (self._calls or self._syncs or self._waited_us):
            # Most steps touch no disk.
            return 0
        costs = self.costs
        slow_us = min((self._calls + self._syncs) * self.slow_us, max(0, self.slow_until_us - now_us))
        spent_us = (
            self._calls * costs.call_us
            + self._syncs * costs.sync_us
            + slow_us
            + self._bytes * costs.mib_us // _MIB
            + self._waited_us
        )
        if self.hung_until_us > now_us and (self._calls or self._syncs):
            spent_us += self.hung_until_us - now_us
        self._calls = self._syncs = self._bytes = self._waited_us = 0
        assert spent_us >= 0, spent_us
        return spent_us
