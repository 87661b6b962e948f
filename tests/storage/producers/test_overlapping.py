"""Many transactions that overlap, whose markers are not below the high watermark yet."""

from __future__ import annotations

import time

from storage.draws import Draws
from storage.producers.entry import CompletedTransaction
from storage.producers.state import ProducerStateManager
from tests.storage.producers.producers import data, new_disk


def completed(first: int, last: int, pid: int) -> CompletedTransaction:
    return CompletedTransaction(pid, first, last, is_aborted=False)


def seconds_of_pairs(pairs: int) -> float:
    """The CPU time of `pairs` pairs of transactions; in each the one that begins first ends last."""
    manager = ProducerStateManager(new_disk()[1], "/log")
    batches = [(data(4 * n, n, pid=1, transactional=True), data(4 * n + 1, n, pid=2, transactional=True))
               for n in range(pairs)]  # fmt: skip
    start = time.process_time()
    for number, (outer, inner) in enumerate(batches):
        for batch in (outer, inner):
            manager.replay(batch)
            entry = manager.last_entry(batch.producer_id)
            assert entry is not None
            entry.transaction_first_offset = None
        manager.complete_transaction(completed(4 * number + 1, 4 * number + 2, 2))
        manager.complete_transaction(completed(4 * number, 4 * number + 3, 1))
    assert manager.first_unstable_offset == 0
    return time.process_time() - start


def test_ps22_the_cost_of_overlapping_transactions_is_linear() -> None:
    """Each that ended out of order was sorted into all that wait for the high watermark."""
    seconds_of_pairs(100)
    few, many = seconds_of_pairs(500), seconds_of_pairs(4000)
    assert many < 24 * few, (few, many)


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
