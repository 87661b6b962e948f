"""Damage of an index or of an offset is not damage of the disk: a flipped bit takes no log offline."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.cleaner.plan import CleanerConfig
from storage.config import LogConfig
from storage.disk.filesystem import OpenMode
from storage.log import PartitionLog
from storage.log.reads import MAX_TIMESTAMP
from storage.segment.fetch_data import Isolation
from tests.storage.logs import (
    NOW_MS,
    ROOMY,
    SIZE,
    append_each,
    batch,
    new_file_system,
    offsets_in,
    open_log,
    read_offsets,
)

DENSE = LogConfig(index_interval_bytes=0, segment_bytes=1 << 20, segment_index_bytes=1200)
COUNT = 20


def log_with_flipped_signs(slots: range, config: LogConfig = DENSE, *, is_full: bool = False) -> PartitionLog:
    """A log after a clean start, in whose index the positions at `slots` are negative."""
    file_system = new_file_system()
    log = open_log(file_system, config)
    for offset in range(COUNT):
        data = batch(offset, timestamp=NOW_MS + offset, producer_id=7, producer_epoch=0, sequence=offset)
        log.append_as_follower(data, leader_epoch=0, now_ms=NOW_MS)
    if is_full:
        log.flushes.roll(now_ms=NOW_MS)
    path = log.local.segments.first.offset_index_path if log.local.segments.first else ""
    log.close()
    file = file_system.open(path, OpenMode.WRITE)
    for slot in slots:
        file.write_at(8 * slot + 4, bytes([file.read_at(8 * slot + 4, 1)[0] ^ 0x80]))
    file.close()
    log = open_log(file_system, config, clean=True, recalls_batches=True)
    assert log.online.reason is None
    return log


@pytest.mark.parametrize("slot", [0, 1, 9, COUNT - 3, COUNT - 2])
def test_ap16_a_negative_position_in_an_index_does_not_count_as_a_failed_disk(slot: int) -> None:
    log = log_with_flipped_signs(range(slot, slot + 1))
    for offset in range(COUNT):
        assert offsets_in(log.read(offset, max_size=1).records) == [offset]
        found = log.reads.offset_for_timestamp(NOW_MS + offset)
        assert found is not None and found.offset == offset
    latest = log.reads.offset_for_timestamp(MAX_TIMESTAMP)
    assert latest is not None and latest.offset == COUNT - 1
    log.truncate_to(slot + 1, now_ms=NOW_MS)
    assert log.online.reason is None and read_offsets(log) == list(range(slot + 1))
    log.append_as_follower(batch(slot + 1), leader_epoch=0, now_ms=NOW_MS)
    assert read_offsets(log) == list(range(slot + 2))


def test_ap16_producers_are_recalled_and_compacted_although_all_positions_are_negative() -> None:
    log = log_with_flipped_signs(range(COUNT - 1), is_full=True)
    assert log.producers.producers[7].last_sequence == COUNT - 1
    log.update_config(replace(DENSE, cleanup_policy="compact"))
    log.marks.update_high_watermark(COUNT)
    offsets = log.compactions.cleanable_offsets(7, NOW_MS)
    for work in log.compactions.prepare(offsets, CleanerConfig(dedupe_buffer_bytes=4096), NOW_MS):
        work()
    assert log.online.reason is None and log.local.segments.base_offsets == [0, COUNT]


@pytest.mark.parametrize(("base_offset", "last_offset_delta"), [(2**40, 0), (COUNT + 1, 0), (-3, 100)])
def test_rd11_the_high_watermark_never_moves_to_the_offset_of_a_damaged_batch(
    base_offset: int, last_offset_delta: int
) -> None:
    """No checksum covers a base offset, and a look-up moves the high watermark to that of the batch that it finds."""
    file_system = new_file_system()
    log = open_log(file_system, ROOMY)
    append_each(log, COUNT)
    file = file_system.open(log.local.segments.active.path, OpenMode.WRITE)
    file.write_at(5 * SIZE, base_offset.to_bytes(8, "big", signed=True))
    file.write_at(5 * SIZE + 23, last_offset_delta.to_bytes(4, "big"))
    file.close()
    log.marks.update_high_watermark(5)
    found = log.read(0, max_size=1000, isolation=Isolation.HIGH_WATERMARK)
    # The place of the bound is unknown.
    assert found.records == b""
    assert (log.high_watermark, log.online.reason) == (5, None)
