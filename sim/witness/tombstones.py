"""Judges when compaction drops the tombstones of one partition, by the times that it has set for that itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, final

from sim.checkers.chain import Mark
from storage.batch import Record, RecordBatch


class Round(NamedTuple):
    """A round of compaction that has just ended at `now_ms`, on the clock of its broker; `end` is exclusive.

    `began_ms` is None where nobody saw it begin. Below `start` logs of the partition have ended, and what is left there
    waits for its deletion: a round need not have read it.
    """

    end: int
    began_ms: int | None = None
    now_ms: int = 0
    start: int = 0


@final
class Tombstones:
    """The times at which the tombstones of each broker's log may go: a batch that keeps some has one (CL16, CL17)."""

    def __init__(self) -> None:
        # By broker: the time of each batch, when its log was last looked at.
        self._horizons: dict[int, dict[Mark, int]] = {}
        # The least time that any broker has set, by the offset of the tombstone.
        self._least_ms: dict[int, int] = {}
        # The latest time of any broker's clock at a round.
        self._latest_ms = -1
        # Whether all rounds have told what they did: one that is broken off may have set times.
        self._is_whole = True

    def forget(self, broker: int) -> None:
        """Forget the times in a broker's log: a crash may take a compaction back, and a cut the batches."""
        self._horizons.pop(broker, None)
        self._is_whole = False

    def look(
        self, broker: int, batches: Iterable[tuple[Mark, RecordBatch]], ended: Round | None
    ) -> str | None:
        """Remember the times in a log, of batches that compaction has written again, each with its original mark.

        Returns which of these times is missing, has changed, or was over before the round that has `ended` began.
        """
        before = self._horizons.get(broker, {})
        found: dict[Mark, int] = {}
        wrong: str | None = None
        for mark, batch in batches:
            horizon_ms = batch.delete_horizon_ms
            offsets = [record.offset for record in batch.records() if record.value is None]
            if horizon_ms is not None:
                found[mark] = horizon_ms
                for offset in offsets:
                    self._least_ms[offset] = min(horizon_ms, self._least_ms.get(offset, horizon_ms))
                if offsets and (what := _kept_too_long(mark, horizon_ms, ended)):
                    wrong = what
            elif offsets:
                wrong = f"compaction set no time at which the tombstones at offset {mark.base_offset} may go"
        self._horizons[broker] = found
        for mark, horizon_ms in found.items():
            if before.get(mark, horizon_ms) != horizon_ms:
                return (
                    f"the tombstones at offset {mark.base_offset} might go at {before[mark]} ms, and after another "
                    f"compaction at {horizon_ms} ms"
                )
        return wrong

    def gone_too_early(self, gone: Mapping[int, Record], ended: Round) -> str | None:
        """Returns which tombstone has gone before its time, among the records that a round has removed, and that no
        later one supersedes; None if none has.

        A follower may lack what its leader's round has removed: all brokers' times and clocks count.
        """
        self._latest_ms = max(self._latest_ms, ended.now_ms, ended.began_ms or 0)
        if not self._is_whole or ended.began_ms is None:
            return None
        for offset, record in gone.items():
            if record.value is not None:
                continue
            least_ms = self._least_ms.get(offset)
            if least_ms is None:
                return f"the tombstone at offset {offset} is gone, and no time was set at which it may go"
            if least_ms > self._latest_ms:
                return f"the tombstone at offset {offset} is gone at {self._latest_ms} ms, and may go at {least_ms} ms"
        return None


def _kept_too_long(mark: Mark, horizon_ms: int, ended: Round | None) -> str:
    """Returns which tombstones a round has kept although their time was over before it began; empty if it has not.

    Without any `delete.retention.ms` a round sets the time at which it began itself.
    """
    if (
        ended is None
        or ended.began_ms is None
        or mark.next_offset > ended.end
        or ended.began_ms <= horizon_ms
    ):
        return ""
    return (
        f"the tombstones at offset {mark.base_offset} might go at {horizon_ms} ms; the compaction that began at "
        f"{ended.began_ms} ms has kept them"
    )
