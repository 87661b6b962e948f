"""The directory of a campaign of drawn runs: it is gone on with, never overwritten, and each seed counts once."""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from pathlib import Path

import click
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.drawn_campaign import MOST_SEEDS_A_TASK, chunks
from pipeline.drawn_command import PROFILES, open_results
from pipeline.drawn_results import HEADER, CampaignDirectoryError, ResultsDirectory
from pipeline.drawn_rows import COLUMNS, Row, as_parquet
from pipeline.drawn_seeds import job_of, run_part
from sim.swarm.job import SwarmJob
from sim.swarm.profiles import Profile

JOB = SwarmJob()


def row(seed: int, **more: object) -> Row:
    return {"seed": seed, "verdict": "held", "replay": f"replay {seed}", "excused": {"a reason": 3}} | more


def rows_in(path: Path) -> dict[int, Row]:
    with closing(ResultsDirectory(path, JOB)) as directory:
        return dict(directory.rows)


def test_rows_are_read_back_as_they_were_added(tmp_path: Path) -> None:
    violation = {"checker": "history", "at_ms": 1.5, "what": "lost"}
    rows = [row(3, points=["truncated"], violations=[violation]), row(1, error="e", excused={})]
    with closing(ResultsDirectory(tmp_path / "new", JOB)) as directory:
        directory.add(rows)
        directory.add([row(2)])
    assert rows_in(tmp_path / "new") == {3: rows[0], 1: rows[1], 2: row(2)}


def test_a_seed_that_has_a_row_is_not_added_again(tmp_path: Path) -> None:
    with closing(ResultsDirectory(tmp_path, JOB)) as directory:
        directory.add([row(1)])
        with pytest.raises(AssertionError, match="has a row already"):
            directory.add([row(1)])


def test_a_file_that_a_kill_left_unfinished_counts_for_nothing(tmp_path: Path) -> None:
    with closing(ResultsDirectory(tmp_path, JOB)) as directory:
        directory.add([row(1)])
    (tmp_path / ".part.tmp").write_bytes(as_parquet([row(2)])[:50])
    with closing(ResultsDirectory(tmp_path, JOB)) as directory:
        assert list(directory.rows) == [1]
        directory.add([row(2)])
    assert sorted(rows_in(tmp_path)) == [1, 2]
    assert [path.name for path in sorted(tmp_path.glob("part-*"))] == [
        "part-00000.parquet",
        "part-00001.parquet",
    ]


def test_a_file_that_was_removed_leaves_its_name_free(tmp_path: Path) -> None:
    with closing(ResultsDirectory(tmp_path, JOB)) as directory:
        directory.add([row(1)])
        directory.add([row(2)])
    (tmp_path / "part-00000.parquet").unlink()
    with closing(ResultsDirectory(tmp_path, JOB)) as directory:
        directory.add([row(1)])
    assert sorted(rows_in(tmp_path)) == [1, 2] and (tmp_path / "part-00002.parquet").exists()


def test_a_header_that_a_kill_has_torn_is_written_again(tmp_path: Path) -> None:
    (tmp_path / HEADER).write_text('{"format": "repl')
    assert rows_in(tmp_path) == {}
    assert json.loads((tmp_path / HEADER).read_text())["bug"] is None


@pytest.mark.parametrize(
    "job", [SwarmJob(profile=Profile.EDGE), SwarmJob(only=("kill",)), SwarmJob(is_full=True)]
)
def test_a_directory_of_other_options_is_refused_and_stays(tmp_path: Path, job: SwarmJob) -> None:
    with closing(ResultsDirectory(tmp_path, JOB)) as directory:
        directory.add([row(1)])
    with pytest.raises(CampaignDirectoryError, match="other options"):
        ResultsDirectory(tmp_path, job)
    assert list(rows_in(tmp_path)) == [1]


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_no_campaign_is_never_overwritten(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "mine"
    if kind == "file":
        path.write_text("mine")
    elif kind == "directory":
        path.mkdir()
        (path / "part-00000.parquet").write_bytes(b"mine")
    else:
        path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(CampaignDirectoryError, match="nothing is overwritten"):
        ResultsDirectory(path, JOB)
    assert not (tmp_path / "nowhere").exists() and not (path / HEADER).exists()


def test_two_campaigns_do_not_write_to_one_directory(tmp_path: Path) -> None:
    with (
        closing(ResultsDirectory(tmp_path, JOB)),
        pytest.raises(CampaignDirectoryError, match="another campaign"),
    ):
        ResultsDirectory(tmp_path, JOB)


@pytest.mark.parametrize(
    ("data", "what"),
    [(b"no parquet", "no rows of a campaign"), (as_parquet([row(1)]), "seed 1 has a row in an earlier file")],
)
def test_a_file_that_cannot_be_counted_is_refused(tmp_path: Path, data: bytes, what: str) -> None:
    with closing(ResultsDirectory(tmp_path, JOB)) as directory:
        directory.add([row(1)])
    (tmp_path / "part-00009.parquet").write_bytes(data)
    with pytest.raises(CampaignDirectoryError, match=what):
        ResultsDirectory(tmp_path, JOB)


@pytest.mark.parametrize(
    ("table", "what"),
    [
        (pa.table({"x": [1]}), "other columns"),
        (pa.table({"seed": [5], "operations": [3]}), "other columns"),
        (pa.Table.from_pylist([{"seed": 5}], schema=COLUMNS.remove(2)), "other columns"),
        (pa.Table.from_pylist([{"verdict": "held"}], schema=COLUMNS), "a row without a seed"),
    ],
)
def test_a_foreign_file_of_parquet_is_refused_in_one_line(tmp_path: Path, table: pa.Table, what: str) -> None:
    with closing(ResultsDirectory(tmp_path, JOB)) as directory:
        directory.add([row(1)])
    pq.write_table(table, tmp_path / "part-mine.parquet")
    with pytest.raises(click.UsageError) as raised:
        open_results(tmp_path, JOB)
    assert str(raised.value).startswith(f"{tmp_path / 'part-mine.parquet'}: no rows of a campaign: {what}")
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_header_is_on_the_disk_before_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power loss would otherwise leave rows without it, which no campaign goes on with."""
    synced: list[tuple[str, int]] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor).st_size))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    with closing(ResultsDirectory(tmp_path, JOB)):
        header = tmp_path / HEADER
        assert [path for path, _ in synced] == [str(header), str(tmp_path)]
        assert synced[0][1] == header.stat().st_size > 0


def test_a_key_without_a_column_is_refused() -> None:
    with pytest.raises(ValueError, match="seed 1: no column for surprise"):
        as_parquet([row(1, surprise=2)])


def test_chunks_have_every_seed_once_and_grow() -> None:
    seeds = [*range(5), *range(7, 200)]
    parts = list(chunks(seeds, 4))
    assert [seed for part in parts for seed in part] == seeds
    assert [len(part) for part in parts[:4]] == [4, 8, 16, 32]
    assert max(map(len, chunks(range(1_000), 4))) == 4 * MOST_SEEDS_A_TASK


@pytest.mark.parametrize(
    "job", [JOB, SwarmJob(profile=Profile.WITHIN, only=("kill",), bug="b", is_full=True, buggify=False)]
)
def test_a_job_is_the_same_in_another_process(job: SwarmJob) -> None:
    assert job_of(json.loads(json.dumps(job.identity()))) == job


def test_the_options_name_every_profile() -> None:
    assert list(PROFILES) == [profile.value for profile in Profile]


@pytest.mark.slow
def test_a_row_has_the_keys_and_values_of_the_swarm() -> None:
    job = SwarmJob(bug="ack-before-high-watermark")
    rows = [json.loads(line) for line in run_part(job, [3, 1])]
    assert [each["seed"] for each in rows] == [3, 1]
    for each in rows:
        alone = job.run(each["seed"])
        assert each == json.loads(json.dumps(alone)) | {"signature": each["signature"]}
        assert each.keys() <= set(COLUMNS.names)
    assert any(each["signature"].startswith("acknowledged-committed") for each in rows)


def test_a_process_that_fails_is_an_error_and_not_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="0 of 2 seeds from 7 on: exit status 1"):
        list(run_part(JOB, [7, 8]))


def test_the_process_of_a_task_imports_nothing_from_the_current_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho safe: $PYTHONSAFEPATH\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    assert list(run_part(JOB, [7])) == ["safe: 1"]
