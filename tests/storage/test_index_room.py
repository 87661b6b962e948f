"""Indexes with more entries than segment.index.bytes holds: a trusted file, or a lower value than it was written under.

Kafka fails where these go on. Rules IX4, LS13.
"""

from __future__ import annotations

from dataclasses import replace

from sim.disk import SimFileSystem
from tests.storage.log_helpers import (
    NOW_MS,
    SMALL,
    append_each,
    new_file_system,
    open_log,
    produced,
    read_offsets,
)

DENSE = replace(SMALL, segment_index_bytes=1200, index_interval_bytes=0)
TIGHT = replace(DENSE, segment_index_bytes=40)


def stopped(file_system: SimFileSystem) -> None:
    """60 records, each of a later time than the one before; the first segment holds 25."""
    log = open_log(file_system, DENSE)
    for offset in range(60):
        log.append_as_leader(produced(timestamp=NOW_MS + offset), leader_epoch=0, now_ms=NOW_MS)
    assert log.segments.base_offsets[:2] == [0, 25]
    log.close()


def test_ls13_an_index_with_more_entries_than_its_full_size_holds_is_emptied_by_a_truncation() -> None:
    file_system = new_file_system()
    stopped(file_system)
    log = open_log(file_system, TIGHT, clean=True)
    assert log.truncate_to(20)
    assert log.segments.base_offsets == [0] and read_offsets(log) == list(range(20))
    assert log.active_segment.offset_index.length_bytes == 40
    assert log.active_segment.time_index.length_bytes == 36
    assert log.active_segment.offset_index.entries == log.active_segment.time_index.entries == 0
    append_each(log, 5)
    assert read_offsets(log) == list(range(25))


def test_ls13_an_index_whose_entries_fit_after_a_truncation_keeps_them() -> None:
    file_system = new_file_system()
    stopped(file_system)
    log = open_log(file_system, TIGHT, clean=True)
    assert log.truncate_to(4)
    index = log.active_segment.offset_index
    assert [index.entry(slot).offset for slot in range(index.entries)] == [1, 2, 3]
