"""Damage of an index is not damage of the disk: a flipped sign bit takes no log offline."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.cleaner.plan import CleanerConfig
from storage.config import LogConfig
from storage.disk.filesystem import OpenMode
from storage.log import PartitionLog
from storage.log.reads import MAX_TIMESTAMP
from tests.storage.logs import NOW_MS, batch, new_file_system, offsets_in, open_log, read_offsets

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
