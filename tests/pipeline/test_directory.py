"""The plan of a read, without Spark: which topics, which offsets, which segments."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.directory import partitions_of, segment_ranges, topic_filter
from pipeline.errors import SourceError
from sim.seed_range import Seeds
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import CorruptCheckpoint
from storage.log import PartitionLog
from tests.storage.logs import NOW_MS, THREE, append_each


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


def test_without_fail_on_data_loss_an_interrupted_compaction_leaves_the_segments_that_have_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(tmp_path, ["t-0/00000000000000000000.log.swap", "t-0/00000000000000000009.log"])
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    ranges = segment_ranges(OsFileSystem(), root, {"failondataloss": "false"})
    assert [each.base_offset for each in ranges] == [9]


def test_without_fail_on_data_loss_a_damaged_checkpoint_counts_as_none(tmp_path: Path) -> None:
    root = make(tmp_path, ["t-0/00000000000000000000.log"])
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 x\n")
    with pytest.raises(CorruptCheckpoint, match="log-start-offset-checkpoint line 3"):
        segment_ranges(OsFileSystem(), root, {})
    (wanted,) = segment_ranges(OsFileSystem(), root, {"failondataloss": "false"})
    assert (wanted.base_offset, wanted.start_offset) == (0, 0)


def test_two_folders_are_never_read_as_one_partition(tmp_path: Path) -> None:
    names = [f"{folder}/00000000000000000000.log" for folder in ("t-0", "t-00", "u-0")]
    root = make(tmp_path, names)
    line = f"^{tmp_path}/t-00: the folder of partition 0 of t is called t-0: move it away$"
    with pytest.raises(SourceError, match=line):
        segment_ranges(OsFileSystem(), root, {})
    assert [each.topic for each in segment_ranges(OsFileSystem(), root, {"subscribe": "u"})] == ["u"]


@pytest.mark.parametrize("named", ["t-1", "u-0"])
@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_an_offset_of_a_partition_that_is_not_read_is_refused(
    tmp_path: Path, option: str, named: str
) -> None:
    root = make(tmp_path, ["t-0/00000000000000000000.log", "u-0/00000000000000000000.log"])
    topic, partition = named.split("-")
    options = {"subscribe": "t", option.lower(): f'{{"{topic}": {{"{partition}": 0}}}}'}
    with pytest.raises(SourceError, match=rf"^option {option}: {named} is not among the partitions to read$"):
        segment_ranges(OsFileSystem(), root, options)


@pytest.fixture(params=[False, True], ids=["sized", "preallocated"])
def cut(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A log of the offsets 3 to 6, of which retention has deleted the first segment; as a running node has it."""
    config = replace(THREE, preallocate=request.param)
    log = PartitionLog.open(OsFileSystem(), f"{tmp_path}/t-0", config, clean=True, now_ms=NOW_MS)
    append_each(log, 7)
    (tmp_path / "t-0" / "00000000000000000000.log").unlink()
    log.close_handles()
    return str(tmp_path)


@pytest.mark.parametrize("start", [2, 8])
def test_a_start_that_the_log_does_not_have_is_lost_data(cut: str, start: int) -> None:
    options = {"startingoffsets": f'{{"t": {{"0": {start}}}}}'}
    line = f"^t-0: asked to start at offset {start}, but it has offsets 3 to 7 [(]exclusive[)]; "
    with pytest.raises(SourceError, match=line):
        segment_ranges(OsFileSystem(), cut, options)
    tolerant = segment_ranges(OsFileSystem(), cut, options | {"failondataloss": "false"})
    assert [each.base_offset for each in tolerant] == ([3, 6] if start == 2 else [6])


@pytest.mark.parametrize("start", [None, -2, 3, 6, 7])
def test_a_log_that_begins_above_zero_is_read_from_there(cut: str, start: int | None) -> None:
    options = {} if start is None else {"startingoffsets": f'{{"t": {{"0": {start}}}}}'}
    bases = [each.base_offset for each in segment_ranges(OsFileSystem(), cut, options)]
    assert bases == ([6] if start in (6, 7) else [3, 6])


def test_a_start_beyond_damage_is_left_to_the_task_that_finds_it(tmp_path: Path) -> None:
    root = make(tmp_path, [])
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(bytes(8) + b"\xff" * 60)
    (wanted,) = segment_ranges(OsFileSystem(), root, {"startingoffsets": '{"t": {"0": 9}}'})
    assert wanted.start_offset == 9


def test_a_directory_of_another_level_is_refused(tmp_path: Path) -> None:
    make(tmp_path, ["node-1/t-0/00000000000000000000.log"])
    with pytest.raises(
        SourceError, match=rf"^{tmp_path} is no log directory: it has no folder TOPIC-PARTITION$"
    ):
        segment_ranges(OsFileSystem(), str(tmp_path), {})
    partition, above = tmp_path / "node-1" / "t-0", tmp_path / "node-1"
    with pytest.raises(SourceError, match=f"^{partition} is one partition: load the directory {above}$"):
        segment_ranges(OsFileSystem(), str(partition), {})


@pytest.mark.parametrize("own", ["meta.properties", ".lock", "t-0/00000000000000000000.log"])
def test_a_log_directory_without_the_wanted_records_is_read(tmp_path: Path, own: str) -> None:
    assert segment_ranges(OsFileSystem(), make(tmp_path, [own]), {"subscribe": "nowhere"}) == []


def test_a_link_to_nothing_and_a_topic_that_is_deleted_meanwhile_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(tmp_path, ["t-0/00000000000000000000.log"])
    (tmp_path / "a-0").symlink_to(tmp_path / "nowhere")
    (tmp_path / "gone-0").mkdir()
    listed = OsFileSystem.list

    def deletes(file_system: OsFileSystem, path: str) -> list[str]:
        if path.endswith("gone-0"):
            (tmp_path / "gone-0").rmdir()
        return listed(file_system, path)

    monkeypatch.setattr(OsFileSystem, "list", deletes)
    assert [each.topic for each in segment_ranges(OsFileSystem(), root, {})] == ["t"]
