"""The walk of recovery over a segment: what it cuts, what it rebuilds. Rules LS10 to LS12."""

from __future__ import annotations

import pytest

from sim.disk import SimFileSystem
from storage.batch import Record
from storage.batch.legacy.builder import build_message_set
from storage.config import LogConfig
from storage.disk.filesystem import OpenMode
from storage.errors import InvalidOffset, SegmentOffsetOverflow
from storage.recovery.cut import RecoveryCut
from storage.recovery.walk import recover_segment
from storage.segment import LogSegment, log_path
from storage.segment.lookups import read_next_offset
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    SIZE,
    SMALL,
    append_batch,
    batch,
    filled_segment,
    new_epochs,
    new_file_system,
    new_producers,
    offsets_in,
    open_log,
    open_segment,
)

PATH = log_path(DIRECTORY, 0)


def poke(file_system: SimFileSystem, position: int, data: bytes) -> None:
    file = file_system.open(PATH, OpenMode.WRITE)
    file.write_at(position, data)
    file.close()


def crashed(file_system: SimFileSystem, count: int = 10) -> None:
    """Write a segment and drop its handles: indexes stay at full size, nothing is trimmed."""
    filled_segment(file_system, range(count)).close_handlers()


def recover(
    file_system: SimFileSystem, base_offset: int = 0, config: LogConfig = SMALL
) -> tuple[LogSegment, int, list[RecoveryCut]]:
    segment = open_segment(file_system, base_offset, config, file_already_exists=True)
    cuts: list[RecoveryCut] = []
    removed = recover_segment(segment, new_producers(file_system), new_epochs(file_system), cuts.append)
    return segment, removed, cuts


def columns(segment: LogSegment) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    offset_index, time_index = segment.offset_index, segment.time_index
    entries = [offset_index.entry(slot) for slot in range(offset_index.entries)]
    times = [time_index.entry(slot) for slot in range(time_index.entries)]
    return [(each.offset, each.position) for each in entries], [
        (each.timestamp, each.offset) for each in times
    ]


def test_ls10_a_sound_segment_loses_nothing_and_its_indexes_are_as_before() -> None:
    file_system = new_file_system()
    segment = filled_segment(file_system, range(30))
    before = columns(segment)
    segment.close_handlers()
    recovered, removed, cuts = recover(file_system)
    assert removed == 0 and cuts == []
    offsets, times = columns(recovered)
    assert offsets == before[0] and times == [*before[1], (NOW_MS + 29, 29)]


def test_ls10_a_second_recovery_leaves_the_same_bytes() -> None:
    file_system = new_file_system()
    crashed(file_system)
    poke(file_system, 7 * SIZE + 30, b"\xff")
    contents = []
    for _ in range(2):
        segment, _, _ = recover(file_system)
        segment.close()
        names = file_system.list(DIRECTORY)
        contents.append(
            {
                name: file_system.open(f"{DIRECTORY}/{name}", OpenMode.READ).read_at(0, 10_000)
                for name in names
            }
        )
    assert contents[0] == contents[1]


@pytest.mark.covers("LogSegmentTest.testRecoveryWithCorruptMessage")
@pytest.mark.parametrize("byte", [8, 16 + 1, 21, 30, 61, SIZE - 1])
def test_ls10_a_flipped_byte_cuts_from_its_batch_on(byte: int) -> None:
    file_system = new_file_system()
    crashed(file_system)
    poke(file_system, 4 * SIZE + byte, b"\xa5")
    segment, removed, cuts = recover(file_system)
    assert removed == 6 * SIZE and segment.size_bytes == 4 * SIZE
    assert [(cut.path, cut.position, cut.removed_bytes) for cut in cuts] == [(PATH, 4 * SIZE, 6 * SIZE)]
    assert cuts[0].reason
    data = segment.read(0, 10_000, segment.size_bytes)
    assert data is not None and offsets_in(data.records) == [0, 1, 2, 3]


@pytest.mark.parametrize("tail", [1, 8, 11, 12, 16, 17, 18, 60, 61, SIZE - 1])
def test_ls10_a_torn_tail_is_cut_whatever_its_length(tail: int) -> None:
    file_system = new_file_system()
    crashed(file_system, 3)
    poke(file_system, 3 * SIZE, batch(3)[:tail])
    segment, removed, cuts = recover(file_system)
    assert removed == tail and segment.size_bytes == 3 * SIZE
    assert (cuts[0].position, cuts[0].removed_bytes) == (3 * SIZE, tail)


@pytest.mark.parametrize("zeros", [1, 12, 17, 61, 4096])
def test_ls10_a_zero_filled_tail_is_cut(zeros: int) -> None:
    file_system = new_file_system()
    crashed(file_system, 3)
    poke(file_system, 3 * SIZE, bytes(zeros))
    segment, removed, _ = recover(file_system)
    assert removed == zeros and read_next_offset(segment) == 3


def test_ls10_an_over_long_batch_is_cut() -> None:
    file_system = new_file_system()
    crashed(file_system, 3)
    poke(file_system, 2 * SIZE + 8, (1 << 20).to_bytes(4, "big"))
    segment, removed, _ = recover(file_system)
    assert removed == SIZE and read_next_offset(segment) == 2


def test_ls10_no_index_entry_points_beyond_the_cut() -> None:
    file_system = new_file_system()
    crashed(file_system, 30)
    poke(file_system, 12 * SIZE + 40, b"\xa5")
    segment, _, _ = recover(file_system)
    offsets, times = columns(segment)
    assert offsets and all(offset < 12 and position < 12 * SIZE for offset, position in offsets)
    assert times[-1] == (NOW_MS + 11, 11)


@pytest.mark.covers(
    "LogSegmentTest.testRecoveryFixesCorruptIndex", "LogSegmentTest.testRecoveryFixesCorruptTimeIndex"
)
def test_ls10_garbage_in_the_indexes_does_not_matter() -> None:
    file_system = new_file_system()
    segment = filled_segment(file_system, range(30))
    before = columns(segment)[0]
    segment.close_handlers()
    for suffix in ("index", "timeindex"):
        file = file_system.open(f"{DIRECTORY}/{0:020d}.{suffix}", OpenMode.WRITE)
        file.write_at(0, b"\xee" * 240)
        file.close()
    recovered, removed, _ = recover(file_system)
    assert removed == 0 and columns(recovered)[0] == before


@pytest.mark.covers("LogSegmentTest.testRecoveryRebuildsEpochCache")
def test_ls10_epochs_and_producers_follow_the_kept_batches() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system)
    append_batch(segment, batch(0, 2, epoch=3, producer_id=7, producer_epoch=0, sequence=0))
    append_batch(segment, batch(2, 2, epoch=5, producer_id=7, producer_epoch=0, sequence=2))
    append_batch(segment, batch(4, 2, epoch=6, producer_id=7, producer_epoch=0, sequence=4))
    end = segment.size_bytes
    segment.close_handlers()
    poke(file_system, end - 1, b"\x99")
    segment = open_segment(file_system, file_already_exists=True)
    producers, epochs = new_producers(file_system), new_epochs(file_system)
    recover_segment(segment, producers, epochs)
    assert [tuple(entry) for entry in epochs.entries] == [(3, 0), (5, 2)]
    entry = producers.last_entry(7)
    assert entry is not None and (entry.last_sequence, entry.last_offset) == (3, 3)
    assert producers.map_end_offset == 4


def test_ls10_recovery_notes_epochs_and_the_load_brings_them_to_disk_once() -> None:
    """The epochs are on the disk before anything says that the segment need not be walked again.

    After a crash in between, the next walk finds them again (EP12).
    """
    file_system = new_file_system()
    segment = open_segment(file_system)
    for epoch in range(3):
        append_batch(segment, batch(epoch, epoch=epoch))
    segment.close_handlers()
    segment = open_segment(file_system, file_already_exists=True)
    epochs = new_epochs(file_system)
    recover_segment(segment, new_producers(file_system), epochs)
    assert epochs.is_dirty and not new_epochs(file_system).entries
    segment.close_handlers()
    open_log(file_system, clean=False).close_handles()
    assert new_epochs(file_system).entries == [(0, 0), (1, 1), (2, 2)]


def test_ls10_the_epochs_of_a_flushed_segment_are_on_disk_before_its_index_has_its_name() -> None:
    """A later start trusts an index that has its name, and reads no batch."""
    file_system = new_file_system()
    segment = open_segment(file_system)
    append_batch(segment, batch(0, epoch=4))
    # It has no index yet, because it was never used.
    segment.close()
    seen = []
    rename = file_system.rename

    def watched(old: str, new: str) -> None:
        if new == segment.offset_index_path:
            seen.append([tuple(entry) for entry in new_epochs(file_system).entries])
        rename(old, new)

    file_system.rename = watched  # type: ignore[method-assign]
    open_log(file_system, clean=True).close_handles()
    assert seen == [[(4, 0)]]


def test_ls10_magic_0_and_1_between_batches_of_magic_2_are_walked() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system)
    old = [
        build_message_set([Record(offset, offset, b"k", b"v")], magic=magic, base_offset=offset)
        for offset, magic in ((1, 0), (2, 1))
    ]
    segment.records.append(batch(0) + old[0] + old[1] + batch(3) + old[0][:-1])
    sound = segment.size_bytes - len(old[0]) + 1
    segment.close_handlers()
    segment, removed, (cut,) = recover(file_system, config=LogConfig(index_interval_bytes=0))
    assert (segment.size_bytes, removed, cut.position) == (sound, len(old[0]) - 1, sound)
    positions = [len(batch(0)), len(batch(0)) + len(old[0]), sound - len(batch(3))]
    assert columns(segment)[0] == list(zip((1, 2, 3), positions, strict=True))


def test_ls12_offsets_that_go_back_at_an_index_entry_raise() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system)
    segment.records.append(b"".join(batch(offset) for offset in [0, 1, 2, 10, 11, 12, 5, 6, 7]))
    segment.close_handlers()
    with pytest.raises(InvalidOffset):
        recover(file_system)


def test_ls10_an_offset_above_the_relative_bits_raises_and_leaves_the_log() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system)
    segment.records.append(batch(0) + batch(2**31))
    segment.close_handlers()
    with pytest.raises(SegmentOffsetOverflow):
        recover(file_system)
    assert file_system.stat(PATH).size_bytes == 2 * SIZE


def test_ls10_an_offset_below_the_base_is_outside_the_range_too() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system, 100)
    append_batch(segment, batch(100))
    append_batch(segment, batch(101))
    segment.records.append(batch(3))
    segment.close_handlers()
    with pytest.raises(SegmentOffsetOverflow, match="offset 3 does not fit a segment based at 100"):
        recover(file_system, 100)
    assert file_system.stat(log_path(DIRECTORY, 100)).size_bytes == 3 * SIZE


def test_what_an_index_has_no_room_for_is_left_out() -> None:
    file_system = new_file_system()
    crashed(file_system, 30)
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=48)
    segment, removed, _ = recover(file_system, config=config)
    assert removed == 0 and segment.offset_index.entries == 6
    data = segment.read(29, 1000, segment.size_bytes)
    assert data is not None and offsets_in(data.records) == [29]


def test_ls13_a_cut_looks_at_the_batches_whose_time_entries_recovery_had_no_room_for() -> None:
    file_system = new_file_system()
    segment = open_segment(file_system)
    for offset, timestamp in enumerate((1, 2, 3, 4, 90, 5, 6, 7, 100)):
        append_batch(segment, batch(offset, timestamp=timestamp))
    segment.close_handlers()
    # There is room for six positions, and for three timestamps beside the last.
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=48)
    segment, _, _ = recover(file_system, config=config)
    segment.truncate_to(7, NOW_MS)
    assert segment.max_timestamp == (90, 4) and segment.kept_until_ms == 90


def test_a_batch_above_the_read_block_is_checked_too() -> None:
    file_system = new_file_system()
    config = LogConfig(segment_index_bytes=1200)
    segment = open_segment(file_system, config=config)
    for offset in range(4):
        append_batch(segment, batch(offset, value_bytes=400_000 if offset % 2 else 10))
    large = segment.size_bytes
    segment.close_handlers()
    poke(file_system, large - 5, b"\x01")
    segment, removed, _ = recover(file_system, config=config)
    assert removed == len(batch(3, value_bytes=400_000)) and read_next_offset(segment) == 3
