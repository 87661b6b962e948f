"""Indexes with more entries than segment.index.bytes holds: a trusted file, or one written under a higher value.

Kafka fails in these cases, replog goes on. Rules IX4, LL16, LS13.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.disk import SimFileSystem
from storage.config import LogConfig
from storage.log import PartitionLog
from storage.recovery.cut import RecoveryCut
from tests.storage.logs import (
    NOW_MS,
    SIZE,
    SMALL,
    append_each,
    batch,
    new_file_system,
    open_log,
    produced,
    read_offsets,
)
from tests.storage.recovery.stopped_logs import file_of, put

DENSE = replace(SMALL, segment_index_bytes=1200, index_interval_bytes=0)
TIGHT = replace(DENSE, segment_index_bytes=40)


def stopped(file_system: SimFileSystem) -> None:
    """Write 60 records, each of a later time than the one before, and stop. The first segment holds 25."""
    log = open_log(file_system, DENSE)
    for offset in range(60):
        log.append_as_leader(produced(timestamp=NOW_MS + offset), leader_epoch=0, now_ms=NOW_MS)
    assert log.local.segments.base_offsets[:2] == [0, 25]
    log.close()


def test_ls13_an_index_with_more_entries_than_its_full_size_holds_is_emptied_by_a_truncation() -> None:
    file_system = new_file_system()
    stopped(file_system)
    log = open_log(file_system, TIGHT, clean=True)
    assert log.truncate_to(20, now_ms=NOW_MS)
    assert log.local.segments.base_offsets == [0] and read_offsets(log) == list(range(20))
    assert log.local.segments.active.offset_index.length_bytes == 40
    assert log.local.segments.active.time_index.length_bytes == 36
    assert log.local.segments.active.offset_index.entries == log.local.segments.active.time_index.entries == 0
    append_each(log, 5)
    assert read_offsets(log) == list(range(25))


def test_ls13_an_index_whose_entries_fit_after_a_truncation_keeps_them() -> None:
    file_system = new_file_system()
    stopped(file_system)
    log = open_log(file_system, TIGHT, clean=True)
    assert log.truncate_to(4, now_ms=NOW_MS)
    index = log.local.segments.active.offset_index
    assert [index.entry(slot).offset for slot in range(index.entries)] == [1, 2, 3]


# A start whose walk wants more entries than an index holds

# Each batch but the first has an entry.
EACH = replace(SMALL, segment_bytes=1 << 20, index_interval_bytes=SIZE - 1)


def recovered(
    config: LogConfig, *offsets: int, later_times: bool = True
) -> tuple[PartitionLog, list[RecoveryCut]]:
    """Start after a crash on batches of one record at these offsets."""
    file_system, cuts = new_file_system(), list[RecoveryCut]()
    times = [NOW_MS + number if later_times else NOW_MS for number in range(len(offsets))]
    content = b"".join(batch(offset, timestamp=time) for offset, time in zip(offsets, times, strict=True))
    put(file_system, file_of(0), content)
    for suffix in ("index", "timeindex"):
        put(file_system, file_of(0, suffix), b"")
    return open_log(file_system, config, cuts=cuts), cuts


def test_ll16_where_an_index_has_no_room_the_log_ends_before_the_first_offset_that_steps_back() -> None:
    """Kafka does not start here, so no reader has seen the second batch at offset 0."""
    # There is room for 4 entries by offset, and for 1 by time beside the last one.
    config = replace(EACH, segment_index_bytes=32)
    log, cuts = recovered(config, 0, 0, 1, 2, 3, 4, 5)
    assert read_offsets(log) == [0] and log.log_end_offset == 1
    assert [(cut.position, cut.removed_bytes, cut.reason) for cut in cuts] == [
        (SIZE, 6 * SIZE, "offset 0 follows 0")
    ]


@pytest.mark.parametrize(("index_bytes", "stays"), [(40, True), (32, False)])
def test_ll16_an_offset_that_decreases_between_entries_stays_as_in_kafka(
    index_bytes: int, stays: bool
) -> None:
    """Five entries by offset are wanted and one by time; the first batch has none."""
    config = replace(EACH, segment_index_bytes=index_bytes)
    log, cuts = recovered(config, 0, 0, 1, 2, 3, 5, later_times=False)
    assert (log.log_end_offset, len(cuts)) == ((6, 0) if stays else (1, 1))


def test_ll16_an_offset_that_goes_back_at_an_entry_does_not_empty_a_segment_that_kafka_refuses() -> None:
    config = replace(EACH, segment_index_bytes=16)
    log, _ = recovered(config, 0, 1, 2, 3, 4, 5, 3)
    assert read_offsets(log) == [0, 1, 2, 3, 4, 5]


def test_ll16_an_offset_that_decreases_at_an_entry_empties_a_segment_whose_index_has_room() -> None:
    config = replace(EACH, segment_index_bytes=64)
    log, _ = recovered(config, 0, 1, 2, 3, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    assert read_offsets(log) == [] and log.log_end_offset == 0
