"""A truncation in the middle of a read on another thread: the read fails whole, it never returns other bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from storage.config import LogConfig
from storage.disk.filesystem import File, FileSystem, OpenMode
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import TruncatedWhileRead
from storage.segment import LogSegment
from storage.segment.lookups import find_offset_by_timestamp
from tests.storage.logs import DIRECTORY, NOW_MS, batch, new_file_system

# The new history has other places for the same offsets.
OLD = [batch(offset, value_bytes=40) for offset in range(20)]
NEW = [batch(offset, value_bytes=33, epoch=1) for offset in range(5, 30)]


class Interrupted:
    """A file whose reader is interrupted once by `meanwhile`, at its call number `at`, after the bytes were read or
    before."""

    def __init__(self, file: File, meanwhile: Callable[[], None], at: int, *, is_after: bool) -> None:
        self._file, self._meanwhile, self._left, self._is_after = file, meanwhile, at, is_after

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def read_at(self, position: int, size: int) -> bytes:
        self._left -= 1
        if self._left == 0 and not self._is_after:
            self._meanwhile()
        data = self._file.read_at(position, size)
        if self._left == 0 and self._is_after:
            self._meanwhile()
        return data


def segment_with(batches: list[bytes], file_system: FileSystem, *, preallocate: bool = False) -> LogSegment:
    config = LogConfig(index_interval_bytes=1 << 20, segment_bytes=1 << 20, preallocate=preallocate)
    segment = LogSegment.open(file_system, DIRECTORY, 0, config, NOW_MS)
    for offset, data in enumerate(batches):
        segment.append(offset, data)
    return segment


def interrupt(
    segment: LogSegment, at: int, *, is_after: bool, new: Sequence[bytes] = NEW, cut_at: int = 5
) -> None:
    """Truncate to offset `cut_at` and append a new history at the reader's call number `at`."""
    records = segment.records
    file = records._file

    def meanwhile() -> None:
        records._file = file
        segment.truncate_to(cut_at, NOW_MS)
        for offset, data in enumerate(new, start=cut_at):
            segment.append(offset, data)

    # The test stands in the middle of a call, which only a file that calls back can do.
    records._file = Interrupted(file, meanwhile, at, is_after=is_after)  # type: ignore[assignment]


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("at", [1, 2])
def test_fr17_a_read_that_a_truncation_interrupts_fails_whole(at: int, is_after: bool) -> None:
    segment = segment_with(OLD, new_file_system())
    interrupt(segment, at, is_after=is_after)
    with pytest.raises(TruncatedWhileRead, match="truncated while it was read"):
        segment.read(10, 100_000, segment.size_bytes)
    found = segment.read(10, 100_000, segment.size_bytes)
    assert found is not None and found.records == b"".join(NEW[5:])


@pytest.mark.parametrize("is_after", [False, True])
def test_fr17_a_search_that_a_truncation_interrupts_fails_whole(is_after: bool) -> None:
    segment = segment_with(OLD, new_file_system())
    interrupt(segment, 1, is_after=is_after)
    with pytest.raises(TruncatedWhileRead):
        segment.translate_offset(10)
    interrupt(segment, 1, is_after=is_after)
    with pytest.raises(TruncatedWhileRead):
        find_offset_by_timestamp(segment, NOW_MS, 10)


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("cut_at", [0, 5])
def test_fr17_a_read_or_search_of_what_is_cut_off_meanwhile_says_so(
    cut_at: int, at: int, is_after: bool
) -> None:
    """What the reader meets is no damage: a file that ends, or a place behind its end."""
    segment = segment_with(OLD, new_file_system())
    interrupt(segment, at, is_after=is_after, new=[], cut_at=cut_at)
    with pytest.raises(TruncatedWhileRead):
        segment.read(10, 100_000, segment.size_bytes)
    segment = segment_with(OLD, new_file_system())
    interrupt(segment, at, is_after=is_after, new=[], cut_at=cut_at)
    with pytest.raises(TruncatedWhileRead):
        find_offset_by_timestamp(segment, NOW_MS, 10)


def test_fr17_an_append_does_not_disturb_a_read() -> None:
    segment = segment_with(OLD, new_file_system())
    end, records = segment.size_bytes, segment.records
    file = records._file
    records._file = Interrupted(file, lambda: segment.append(20, batch(20)), 2, is_after=False)  # type: ignore[assignment]
    found = segment.read(10, 100_000, end)
    assert found is not None and found.records == b"".join(OLD[10:])


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("by_time", [False, True])
def test_fr17_the_end_of_a_preallocated_tail_does_not_disturb_a_read_or_a_search(
    by_time: bool, at: int, is_after: bool
) -> None:
    """A roll cuts it off, and no record with it."""
    segment = segment_with(OLD, new_file_system(), preallocate=True)
    records = segment.records
    file = records._file
    assert file.size() > segment.size_bytes

    def meanwhile() -> None:
        records._file = file
        segment.on_become_inactive()

    records._file = Interrupted(file, meanwhile, at, is_after=is_after)  # type: ignore[assignment]
    if by_time:
        looked_up = find_offset_by_timestamp(segment, NOW_MS, 10)
        assert looked_up is not None and looked_up.offset == 10
    else:
        found = segment.read(10, 100_000, segment.size_bytes)
        assert found is not None and found.records == b"".join(OLD[10:])
    assert file.size() == segment.size_bytes


def test_fr17_a_file_is_closed_only_after_the_calls_that_use_it(tmp_path: Path) -> None:
    """Otherwise its number could become that of another file while a call is about to read."""
    fs = OsFileSystem()
    first = fs.open(f"{tmp_path}/first", OpenMode.CREATE)
    first.append(b"first")
    # What a call of the system holds until it returns.
    in_use = first._descriptor
    assert in_use is not None
    first.close()
    second = fs.open(f"{tmp_path}/second", OpenMode.CREATE)
    second.append(b"other")
    assert os.pread(in_use, 5, 0) == b"first"
    number = int(in_use)
    del in_use
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pread(number, 5, 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        first.read_at(0, 5)
    second.close()
