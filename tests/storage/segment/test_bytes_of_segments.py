"""The bytes of all segments together, which are added up once and followed from then on (RT6)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.segment.segments import LogSegments
from tests.storage.batch.strategies import quick
from tests.storage.logs import append_batch, batch, new_file_system, open_segment

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "append", "append", "remove", "ask", "clear"]), st.integers(0, 4)
    ),
    max_size=12,
)


@settings(quick, max_examples=25)
@given(STEPS)
def test_rt6_the_bytes_of_a_log_are_those_of_its_segments_after_any_changes(
    steps: list[tuple[str, int]],
) -> None:
    file_system, segments = new_file_system(), LogSegments()
    for step, base_offset in steps:
        match step:
            case "add":
                before = segments.get(base_offset)
                if before is not None:
                    before.delete()
                new = open_segment(file_system, base_offset)
                if base_offset % 2:
                    append_batch(new, batch(base_offset))
                assert segments.add(new) is before
            case "append" if segments.last is not None:
                append_batch(segments.active, batch(segments.active.base_offset))
            case "remove":
                segments.remove(base_offset)
            case "clear":
                segments.clear()
            case _:
                assert segments.size_bytes == sum(each.size_bytes for each in segments)
    assert segments.size_bytes == sum(each.size_bytes for each in segments)


def test_rt6_a_segment_that_takes_the_place_of_the_last_one_counts_in_its_place() -> None:
    file_system, segments = new_file_system(), LogSegments()
    for base_offset in (0, 1):
        append_batch(open_segment(file_system, base_offset), batch(base_offset))
        segments.add(open_segment(file_system, base_offset, file_already_exists=True))
    old = segments.active
    assert segments.size_bytes == 2 * old.size_bytes
    file_system.unlink(old.path)
    assert segments.add(open_segment(file_system, 1)) is old
    assert segments.size_bytes == old.size_bytes
    segments.remove(1)
    assert segments.size_bytes == old.size_bytes
