"""The paths of a log's segments: those of a listing of all names, however the names have changed before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sim.witness.segment_paths import SegmentPaths, segment_names
from storage.disk.filesystem import join

BASES = [f"{base:020}" for base in (0, 3, 7, 12, 31)]
SUFFIXES = (".log", ".index", ".log.swap", ".log.cleaned", ".log.deleted", ".snapshot")
NAMES = [base + suffix for base in BASES for suffix in SUFFIXES] + [
    "leader-epoch-checkpoint",
    "partition.metadata",
]


@given(st.lists(st.sets(st.sampled_from(NAMES)), min_size=1, max_size=12))
def test_the_paths_are_those_of_a_new_listing(listings: list[set[str]]) -> None:
    paths = SegmentPaths("data/t-0")
    for listing in listings:
        names = sorted(listing)
        assert list(paths.among(names)) == [join("data/t-0", name) for name in segment_names(names)]


@given(st.lists(st.sampled_from(NAMES[:-2]), max_size=30))
def test_the_paths_are_those_of_a_new_listing_as_names_come_and_go(changes: list[str]) -> None:
    paths, present = SegmentPaths("d"), set(NAMES[-2:])
    for name in changes:
        present ^= {name}
        names = sorted(present)
        assert list(paths.among(names)) == [join("d", each) for each in segment_names(names)]


def test_ll28_swaps_count_as_segments_unless_one_is_not_complete() -> None:
    log, swap, cleaned = BASES[0] + ".log", BASES[1] + ".log.swap", BASES[2] + ".log.cleaned"
    paths = SegmentPaths("d")
    assert list(paths.among([log, swap])) == [f"d/{log}", f"d/{swap}"]
    assert list(paths.among([log, swap, cleaned])) == [f"d/{log}"]
    assert list(paths.among([log, swap])) == [f"d/{log}", f"d/{swap}"]
