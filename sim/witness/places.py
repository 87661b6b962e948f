"""The batches of one replica's log and their places on the disk."""

from __future__ import annotations

from typing import NamedTuple

from sim.checkers.chain import Mark
from sim.world.packed import PackedList, Packing, Row


class Place(NamedTuple):
    """The file, by its name and its number on the disk, and the bytes of one batch; its newest record's timestamp."""

    mark: Mark
    path: str
    file_number: int
    position: int
    size_bytes: int
    newest_ms: int


def _row_of(place: Place) -> Row:
    return (tuple(place.mark), *place[1:])


def _place_of(row: Row) -> Place:
    return Place._make((Mark._make(row[0]), *row[1:]))


_PLACES = Packing(_row_of, _place_of)


def no_places() -> PackedList[Place]:
    """Returns an empty list of places; a long run has many of them."""
    return PackedList(_PLACES)
