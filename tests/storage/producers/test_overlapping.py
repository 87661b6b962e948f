"""Many transactions that overlap, whose markers are not below the high watermark yet."""

from __future__ import annotations

from typing import final

from storage.draws import Draws
from storage.producers.entry import (
    AppendOrigin,
    CompletedTransaction,
    OngoingTransaction,
    ProducerAppendInfo,
)
from storage.producers.state import ProducerStateManager
from storage.segment.place import LogOffsetMetadata
from tests.storage.lines import lines_of
from tests.storage.producers.producers import data, new_disk


def completed(first: int, last: int, pid: int) -> CompletedTransaction:
    return CompletedTransaction(pid, first, last, is_aborted=False)


@final
class CountedOffset(int):
    """An offset that counts each comparison with it, those of a sort in C too."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        CountedOffset.comparisons += 1
        return int(self) < int(other)

    def __ge__(self, other: int) -> bool:
        CountedOffset.comparisons += 1
        return int(self) >= int(other)


def operations_of_pairs(pairs: int) -> int:
    """Count lines and comparisons of offsets that `pairs` pairs of transactions take; in each the one that begins first
    ends last.
    """
    manager = ProducerStateManager(new_disk()[1], "/log")

    def run() -> None:
        for number in range(pairs):
            outer, inner = CountedOffset(4 * number), CountedOffset(4 * number + 1)
            manager.update(begun(manager, outer, pid=1))
            manager.update(begun(manager, inner, pid=2))
            manager.complete_transaction(completed(inner, 4 * number + 2, 2))
            manager.complete_transaction(completed(outer, 4 * number + 3, 1))

    before = CountedOffset.comparisons
    lines = lines_of(run)
    assert manager.first_unstable_offset == 0
    return lines + CountedOffset.comparisons - before


def begun(manager: ProducerStateManager, first_offset: int, *, pid: int) -> ProducerAppendInfo:
    """The copy of an append that begins a transaction."""
    info = manager.prepare_update(pid, AppendOrigin.REPLICATION)
    info.transactions.append(OngoingTransaction(pid, LogOffsetMetadata(first_offset)))
    return info


def test_ps22_the_cost_of_overlapping_transactions_is_linear() -> None:
    """Each that ended out of order was sorted into all that wait for the high watermark."""
    few, many = operations_of_pairs(20), operations_of_pairs(200)
    assert many <= 10 * few, (few, many)


def test_ps22_the_first_unstable_transaction_is_that_of_a_plain_search() -> None:
    """Transactions begin and end in any order; the high watermark follows in any steps."""
    draws = Draws(3)
    for case in range(30):
        manager = ProducerStateManager(new_disk()[1], "/log")
        is_open: dict[int, int] = {}
        waiting: list[tuple[int, int]] = []
        high_watermark = 0
        for offset in range(120):
            pid = draws.below(6, "pid", case, offset)
            if pid in is_open:
                first = is_open.pop(pid)
                entry = manager.last_entry(pid)
                assert entry is not None
                entry.transaction_first_offset = None
                manager.complete_transaction(completed(first, offset, pid))
                waiting.append((first, offset))
            else:
                manager.replay(data(offset, offset, pid=pid, transactional=True))
                is_open[pid] = offset
            if draws.below(3, "moves", case, offset) == 0:
                high_watermark += draws.below(offset + 2 - high_watermark, "to", case, offset)
                manager.on_high_watermark_updated(high_watermark)
            waiting = [(first, last) for first, last in waiting if last >= high_watermark]
            wanted = min([*is_open.values(), *(first for first, _ in waiting)], default=None)
            assert manager.first_unstable_offset == wanted, (case, offset)
            assert [each.first_offset for each in manager.ongoing_transactions] == sorted(is_open.values())
