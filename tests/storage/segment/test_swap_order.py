"""Splitting and swapping segments, one step to either side of each rule: LL27 and LL28."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sim.disk import SimFileSystem
from sim.disk.life import Life
from storage.disk.filesystem import read_file
from storage.errors import StorageError
from storage.segment.lookups import has_overflow
from storage.segment.replace import replace_segments
from storage.segment.segments import LogSegments
from tests.storage.disk.recorded_calls import recorded
from tests.storage.logs import DIRECTORY, THREE, batch, new_disk, new_file_system, open_segment
from tests.storage.segment.swapped_segments import BEYOND, CONFIG, cleaned, old_log, overflowed, split


def test_ll27_the_new_segments_are_closed_for_appends_synced_and_as_old_as_the_source() -> None:
    disk = new_disk()
    file_system = new_file_system(disk)
    source = overflowed(file_system, [0, 5, BEYOND, BEYOND + 7])
    source.set_modified(123_456)
    disk.sync_all()
    for new in split(file_system, source):
        assert file_system.stat(new.path).modified_ms == 123_456
        assert disk.durable_bytes(new.path) == read_file(file_system, new.path) != b""
        last = new.time_index.last_entry
        assert last.timestamp == new.max_timestamp.timestamp
        assert file_system.stat(new.time_index_path).size_bytes == new.time_index.entries * 12 > 0
        assert file_system.stat(new.offset_index_path).size_bytes == new.offset_index.entries * 8


def test_ll27_a_batch_that_reaches_beyond_its_segment_gets_one_of_its_own_base() -> None:
    file_system = new_file_system()
    wide = batch(0, offsets=[0, 7])
    grown = bytearray(wide)
    # The last offset is 2**31 - 1 above the first.
    grown[23:27] = (0x7FFFFFFF).to_bytes(4, "big")
    grown[0:8] = (3).to_bytes(8, "big")
    segment = open_segment(file_system, 0, CONFIG)
    segment.records.append(batch(0) + bytes(grown))
    assert has_overflow(segment)
    segments = split(file_system, segment)
    assert segments.base_offsets == [0, 3]


def live_and(file_system: SimFileSystem, *bases: int) -> LogSegments:
    segments = LogSegments()
    for base in bases:
        segments.add(open_segment(file_system, base, THREE, file_already_exists=True))
    return segments


def test_ll28_new_segments_in_any_order_take_their_names_from_the_highest_down_and_up_again() -> None:
    calls: list[str] = []
    plain = new_file_system()
    old_log(plain).close()
    file_system = recorded(plain, calls)
    segments = live_and(file_system, 3)
    new = [cleaned(file_system, base, [base]) for base in (4, 3, 5)]
    calls.clear()
    replace_segments(file_system, DIRECTORY, segments, new, list(segments))
    logs = [call for call in calls if ".log" in call or call == "sync"]
    assert [call for call in logs if call != "sync" and not call.startswith("unlink")] == [
        "rename 5.log.cleaned 5.log.swap",
        "rename 4.log.cleaned 4.log.swap",
        "rename 3.log.cleaned 3.log.swap",
        "rename 3.log 3.log.deleted",
        "rename 3.log.swap 3.log",
        "rename 4.log.swap 4.log",
        "rename 5.log.swap 5.log",
    ]
    for live in ("3.log", "4.log", "5.log"):
        place = logs.index(f"rename {live}.swap {live}")
        assert logs[place + 1] == "sync", live


@pytest.mark.parametrize("bases", [(0,), (0, 4, 7)], ids=["one", "three"])
def test_ll28_the_names_of_each_step_are_synced_before_the_next_step_renames(bases: tuple[int, ...]) -> None:
    """A start decides by the `.cleaned` and `.swap` names that it finds what to finish and what to undo."""
    calls: list[str] = []
    plain = new_file_system()
    old_log(plain).close()
    file_system = recorded(plain, calls)
    segments = live_and(file_system, 0, 3, 6)
    new = [cleaned(file_system, base, [base + 1]) for base in bases]
    calls.clear()
    replace_segments(file_system, DIRECTORY, segments, new, list(segments))
    kinds = [call if call == "sync" else call.rsplit(".", 1)[-1] for call in calls]
    steps = [kind for kind, before in pairwise([*kinds, ""]) if kind != before]
    swaps = ["sync", "swap"] * min(len(bases), 2)
    assert steps[: len(swaps) + 4] == [*swaps, "sync", "deleted", "sync", "log"], calls


def test_ll28_the_old_names_are_on_the_disk_before_a_new_one_is_live() -> None:
    """A power loss that kept a live name and lost a `.deleted` one would leave an old segment beside the new one."""
    disk = new_disk()
    file_system = new_file_system(disk)
    log = old_log(file_system)
    old = [segment for segment in log.local.segments if segment.base_offset < 9]
    assert len(old) == 3
    new = cleaned(file_system, 0, [2])
    disk.sync_all()
    seen: list[str] = []

    def lose_what_is_not_live(verb: str, path: str) -> None:
        names = disk.pending_names()
        kept = [number for number, name in names.items() if name and name[-1] not in "dp"]
        twin = disk.snapshot()
        twin.lose_power_keeping(kept)
        left = [name for name in twin.file_system(Life()).list(DIRECTORY) if name.endswith(".log")]
        is_new = f"{0:020d}.log.swap" not in twin.file_system(Life()).list(DIRECTORY) and kept
        if is_new:
            seen.append(verb)
            assert [int(name[:20]) for name in left if int(name[:20]) in (3, 6)] == [], (verb, path, left)

    disk.observer = lose_what_is_not_live
    replace_segments(file_system, DIRECTORY, log.local.segments, [new], old)
    disk.observer = None
    assert seen


def test_ll28_an_old_segment_that_has_left_the_map_is_passed_over() -> None:
    file_system = new_file_system()
    log = old_log(file_system)
    old = [segment for segment in log.local.segments if segment.base_offset < 9]
    log.local.segments.remove(3)
    doomed: list[int] = []
    gone = replace_segments(
        file_system,
        DIRECTORY,
        log.local.segments,
        [cleaned(file_system, 0, [2])],
        old,
        delete=lambda segment: doomed.append(segment.base_offset),
    )
    assert doomed == [0, 6] and [segment.base_offset for segment in gone] == [6]
    assert old[1].path.endswith("3.log")


def test_ll28_a_segment_that_has_taken_the_place_of_an_old_one_stays() -> None:
    """A truncation to nothing leaves such a segment while the old ones are cleaned."""
    file_system = new_file_system()
    log = old_log(file_system)
    segments = log.local.segments
    old = [segment for segment in segments if segment.base_offset < 9]
    other = open_segment(file_system, 3, THREE, file_already_exists=True)
    assert segments.add(other) is old[1]
    gone = replace_segments(file_system, DIRECTORY, segments, [cleaned(file_system, 0, [2])], old)
    assert gone == [old[2]] and segments.base_offsets == [0, 3, 9]
    assert segments.get(3) is other and file_system.exists(other.path)


def test_ll27_a_copy_that_lost_bytes_replaces_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    file_system = new_file_system()
    segment = overflowed(file_system, [0, BEYOND])
    content = read_file(file_system, segment.path)
    monkeypatch.setattr("storage.segment.split.append_from_file", lambda new, source, start: 1 << 20)
    with pytest.raises(StorageError, match="the split copied only 0 of"):
        split(file_system, segment)
    assert read_file(file_system, segment.path) == content
    monkeypatch.setattr("storage.segment.split.append_from_file", lambda new, source, start: 0)
    with pytest.raises(StorageError, match="no batch fits"):
        split(file_system, segment)
    assert [name for name in file_system.list(DIRECTORY) if name.endswith(".cleaned")] == []
