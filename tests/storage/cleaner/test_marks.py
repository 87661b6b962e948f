"""Notes of the first pass of a round for the second."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.batch import Record, RecordBatch, build_batch
from storage.cleaner import marks as cleaner_marks
from storage.cleaner.marks import KEPT, SUPERSEDED, TOMBSTONE, WITHOUT_KEY, DirtyMarks
from tests.storage.batch.strategies import quick
from tests.storage.cleaner.compacted_logs import COMPACTED, CleanedLog, Put
from tests.storage.logs import NOW_MS


def batch_of(*offsets: int) -> RecordBatch:
    data = build_batch([Record(each, NOW_MS, b"k", b"v") for each in offsets], base_offset=offsets[0])
    return RecordBatch(data, 0, len(data))


def test_marks_say_whether_a_batch_stays_whole_or_is_removed() -> None:
    marks = DirtyMarks(10, 20)
    for offset in (10, 12):
        marks.note(offset, KEPT, -1)
    assert marks.all_kept(batch_of(10, 12)) is True
    marks.note(14, KEPT, 12)
    assert marks.bytes[2] == SUPERSEDED
    assert marks.all_kept(batch_of(10, 12)) is None
    marks.note(11, WITHOUT_KEY, 10)
    assert marks.all_kept(batch_of(10, 11, 12)) is False


def test_tombstones_and_unmarked_records_have_to_be_read() -> None:
    marks = DirtyMarks(10, 20)
    marks.note(10, KEPT, -1)
    marks.note(11, TOMBSTONE, -1)
    assert marks.all_kept(batch_of(10, 11)) is None
    assert marks.all_kept(batch_of(10, 13)) is None
    assert marks.all_kept(batch_of(9, 10)) is None
    assert marks.all_kept(batch_of(10, 25)) is None
    empty = batch_of(10)
    empty.record_count = 0
    assert marks.all_kept(empty) is None


def test_too_many_offsets_are_not_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner_marks, "MAX_OFFSETS", 5)
    marks = DirtyMarks(0, 6)
    marks.note(3, KEPT, 2)
    assert (len(marks.bytes), marks.all_kept(batch_of(3))) == (0, None)


puts = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.none() | st.just("v")), min_size=1, max_size=4), max_size=12
)


@quick
@given(puts, puts, st.integers(3, 9))
def test_marks_do_not_change_the_result_of_a_round(
    first: list[list[Put]], second: list[list[Put]], slots: int
) -> None:
    def cleaned(max_offsets: int) -> list[bytes]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cleaner_marks, "MAX_OFFSETS", max_offsets)
            log = CleanedLog(replace(COMPACTED, segment_bytes=300))
            dirty = 0
            for part in (first, second):
                for group in part:
                    log.put(*group, producer_id=len(group))
                log.roll()
                if log.log.local.segments.active.base_offset > dirty:
                    dirty = log.clean(dirty, slots=slots, now_ms=NOW_MS + dirty)
            return [batch.tobytes() for batch in log.batches()]

    assert cleaned(1 << 26) == cleaned(0)


def test_cl15_a_mark_decides_whether_a_batch_of_one_record_stays() -> None:
    marks = DirtyMarks(10, 20)
    marks.note(10, WITHOUT_KEY, -1)
    marks.note(11, KEPT, -1)
    marks.note(12, KEPT, 11)
    marks.note(13, TOMBSTONE, -1)
    assert [marks.all_kept(batch_of(offset)) for offset in range(10, 15)] == [False, False, True, None, None]
