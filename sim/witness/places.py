"""The batches of one replica's log and their places on the disk, in columns: a long run has many of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple, final

from sim.checkers.chain import Mark


class Place(NamedTuple):
    """The file, by its name and its number on the disk, and the bytes of one batch; its newest record's timestamp."""

    mark: Mark
    path: str
    file_number: int
    position: int
    size_bytes: int
    newest_ms: int


@final
class Places:
    """A sequence of places, in the order of their offsets; it takes 40 bytes for each beside its mark."""

    __slots__ = ("_file_indexes", "_files", "_newest_ms", "_positions", "_sizes", "marks")

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        # The name and the number of each file, in order, and which of them a batch is in.
        self._files: list[tuple[str, int]] = []
        self._file_indexes = array("q")
        self._positions = array("q")
        self._sizes = array("q")
        self._newest_ms = array("q")

    def __len__(self) -> int:
        return len(self.marks)

    def __iter__(self) -> Iterator[Place]:
        return map(self.at, range(len(self.marks)))

    def __getitem__(self, index: int) -> Place:
        return self.at(range(len(self.marks))[index])

    def since(self, index: int) -> Iterator[Place]:
        """Yields the places from that index on."""
        return map(self.at, range(index, len(self.marks)))

    def at(self, index: int) -> Place:
        """Returns the place with that index, from 0."""
        path, number = self._files[self._file_indexes[index]]
        return Place(
            self.marks[index],
            path,
            number,
            self._positions[index],
            self._sizes[index],
            self._newest_ms[index],
        )

    def add(
        self, mark: Mark, file: tuple[str, int], *, position: int, size_bytes: int, newest_ms: int
    ) -> None:
        """Add a batch at the end; `file` is the name and the number of its file."""
        if not self._files or self._files[-1] != file:
            self._files.append(file)
        self.marks.append(mark)
        self._file_indexes.append(len(self._files) - 1)
        self._positions.append(position)
        self._sizes.append(size_bytes)
        self._newest_ms.append(newest_ms)
        assert len(self.marks) == len(self._positions), (len(self.marks), len(self._positions))

    def pop(self) -> None:
        """Drop the last batch."""
        for column in (self.marks, self._file_indexes, self._positions, self._sizes, self._newest_ms):
            column.pop()
        assert len(self.marks) == len(self._positions), (len(self.marks), len(self._positions))
