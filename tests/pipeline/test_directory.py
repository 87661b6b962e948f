"""The plan of a read, without Spark: which topics, which offsets, which segments."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pipeline.directory import (
    EARLIEST,
    LATEST,
    SourceError,
    offset_bound,
    partitions_of,
    segment_ranges,
    topic_filter,
)
from sim.seed_range import Seeds
from storage.disk.os_filesystem import OsFileSystem


def make(directory: Path, names: list[str]) -> str:
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return str(directory)


def test_partition_directories_are_found_by_kafkas_naming(tmp_path: Path) -> None:
    root = make(
        tmp_path,
        ["foo.bar-1-0/a", "t-2/a", f"t-3.{'0' * 32}-delete/a", "recovery-point-offset-checkpoint", "x/a"],
    )
    found = [(topic, partition) for topic, partition, _ in partitions_of(OsFileSystem(), root)]
    assert found == [("foo.bar-1", 0), ("t", 2)]


def test_only_one_way_to_name_topics_may_be_given() -> None:
    with pytest.raises(SourceError, match="only one of"):
        topic_filter({"subscribe": "a", "assign": "{}"})


@pytest.mark.parametrize(
    "options", [{"subscribe": "a, b"}, {"subscribepattern": "a|b"}, {"assign": '{"a": [0], "b": [0]}'}]
)
def test_topics_are_named_as_in_kafkas_source(options: dict[str, str]) -> None:
    wanted = topic_filter(options)
    assert [wanted(topic, 0) for topic in ("a", "b", "ab")] == [True, True, False]


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(SourceError, match="subscribePattern"):
        topic_filter({"subscribepattern": "("})


def test_offsets_are_given_by_word_or_by_json() -> None:
    assert offset_bound({"startingoffsets": "earliest"}, "startingOffsets", LATEST)("t", 0) == EARLIEST
    by_json = offset_bound({"endingoffsets": '{"t": {"0": 7}}'}, "endingOffsets", LATEST)
    assert (by_json("t", 0), by_json("t", 1)) == (7, LATEST)


def test_segments_outside_the_offsets_are_not_planned(tmp_path: Path) -> None:
    root = make(tmp_path, [f"t-0/{base:020d}.log" for base in (0, 10, 20)])
    ranges = segment_ranges(
        OsFileSystem(), root, {"startingoffsets": '{"t": {"0": 12}}', "endingoffsets": '{"t": {"0": 20}}'}
    )
    assert [(r.base_offset, r.start_offset, r.end_offset, r.is_last) for r in ranges] == [(10, 12, 20, False)]


def test_records_below_the_log_start_checkpoint_are_not_read(tmp_path: Path) -> None:
    root = make(tmp_path, [f"t-0/{base:020d}.log" for base in (0, 10)])
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 17\n")
    assert [(r.base_offset, r.start_offset) for r in segment_ranges(OsFileSystem(), root, {})] == [(10, 17)]


@pytest.mark.parametrize("text", ["", "3", "5..5", "7..3", "a..b", "1...2"])
def test_seeds_that_are_no_range_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="seeds"):
        Seeds.parse(text)


def test_the_end_of_a_seed_range_is_excluded() -> None:
    assert Seeds.parse("3..7") == Seeds(first=3, end=7)


def test_a_task_reads_up_to_the_next_segment_although_a_compaction_joins_them(tmp_path: Path) -> None:
    root = make(tmp_path, ["t-0/00000000000000000000.log", "t-0/00000000000000000004.log"])
    ranges = segment_ranges(OsFileSystem(), root, {})
    assert [(each.base_offset, each.end_offset) for each in ranges] == [(0, 4), (4, 1 << 63)]
    bound = segment_ranges(OsFileSystem(), root, {"endingoffsets": '{"t": {"0": 3}}'})
    assert [(each.base_offset, each.end_offset) for each in bound] == [(0, 3)]


def test_a_read_is_planned_when_a_swap_of_segments_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(tmp_path, ["t-0/00000000000000000000.log.swap", "t-0/00000000000000000009.log"])
    looks: list[float] = []

    def ends(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            (tmp_path / "t-0" / "00000000000000000000.log.swap").rename(
                tmp_path / "t-0" / "00000000000000000000.log"
            )

    monkeypatch.setattr(time, "sleep", ends)
    assert [each.base_offset for each in segment_ranges(OsFileSystem(), root, {})] == [0, 9]
    assert len(looks) == 3


def test_a_swap_that_never_ends_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make(tmp_path, ["t-0/00000000000000000000.log.swap"])
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with pytest.raises(SourceError, match=r"t-0: a compaction was interrupted"):
        segment_ranges(OsFileSystem(), root, {})
