"""The three ways in which followers of older Kafka versions truncated; the product's own way is the fourth.

| generation | a follower cuts | before |
| --- | --- | --- |
| 1 | to its high watermark | KIP-101 |
| 2 | to the end of its last epoch in the leader's log; if that lacks it, to the start of the next one | KIP-279 |
| 3 | epoch by epoch, down to the last that both have | KIP-320 |
| 4 | as in 3, in every fetch; both sides must be in the same leader epoch | - |

In generations 1 to 3 a leader does not compare the leader epoch of a request with its own, and a follower cuts once in
each leader epoch, before it copies. The lookup of generations 2 and 3 was a request of its own; here the first fetch of
the leader epoch carries it, repeated until the answer needs no cut, and later fetches state no epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

from cluster.core.messages import NO_EPOCH, EpochEnd, FetchPartition
from cluster.core.replica.fetcher import Fetchers
from cluster.core.replica.replica import Replica
from cluster.core.replica.truncation import InFetchTruncation
from sim.bugs.planting import Bug, Make, Replacement
from storage.log import PartitionLog

Original = Callable[..., Any]

_STRATEGY = "cluster.core.replica.manager:InFetchTruncation"
_ANY_EPOCH = (1 << 31) - 1


@final
class HighWatermarkTruncation:
    """Generation 1: a follower cuts to its own high watermark, which is a round trip behind its leader's."""

    def on_new_epoch(self, log: PartitionLog) -> int | None:
        return log.marks.high_watermark

    def last_fetched_epoch(self, log: PartitionLog) -> int:
        return NO_EPOCH

    def truncation_point(self, log: PartitionLog, diverging: EpochEnd) -> int:
        """Returns the leader's end of an epoch; no leader finds a divergence in a fetch that states no epoch."""
        return min(diverging.end_offset, log.local.log_end_offset)

    def on_agreed(self, log: PartitionLog) -> None:
        """Does nothing: there is no lookup."""


@final
class EpochLookup:
    """Generations 2 and 3: a follower asks once in each leader epoch up to where its log agrees with the leader's.

    `is_repeated` is generation 3: the follower asks again, with a lower epoch, until the logs have one in common.
    """

    def __init__(self, *, is_repeated: bool) -> None:
        self._is_repeated = is_repeated
        self._by_epochs = InFetchTruncation()
        # The logs whose lookup is not over. No order is taken from it.
        self._asking: dict[str, PartitionLog] = {}

    def on_new_epoch(self, log: PartitionLog) -> int | None:
        """Begins the lookup. Returns the high watermark for a log without epochs, which has nothing to ask for."""
        self._asking[log.directory] = log
        return self._by_epochs.on_new_epoch(log)

    def last_fetched_epoch(self, log: PartitionLog) -> int:
        is_asking = self._asking.get(log.directory) is log
        return self._by_epochs.last_fetched_epoch(log) if is_asking else NO_EPOCH

    def truncation_point(self, log: PartitionLog, diverging: EpochEnd) -> int:
        """Returns the leader's end of the epoch, or what the epochs of this log say of it in generation 3."""
        if self._is_repeated:
            return self._by_epochs.truncation_point(log, diverging)
        self.on_agreed(log)
        return min(diverging.end_offset, log.local.log_end_offset)

    def on_agreed(self, log: PartitionLog) -> None:
        """Ends the lookup: later fetches state no epoch."""
        self._asking.pop(log.directory, None)


def _does_nothing(original: Original) -> Original:
    return lambda *arguments, **named: None


def _cuts_to_high_watermark(original: Original) -> Original:
    return HighWatermarkTruncation


def _looks_up(*, is_repeated: bool) -> Make:
    return lambda original: lambda: EpochLookup(is_repeated=is_repeated)


def _ends_lookup(original: Original) -> Original:
    """Let the lookup be over with the first answer that needs no cut."""

    def on_records(
        fetchers: Fetchers, now_ms: int, fetcher: object, replica: Replica, asked: object, answer: object
    ) -> None:
        fetchers._truncations.strategy.on_agreed(replica.log)  # type: ignore[attr-defined]
        original(fetchers, now_ms, fetcher, replica, asked, answer)

    return on_records


def _appends_any_epoch(original: Original) -> Original:
    def append(
        fetchers: Fetchers, now_ms: int, replica: Replica, asked: FetchPartition, records: bytes
    ) -> None:
        original(fetchers, now_ms, replica, replace(asked, current_leader_epoch=_ANY_EPOCH), records)

    return append


def _without_floor(original: Original) -> Original:
    """Let the leader answer with an end offset alone, as if it had the epoch that the follower asks for."""

    def find_divergence(handler: object, replica: Replica, asked: FetchPartition) -> EpochEnd | None:
        found: EpochEnd | None = original(handler, replica, asked)
        if found is None or found.end_offset >= asked.fetch_offset:
            return None
        return EpochEnd(epoch=asked.last_fetched_epoch, end_offset=found.end_offset)

    return find_divergence


# What KIP-320 and its mends added.
_UNFENCED = (
    Replacement(target="cluster.core.fencing:check_leader_epoch", make=_does_nothing),
    Replacement(target="cluster.core.replica.fetcher:Fetchers.append", make=_appends_any_epoch),
    Replacement(target="cluster.core.replica.fetcher:Fetchers.on_records", make=_ends_lookup),
)

GENERATIONS: tuple[Bug, ...] = (
    Bug(
        name="truncation-generation-1",
        story="Followers truncate to their high watermark, and no fetch is fenced (before KIP-101).",
        replacements=(Replacement(target=_STRATEGY, make=_cuts_to_high_watermark), *_UNFENCED),
        found_by="kip-101-lost-record",
    ),
    Bug(
        name="truncation-generation-2",
        story="Followers truncate to the end that the leader names of their last epoch, without a floor (KIP-101).",
        replacements=(
            Replacement(target=_STRATEGY, make=_looks_up(is_repeated=False)),
            Replacement(
                target="cluster.core.replica.fetch:FetchHandler.find_divergence", make=_without_floor
            ),
            *_UNFENCED,
        ),
        found_by="kip-279-fast-fail-over",
    ),
    Bug(
        name="truncation-generation-3",
        story="Followers truncate epoch by epoch before they fetch, and no fetch is fenced (KIP-279).",
        replacements=(Replacement(target=_STRATEGY, make=_looks_up(is_repeated=True)), *_UNFENCED),
        found_by="kip-320-stale-fetch",
    ),
)
