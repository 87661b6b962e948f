"""The segments that a committed read asks for aborted transactions, whatever happened to them before (RD5)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.index.transaction_index import AbortedTransaction
from storage.segment import LogSegment
from storage.segment.segments import LogSegments
from tests.storage.batch.strategies import quick
from tests.storage.logs import new_file_system, open_segment

PLACES = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["roll", "abort", "cut"]), st.just(0)),
        st.tuples(st.sampled_from(["delete", "replace", "replace by one with aborts", "look"]), PLACES),
    ),
    max_size=14,
)


class Followed:
    """Segments, and the base offsets of those that have aborted transactions. The active one alone takes appends."""

    def __init__(self) -> None:
        self.file_system = new_file_system()
        self.segments = LogSegments()
        self.aborting: set[int] = set()
        self.next_base = 0
        self.roll()

    def roll(self) -> None:
        self.segments.add(open_segment(self.file_system, self.next_base))
        self.next_base += 1

    def abort(self, segment: LogSegment) -> None:
        offset = segment.base_offset + len(list(segment.transaction_index.entries()))
        segment.note_aborted(AbortedTransaction(1, offset, offset, offset))
        self.aborting.add(segment.base_offset)

    def remove(self, segment: LogSegment) -> None:
        self.segments.remove(segment.base_offset)
        segment.delete()
        self.aborting.discard(segment.base_offset)

    def replace(self, segment: LogSegment, *, aborts: bool) -> None:
        segment.delete()
        self.aborting.discard(segment.base_offset)
        new = open_segment(self.file_system, segment.base_offset)
        if aborts:
            self.abort(new)
        self.segments.add(new)

    def check(self, first: LogSegment) -> None:
        expected = [
            each
            for each in self.segments
            if each.base_offset >= first.base_offset
            and (each is self.segments.last or each.base_offset in self.aborting)
        ]
        assert list(self.segments.with_transactions_from(first)) == expected


def run(followed: Followed, step: str, place: int) -> None:
    segments = list(followed.segments)
    chosen = segments[min(place, len(segments) - 1)]
    match step:
        case "roll":
            followed.roll()
        case "abort":
            followed.abort(followed.segments.active)
        case "cut" if len(segments) > 1:
            followed.remove(followed.segments.active)
        case "delete" if chosen is not segments[-1]:
            followed.remove(chosen)
        case "replace" | "replace by one with aborts":
            followed.replace(chosen, aborts=step != "replace")
        case "look":
            followed.check(chosen)


@settings(quick, max_examples=30)
@given(STEPS)
def test_rd5_the_segments_with_aborted_transactions_are_found_after_any_changes(
    steps: list[tuple[str, int]],
) -> None:
    followed = Followed()
    for step, place in [("roll", 0), ("abort", 0), ("look", 0), *steps]:
        run(followed, step, place)
    for each in followed.segments:
        followed.check(each)


def test_rd5_an_abort_after_a_look_counts_when_its_segment_is_full() -> None:
    followed = Followed()
    for step in ("look", "abort", "roll", "roll", "look"):
        run(followed, step, 0)
    first, _, last = followed.segments
    assert list(followed.segments.with_transactions_from(first)) == [first, last]


def test_rd5_segments_that_left_are_not_asked() -> None:
    followed = Followed()
    for step, place in (
        ("abort", 0),
        ("roll", 0),
        ("abort", 0),
        ("roll", 0),
        ("look", 0),
        ("delete", 1),
        ("look", 0),
    ):
        run(followed, step, place)
    first, last = followed.segments
    assert list(followed.segments.with_transactions_from(first)) == [first, last]


def test_rd5_a_read_whose_segment_was_cut_off_meanwhile_asks_none_before_it() -> None:
    followed = Followed()
    followed.roll()
    for segment in followed.segments:
        followed.abort(segment)
    first, cut = followed.segments
    followed.remove(cut)
    assert list(followed.segments.with_transactions_from(cut)) == []
    assert list(followed.segments.with_transactions_from(first)) == [first]
