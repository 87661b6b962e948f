"""The places where open transactions begin in their segments: rule PS22."""

from __future__ import annotations

from itertools import accumulate

import pytest

from storage.batch import Record, RecordBatch, build_batch
from storage.producers.entry import AppendOrigin, CompletedTransaction
from storage.producers.state import ProducerStateManager
from storage.segment.place import LogOffsetMetadata
from tests.storage.producers.producers import NOW, data, new_disk


@pytest.mark.parametrize("has_all", [False, True])
@pytest.mark.parametrize("first_position", [0, 700])
def test_ps22_a_transaction_has_the_place_of_its_first_batch_wherever_its_set_was_read(
    first_position: int, has_all: bool
) -> None:
    """A set may have batches without a producer before, between and after those that have one."""
    manager = ProducerStateManager(new_disk()[1], "/log")
    without = build_batch([Record(0, NOW, b"k", b"v")])
    pids = [None, 5, None, 6, None]
    contents = [
        without if pid is None else data(offset, 0, pid=pid, transactional=True).tobytes()
        for offset, pid in enumerate(pids)
    ]
    content, starts = b"".join(contents), [0, *accumulate(map(len, contents))]
    batches = [
        RecordBatch(content, start, len(each), first_position + start)
        for start, each, pid in zip(starts, contents, pids, strict=False)
        if has_all or pid is not None
    ]
    prepared = manager.prepare_append(
        batches, origin=AppendOrigin.REPLICATION, segment_base_offset=0, position=50_000
    )
    manager.commit(prepared)
    first = manager.first_unstable_transaction
    assert first is not None and first.place == LogOffsetMetadata(1, 0, 50_000 + len(without))
    manager.complete_transaction(CompletedTransaction(5, 1, 9, is_aborted=False))
    manager.on_high_watermark_updated(10)
    first = manager.first_unstable_transaction
    assert first is not None and first.place == LogOffsetMetadata(3, 0, 50_000 + starts[3])
