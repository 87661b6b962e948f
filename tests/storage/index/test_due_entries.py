"""The batches of a set that get index entries, against a walk batch by batch. Rules LS1, T1, T2."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from storage.batch.columns import BatchColumns
from storage.index.due_entries import IndexEntries
from storage.index.time_index import TimestampOffset

batches = st.lists(
    st.tuples(st.integers(1, 30), st.integers(1, 4), st.integers(-1, 9)), min_size=1, max_size=40
)


@given(batches, st.integers(0, 60), st.integers(0, 60), st.integers(-1, 9))
def test_t1_each_batch_after_more_than_the_interval_has_an_entry(
    rows: list[tuple[int, int, int]], unindexed_bytes: int, interval_bytes: int, most: int
) -> None:
    columns = BatchColumns()
    sizes = [size for size, _, _ in rows]
    columns.starts += [0, *accumulate(sizes[:-1])]
    columns.last_offsets += accumulate(step for _, step, _ in rows)
    columns.max_timestamps += [timestamp for _, _, timestamp in rows]

    expected, counted, greatest = [], unindexed_bytes, (most, 0)
    for start, offset, (size, _, timestamp) in zip(columns.starts, columns.last_offsets, rows, strict=True):
        greatest = (timestamp, offset) if timestamp > greatest[0] else greatest
        if counted > interval_bytes:
            expected.append((offset, 1000 + start, *greatest))
            counted = 0
        counted += size

    entries = IndexEntries()
    found, last_start = entries.find_due(
        columns,
        position=1000,
        unindexed_bytes=unindexed_bytes,
        interval_bytes=interval_bytes,
        greatest=TimestampOffset(most, 0),
    )
    rows_found = zip(entries.offsets, entries.positions, entries.times, entries.time_offsets, strict=True)
    assert list(rows_found) == expected and len(entries) == len(expected)
    assert found == greatest and sum(sizes) - last_start == counted


def test_ls1_only_timestamps_above_all_before_get_a_time_entry() -> None:
    entries = IndexEntries()
    entries.times += [3, 3, 5, 5, 8]
    entries.time_offsets += [1, 1, 4, 4, 9]
    assert entries.rising_times(3) == ([5, 8], [4, 9])
    assert entries.rising_times(-1) == ([3, 5, 8], [1, 4, 9])
