"""The table of producers: a snapshot's rows that are decoded when they are used behave as entries in memory do."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.producers.entry import ProducerStateEntry
from storage.producers.rows import SnapshotRows, decode_entries, encode_entries
from storage.producers.snapshot import ENTRY_BYTES
from storage.producers.table import ProducerTable

EXPIRATION_MS = 100
NOW_MS = 1_000


def an_entry(producer_id: int, *, timestamp: int = NOW_MS, sequence: int = 0) -> ProducerStateEntry:
    entry = ProducerStateEntry(producer_id, producer_epoch=0, last_timestamp=timestamp)
    entry.batches = ((sequence, producer_id, 0, timestamp),)
    return entry


def rows_of(*entries: ProducerStateEntry) -> SnapshotRows:
    return SnapshotRows(bytes(encode_entries(entries)))


def table_of(*entries: ProducerStateEntry) -> ProducerTable:
    table = ProducerTable()
    table.load(rows_of(*entries))
    return table


def is_expired(entry: ProducerStateEntry, *, now_ms: int) -> bool:
    return entry.transaction_first_offset is None and now_ms - entry.last_timestamp >= EXPIRATION_MS


def drop_old(table: ProducerTable, now_ms: int) -> None:
    table.drop_old(now_ms=now_ms, expiration_ms=EXPIRATION_MS, is_expired=partial(is_expired, now_ms=now_ms))


def write(entry: ProducerStateEntry, timestamp: int) -> None:
    """Change an entry as an append does."""
    entry.batches = ((*entry.batches, (timestamp, timestamp, 0, timestamp)))[-5:]
    entry.last_timestamp = timestamp


IDS = st.integers(0, 12)
TIMES = st.integers(NOW_MS - 300, NOW_MS + 300)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), IDS, TIMES),
        st.tuples(st.just("expire"), st.just(0), TIMES),
        st.tuples(st.just("reload"), st.just(0), st.just(0)),
    ),
    max_size=20,
)


@given(st.lists(st.tuples(IDS, TIMES), max_size=8), STEPS)
def test_a_table_is_what_a_dictionary_of_all_entries_would_be(
    saved: list[tuple[int, int]], steps: list[tuple[str, int, int]]
) -> None:
    loaded = [an_entry(producer_id, timestamp=timestamp) for producer_id, timestamp in saved]
    table = table_of(*loaded)
    model = {
        entry.producer_id: an_entry(entry.producer_id, timestamp=entry.last_timestamp) for entry in loaded
    }
    for action, producer_id, at_ms in steps:
        if action == "write":
            write(table.find_or_add(producer_id), at_ms)
            write(model.setdefault(producer_id, ProducerStateEntry(producer_id)), at_ms)
        elif action == "expire":
            drop_old(table, at_ms)
            model = {key: entry for key, entry in model.items() if not is_expired(entry, now_ms=at_ms)}
        else:
            content = bytes(table.encoded())
            table.clear()
            table.load(SnapshotRows(content))
            model = {entry.producer_id: entry for entry in decode_entries(content)}
        assert len(table) == len(model)
        assert {key: repr(entry) for key, entry in table.items()} == {
            key: repr(entry) for key, entry in model.items()
        }
        assert table.encoded() == encode_entries([model[key] for key in sorted(model)])


def test_t10_of_two_entries_of_a_producer_the_later_one_counts() -> None:
    table = table_of(an_entry(5, sequence=1), an_entry(2), an_entry(5, sequence=9))
    assert [(key, entry.last_sequence) for key, entry in table.items()] == [(2, 0), (5, 9)]


def test_ps13_a_producer_that_expired_after_it_wrote_does_not_come_back_from_the_snapshot() -> None:
    """The batch after the snapshot has an old timestamp, so the snapshot's own entry would not be expired."""
    table = table_of(an_entry(1), an_entry(2))
    write(table.find_or_add(1), 0)
    drop_old(table, NOW_MS)
    assert table.find(1) is None
    assert list(table) == [2]
    assert table.encoded() == encode_entries([an_entry(2)])


def test_a_reader_gets_a_copy_and_a_change_goes_to_the_entry_itself() -> None:
    table = table_of(an_entry(1))
    assert table[1] is not table[1]
    entry = table.find(1)
    assert entry is not None and table[1] is entry and table.find(1) is entry
    with pytest.raises(KeyError):
        table[7]


def test_the_entries_of_pieces_are_those_of_their_beginning() -> None:
    """There are as many pieces as for entries in memory: a round of compaction has a slice for each."""
    table = table_of(*map(an_entry, range(5)))
    table.find(3)
    pieces = table.pieces(2)
    found = [next(pieces)]
    table.find(4)
    found += pieces
    assert [len(piece) for piece in found] == [2, 2, 1]
    assert sorted(entry.producer_id for piece in found for entry in piece) == [0, 1, 2, 3, 4]
    assert list(ProducerTable().pieces(2)) == []


@pytest.mark.parametrize(
    ("last_sequence", "last_offset", "delta", "expected"),
    # At offset 0 nothing precedes a batch; at any other one the sequence may have gone back to 0.
    [(4, 4, 4, False), (4, 5, 4, True), (260, 5, 4, True), (260, 4, 4, False)],
)
def test_ps25_whether_a_batch_may_have_earlier_ones_is_known_without_the_entries(
    last_sequence: int, last_offset: int, delta: int, expected: bool
) -> None:
    without, entry = an_entry(1), an_entry(2)
    without.batches = ()
    entry.batches = ((last_sequence, last_offset, delta, NOW_MS),)
    assert rows_of(without, entry).may_have_earlier_batches() is expected


def test_ps11_open_transactions_are_found_without_the_entries() -> None:
    open_one, other = an_entry(3), an_entry(4)
    open_one.transaction_first_offset = 0
    assert rows_of(other, open_one, an_entry(5)).with_open_transactions() == [(3, 0)]
    assert rows_of(other).with_open_transactions() == []


@pytest.mark.parametrize("places", [(14, 38), (14,), (38,)], ids=["both", "last offset", "first offset"])
def test_an_entry_without_a_batch_is_saved_in_one_way(places: tuple[int, ...]) -> None:
    """The bytes are not used as they are where Kafka's code, too, would write others; the entry beside is plain."""
    plain, odd = an_entry(2), bytearray(encode_entries([an_entry(1)]))
    for at in places:
        odd[at : at + 8] = (-7).to_bytes(8, "big", signed=True)
    table = ProducerTable()
    table.load(SnapshotRows(bytes(odd) + encode_entries([plain])))
    # A decoded entry has no batch where its last offset is negative, and no transaction where its first one is.
    assert table.encoded() == encode_entries([*decode_entries(bytes(odd)), plain])
    assert table.encoded() != bytes(odd) + encode_entries([plain])


@pytest.mark.parametrize(
    ("first_offsets", "is_plain"),
    [
        ([], True),
        ([-1, -1, -1], True),
        ([0, 5, 1 << 40], True),
        ([-1, 5, -1], True),
        ([-1, -2, -1], False),
        ([-(1 << 40)], False),
        ([-256, -256], False),
        ([-1, -1 << 63], False),
    ],
)
def test_ps12_a_transaction_with_another_negative_first_offset_is_not_taken_as_it_is(
    first_offsets: list[int], is_plain: bool
) -> None:
    entries = [ProducerStateEntry(pid) for pid in range(len(first_offsets))]
    content = bytearray(encode_entries(entries))
    for row, offset in enumerate(first_offsets):
        content[row * ENTRY_BYTES + 38 : row * ENTRY_BYTES + 46] = offset.to_bytes(8, "big", signed=True)
    rows = SnapshotRows(bytes(content))
    assert (rows._content == bytes(content)) is is_plain
    assert rows.left == len(first_offsets)
