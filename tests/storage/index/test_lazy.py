"""Two threads at one lazy index: the second sees what the first has done. Rule IX25, KAFKA-9156."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from storage.disk.filesystem import OpenMode
from storage.index.lazy import LazyIndex, lazy_offset_index
from storage.index.offset_index import OffsetIndex
from tests.storage.index.indexes import BASE, new_index, simulated


class Overtaken:
    """A lock in the place of a lazy index's: while it is waited for, another thread does `first`."""

    def __init__(self, first: Callable[[], object]) -> None:
        self._first, self.is_held = first, False

    def __enter__(self) -> None:
        self._first()
        self.is_held = True

    def __exit__(self, *_: object) -> None:
        self.is_held = False


def overtaken(lazy: LazyIndex[OffsetIndex], index: OffsetIndex) -> None:
    """Let the next call of `lazy` find `index` opened when it has the lock."""
    holder: Any = lazy

    def open_first() -> None:
        holder.index = index

    holder._lock = Overtaken(open_first)


def test_ix25_a_thread_that_waited_for_the_opening_gets_the_same_index() -> None:
    _, fs = simulated()
    lazy, index = lazy_offset_index(fs, "45.index", BASE, max_index_size=80), new_index(fs)
    overtaken(lazy, index)
    assert lazy.get() is index


def test_ix25_the_lock_is_held_while_the_file_is_opened() -> None:
    _, fs = simulated()
    held: list[bool] = []

    def opened(path: str) -> OffsetIndex:
        held.append(lazy._lock.locked())
        return new_index(fs, path=path)

    lazy = LazyIndex(fs, "45.index", opened, OffsetIndex.entry_size)
    assert lazy.get() is lazy.get()
    assert held == [True] and not lazy._lock.locked()


@pytest.mark.parametrize("verb", ["rename", "unlink"])
def test_ix25_the_lock_is_held_while_the_file_is_renamed_or_deleted(verb: str) -> None:
    disk, fs = simulated()
    new_index(fs).close()
    lazy = lazy_offset_index(fs, "45.index", BASE)
    held: dict[str, bool] = {}
    disk.observer = lambda verb, path: held.update({verb: lazy._lock.locked()})
    if verb == "rename":
        lazy.rename_to("46.index")
    else:
        lazy.delete_if_exists()
    assert held == {verb: True} and not lazy._lock.locked()


def test_ix25_a_rename_that_waited_for_the_opening_renames_what_is_open() -> None:
    _, fs = simulated()
    lazy, index = lazy_offset_index(fs, "45.index", BASE), new_index(fs)
    overtaken(lazy, index)
    lazy.rename_to("46.index")
    assert (index.path, lazy.path, fs.list("")) == ("46.index", "46.index", ["46.index"])


def test_ix25_a_deletion_that_waited_for_the_opening_closes_what_is_open() -> None:
    _, fs = simulated()
    lazy, index = lazy_offset_index(fs, "45.index", BASE), new_index(fs)
    overtaken(lazy, index)
    assert lazy.delete_if_exists()
    assert fs.list("") == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        index.append(BASE, 1)


def test_ix25_a_new_parent_is_passed_to_an_index_opened_meanwhile() -> None:
    _, fs = simulated()
    fs.make_directory("a")
    lazy, index = lazy_offset_index(fs, "a/45.index", BASE), new_index(fs, path="a/45.index")
    overtaken(lazy, index)
    fs.rename("a", "b")
    lazy.update_parent_directory("b")
    assert (index.path, lazy.path) == ("b/45.index", "b/45.index")


@pytest.mark.parametrize(("length", "entries_bytes"), [(0, 0), (7, 0), (24, 24), (31, 24)])
def test_cl10_an_index_that_is_not_open_counts_by_its_whole_entries(length: int, entries_bytes: int) -> None:
    _, fs = simulated()
    lazy = lazy_offset_index(fs, "45.index", BASE)
    assert lazy.entries_bytes() == 0
    fs.open("45.index", OpenMode.CREATE).append(bytes(length))
    assert lazy.entries_bytes() == entries_bytes and not lazy.is_open
