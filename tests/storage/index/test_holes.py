"""A preallocated index is a hole. Reading a hole of a full tmpfs through a map is a SIGBUS, so it must not happen."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.disk.os_filesystem import OsFile, OsFileSystem
from storage.index.memory_mapped import MemoryMappedIndex
from storage.index.offset_index import OffsetIndex
from storage.index.time_index import TimeIndex

_PREALLOCATED = 4096


class _NoPage:
    """The map of a file whose holes get no page: reading there returns bytes that are not the file's."""

    def __init__(self, size: int) -> None:
        self.view = memoryview(b"\xee" * size)

    def release_until(self, position: int) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OsFile, "map_for_reading", lambda file: _NoPage(file.size()))


def _preallocated(path: Path, kind: type[MemoryMappedIndex]) -> str:
    path.touch()
    with path.open("r+b") as file:
        file.truncate(_PREALLOCATED // kind.entry_size * kind.entry_size)
    return str(path)


@pytest.mark.usefixtures("no_pages")
def test_ix2_an_offset_index_left_by_a_crash_is_opened_without_its_map(tmp_path: Path) -> None:
    path = _preallocated(tmp_path / "00000000000000000007.index", OffsetIndex)
    index = OffsetIndex(OsFileSystem(), path, 7, max_index_size=_PREALLOCATED)
    assert index.entries == _PREALLOCATED // OffsetIndex.entry_size
    assert index.last_offset == 7
    index.sanity_check()
    index.reset()
    assert index.last_offset == 7
    index.close()


@pytest.mark.usefixtures("no_pages")
def test_ix2_a_time_index_left_by_a_crash_is_opened_without_its_map(tmp_path: Path) -> None:
    path = _preallocated(tmp_path / "00000000000000000007.timeindex", TimeIndex)
    index = TimeIndex(OsFileSystem(), path, 7, max_index_size=_PREALLOCATED)
    assert (index.last_entry.timestamp, index.last_entry.offset) == (0, 7)
    index.sanity_check()
    index.reset()
    assert (index.last_entry.timestamp, index.last_entry.offset) == (-1, 7)
    index.close()
