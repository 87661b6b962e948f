"""Start-up with offsets that do not fit their segment, or a torn end that looks so.

Kafka: LogLoaderTest; rule LL12.
"""

from __future__ import annotations

import pytest

from storage.config import LogConfig
from storage.disk.filesystem import join
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    SIZE,
    append_each,
    batch,
    new_file_system,
    open_log,
    produced,
    read_offsets,
)
from tests.storage.recovery.stopped_logs import batches, file_of, poke, raw_segment, reopen

FAR = 2**31
COMPACTED = LogConfig(segment_bytes=3 * SIZE, segment_index_bytes=1200, cleanup_policy="compact")


@pytest.mark.covers("LogLoaderTest.testRecoveryOfSegmentWithOffsetOverflow")
@pytest.mark.parametrize("with_index", [True, False])
def test_ll12_a_segment_that_overflows_is_split(with_index: bool) -> None:
    """Recovery finds the overflow if the segment has an index; if not, the opening of the segments does."""
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(0, 1, FAR - 2))
    raw_segment(
        file_system, FAR, batches(FAR, FAR + 1, 2 * FAR - 1, 2 * FAR, 2 * FAR + 1), with_index=with_index
    )
    raw_segment(file_system, 3 * FAR, batches(3 * FAR, 3 * FAR + 1))
    log, cuts = reopen(file_system)
    assert log.local.segments.base_offsets == [0, FAR, 2 * FAR, 3 * FAR] and cuts == []
    assert read_offsets(log) == [
        *(0, 1, FAR - 2),
        *(FAR, FAR + 1, 2 * FAR - 1, 2 * FAR, 2 * FAR + 1),
        *(3 * FAR, 3 * FAR + 1),
    ]
    assert not [name for name in file_system.list(DIRECTORY) if name.count(".") > 1]


def test_kafka_6264_a_compacted_log_whose_last_batch_alone_overflows_is_split_too() -> None:
    file_system = new_file_system()
    raw_segment(file_system, 0, ended_by_garbage(505))
    log = open_log(file_system, COMPACTED)
    assert log.local.segments.base_offsets == [0, 0x3F52_0000_0000_001C]


def test_ll12_a_split_forgets_the_snapshot_of_a_base_offset_that_no_segment_has_now() -> None:
    file_system = new_file_system()
    # No offset fits: there is one new segment, and none at 0.
    raw_segment(file_system, 0, batches(FAR + 5, FAR + 6))
    poke(file_system, join(DIRECTORY, f"{0:020d}.snapshot"), 0, b"junk")
    log, _ = reopen(file_system)
    assert log.local.segments.base_offsets == [FAR + 5] and read_offsets(log) == [FAR + 5, FAR + 6]
    assert f"{0:020d}.snapshot" not in file_system.list(DIRECTORY)


def test_ro1_the_age_of_an_active_segment_that_a_split_made_counts_from_the_start() -> None:
    """Its records have no timestamps, so the clock decides when it rolls."""
    file_system = new_file_system()
    raw_segment(file_system, 0, batch(0, timestamp=-1) + batch(FAR, timestamp=-1))
    config = LogConfig(segment_ms=1000, segment_index_bytes=1200)
    log = open_log(file_system, config)
    assert log.local.segments.base_offsets == [0, FAR]
    for now_ms in (NOW_MS + 1000, NOW_MS + 1001):
        log.append_as_leader(produced(timestamp=-1), leader_epoch=0, now_ms=now_ms)
    assert log.local.segments.base_offsets == [0, FAR, FAR + 2]


def ended_by_garbage(position: int) -> bytes:
    """Return offsets 0 to 2, then at byte `position` a sound batch at an offset of garbage."""
    # Two lengths take a byte more.
    front = batches(0, 1) + batch(2, value_bytes=8 + position - 3 * SIZE)
    assert len(front) == position, (len(front), position)
    return front + batch(0x3F52_0000_0000_001C)


@pytest.mark.parametrize("position", [505, 510, 1023])
def test_a_torn_header_at_the_end_of_the_log_is_cut(position: int) -> None:
    """No checksum covers the base offset: a tear inside it leaves a sound batch at an offset of garbage."""
    file_system = new_file_system()
    raw_segment(file_system, 0, ended_by_garbage(position))
    log, cuts = reopen(file_system)
    assert read_offsets(log) == [0, 1, 2] and log.log_end_offset == 3
    assert [(cut.position, cut.removed_bytes) for cut in cuts] == [(position, SIZE)]
    assert "does not fit" in cuts[0].reason
    append_each(log, 1)
    assert read_offsets(log) == [0, 1, 2, 3]


@pytest.mark.parametrize("position", [503, 512])
def test_ll12_where_no_sector_ends_in_the_offset_it_cannot_be_torn_and_the_segment_is_split(
    position: int,
) -> None:
    file_system = new_file_system()
    raw_segment(file_system, 0, ended_by_garbage(position))
    log, cuts = reopen(file_system)
    assert log.local.segments.base_offsets == [0, 0x3F52_0000_0000_001C] and cuts == []


def test_ll12_an_offset_that_is_followed_by_another_batch_is_not_torn_and_the_segment_is_split() -> None:
    file_system = new_file_system()
    far = 0x3F52_0000_0000_001C
    raw_segment(file_system, 0, ended_by_garbage(505) + batches(far + 1))
    log, cuts = reopen(file_system)
    assert log.local.segments.base_offsets == [0, far] and cuts == []
    assert log.log_end_offset == far + 2


@pytest.mark.parametrize(("with_index", "recovery_point"), [(True, 0), (False, 0), (False, 4)])
def test_ll12_before_the_last_segment_nothing_is_torn_and_an_overflow_is_split(
    with_index: bool, recovery_point: int
) -> None:
    """Without its index the segment is looked at while the later ones are not open yet, flushed or not."""
    file_system = new_file_system()
    raw_segment(file_system, 0, ended_by_garbage(505), with_index=with_index)
    raw_segment(file_system, 3, batches(3, 4))
    log, cuts = reopen(file_system, recovery_point=recovery_point)
    assert log.local.segments.base_offsets == [0, 3, 0x3F52_0000_0000_001C] and cuts == []


def test_kafka_905_offsets_that_go_back_in_a_segment_without_an_index_cost_only_what_follows() -> None:
    """A segment with its index is emptied, as in Kafka (LL16). Without the index Kafka does not start."""
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(0, 1, 2, 3, 4, 5, 2, 3, 6), with_index=False)
    log, cuts = reopen(file_system)
    assert read_offsets(log) == [0, 1, 2, 3, 4, 5]
    assert [(cut.position, cut.removed_bytes) for cut in cuts] == [(6 * SIZE, 3 * SIZE)]


@pytest.mark.parametrize("with_index", [True, False])
def test_garbage_that_a_split_cannot_help_is_cut_with_all_that_follows(with_index: bool) -> None:
    """Kafka splits a segment that does not overflow, and does not start."""
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(0, 1, FAR + 7, 3, 4), with_index=with_index)
    raw_segment(file_system, 5, batches(5, 6))
    log, cuts = reopen(file_system)
    assert read_offsets(log) == [0, 1] and log.local.segments.base_offsets == [0]
    assert {(cut.path, cut.position, cut.removed_bytes) for cut in cuts} == {
        (file_of(5), 0, 2 * SIZE),
        (file_of(0), 2 * SIZE, 3 * SIZE),
    }


@pytest.mark.parametrize("tail", [b"\x00" * 70, b"\x01" * 5, batch(9)[:40]])
def test_a_segment_that_overflows_and_is_torn_is_cut_and_then_split(tail: bytes) -> None:
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(0, 1, FAR, FAR + 1) + tail)
    log, cuts = reopen(file_system)
    assert read_offsets(log) == [0, 1, FAR, FAR + 1] and log.local.segments.base_offsets == [0, FAR]
    assert [(cut.position, cut.removed_bytes) for cut in cuts] == [(4 * SIZE, len(tail))]


def test_garbage_and_a_torn_tail_after_it_are_cut_one_after_the_other() -> None:
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(0, 1, FAR + 7, 3, 4) + b"\x00" * 70)
    log, cuts = reopen(file_system)
    assert read_offsets(log) == [0, 1]
    assert [(cut.position, cut.removed_bytes) for cut in cuts] == [(5 * SIZE, 70), (2 * SIZE, 3 * SIZE)]


def test_a_split_onto_another_segment_is_no_split() -> None:
    """The new segment's files would replace those of the other segment."""
    file_system = new_file_system()
    raw_segment(file_system, 0, batches(0, 1, FAR, FAR + 1))
    raw_segment(file_system, FAR, batches(FAR, FAR + 1, FAR + 2))
    log, cuts = reopen(file_system)
    assert read_offsets(log) == [0, 1] and sum(cut.removed_bytes for cut in cuts) == 5 * SIZE
