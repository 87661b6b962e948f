"""What the epoch cache of a replica must hold, by the epochs of the batches in its log (R3, EPC-5)."""

from __future__ import annotations

from typing import NamedTuple

from sim.checkers.chain import Chain
from sim.checkers.sightings import EpochsSeen


class WrongStart(NamedTuple):
    """An epoch that begins at `base_offset` in the log and elsewhere in the cache, None for nowhere."""

    epoch: int
    base_offset: int
    cached: int | None


def wrong_start(chain: Chain, seen: EpochsSeen, log_start: int) -> WrongStart | None:
    """Returns the first epoch of the log whose start the cache lacks or has wrong; None if it has all of them.

    `log_start` is the greatest offset at which any log of the partition has begun.
    """
    cached = dict(seen.starts)
    starts = chain.epoch_starts()
    for index, (epoch, base_offset) in enumerate(starts):
        end = starts[index + 1][1] if index + 1 < len(starts) else chain.end
        if end <= seen.log_start_offset:
            # Retention has deleted the whole epoch.
            continue
        # A log start that a crash or a cut has taken back has left nothing of an epoch before it.
        if epoch not in cached and end <= log_start:
            continue
        # The cache may begin where a log start was that a crash has taken back.
        most = max(base_offset, seen.log_start_offset, log_start)
        if not base_offset <= cached.get(epoch, -1) <= most:
            return WrongStart(epoch, base_offset, cached.get(epoch))
    return None
