"""The producers of one log by producer id: entries used since the load, and the snapshot's rows for others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import Final, final

from storage.producers.entry import ProducerStateEntry
from storage.producers.rows import PRODUCER_ID, SnapshotRows, encode_entries

_EMPTY: Final = b""


@final
class ProducerTable(Mapping[int, ProducerStateEntry]):
    """The entries of one log's producers. As a mapping it is for readers: an entry may be a copy.

    `find` returns the entry itself, for a change; None for an unknown producer.
    """

    __slots__ = ("_entries", "_rows", "find")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerStateEntry] = {}
        self._rows = SnapshotRows(_EMPTY)
        # The dictionary's own method while there is nothing else to search, because each append calls it.
        self.find: Callable[[int], ProducerStateEntry | None] = self._entries.get

    def __len__(self) -> int:
        return len(self._entries) + self._rows.left

    def __iter__(self) -> Iterator[int]:
        yield from self._entries
        yield from self._rows.producer_ids()

    def __getitem__(self, producer_id: int) -> ProducerStateEntry:
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._rows.look_up(producer_id)
        if entry is None:
            raise KeyError(producer_id)
        return entry

    def _find(self, producer_id: int) -> ProducerStateEntry | None:
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._rows.take(producer_id)
            if entry is not None:
                self._entries[producer_id] = entry
            if not self._rows.left:
                self.find = self._entries.get
        return entry

    def find_or_add(self, producer_id: int) -> ProducerStateEntry:
        """Returns the producer's entry, a new one for an unknown producer."""
        entry = self.find(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerStateEntry(producer_id)
        return entry

    def load(self, rows: SnapshotRows) -> None:
        """Take the entries of a snapshot over; the table must be empty."""
        assert not len(self), len(self)
        self._rows = rows
        self.find = self._find if rows.left else self._entries.get

    def clear(self) -> None:
        """Forget all producers."""
        self._entries, self._rows = {}, SnapshotRows(_EMPTY)
        self.load(self._rows)
        assert not len(self), len(self)

    def drop_old(
        self, *, now_ms: int, expiration_ms: int, is_expired: Callable[[ProducerStateEntry], bool]
    ) -> None:
        """Forget the producers that `is_expired`, which may be false for all of a lower age than `expiration_ms`."""
        expired = [entry.producer_id for entry in self._entries.values() if is_expired(entry)]
        for producer_id in expired:
            del self._entries[producer_id]
        self._rows.drop_old(now_ms=now_ms, expiration_ms=expiration_ms, is_expired=is_expired)

    def pieces(self, size: int) -> Iterator[list[ProducerStateEntry]]:
        """The entries of all producers that are known at the first piece, `size` a piece but in the last one."""
        assert size > 0, size
        entries = chain(list(self._entries.values()), self._rows.left_of(self._rows.taken()))
        while piece := list(islice(entries, size)):
            yield piece

    def may_have_earlier_batches(
        self, is_such: Callable[[ProducerStateEntry], bool], most_asked: int
    ) -> bool:
        """Whether some entry `is_such`, or is of the snapshot and holds a batch that may not be its producer's first.

        With more than `most_asked` entries in memory none is asked: each of them may be such.
        """
        if len(self._entries) > most_asked:
            return True
        return any(map(is_such, self._entries.values())) or self._rows.may_have_earlier_batches()

    def encoded(self) -> bytes | bytearray:
        """The bytes of all entries by ascending producer id, as a snapshot has them."""
        ordered = sorted(self._entries.values(), key=PRODUCER_ID)
        return self._rows.merged_with(ordered, encode_entries(ordered), self._rows.taken())

    def parts(self) -> tuple[list[ProducerStateEntry], SnapshotRows]:
        """The entries in memory, in no order, and the rows; both for `PreparedSnapshot`."""
        return list(self._entries.values()), self._rows
