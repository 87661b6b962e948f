"""The file of a campaign: it is gone on with, mended, never overwritten, and each seed counts once."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sim import seeds as seeds_module
from sim.detection.measure import _base_in
from sim.seeds import SeedProcess
from sim.swarm.code import code_digest
from sim.swarm.job import SwarmJob
from sim.swarm.profiles import Profile
from sim.swarm.results import ResultsError, ResultsFile
from sim.swarm.rows import wrong_in_start

JOB = SwarmJob()


def row(seed: int, verdict: str = "held") -> dict[str, object]:
    return {"seed": seed, "verdict": verdict}


def opened(path: Path, job: SwarmJob = JOB, rows: list[dict[str, object]] | None = None) -> ResultsFile:
    """Returns the file, open; `rows` get what it holds."""
    return ResultsFile(path, job, (rows if rows is not None else []).append)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with the rows of the seeds 3 and 4."""
    path = tmp_path / "out.jsonl"
    with closing(opened(path)) as file:
        assert file.seeds == set()
        file.add(row(3))
        file.add(row(4, "starved"))
    return path


def reopened(path: Path, job: SwarmJob = JOB) -> dict[int, dict[str, object]]:
    rows: list[dict[str, object]] = []
    with closing(opened(path, job, rows)) as file:
        found = {int(str(each["seed"])): each for each in rows}
        assert (file.seeds, len(rows)) == (set(found), len(found))
        return found


def test_rows_are_read_again_and_new_ones_come_after_them(path: Path) -> None:
    with closing(opened(path)) as file:
        assert file.seeds == {3, 4}
        file.add(row(9))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.get("seed") for line in lines] == [None, 3, 4, 9]
    assert reopened(path)[4]["verdict"] == "starved"


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_torn_last_line_is_dropped_and_its_seed_is_missing(path: Path, cut: int) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    with closing(opened(path)) as file:
        assert file.seeds == {3}
        file.add(row(4, "starved"))
    assert path.read_bytes() == whole


@pytest.mark.parametrize("size", [0, 1, 10, 40])
def test_a_torn_header_is_written_again(path: Path, size: int) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:size])
    assert reopened(path) == {}
    assert path.read_bytes() == whole.splitlines(keepends=True)[0]


def test_a_file_of_other_code_is_refused_and_stays_as_it_is(path: Path) -> None:
    other = path.read_bytes().replace(code_digest().encode(), b"0123456789abcdef")
    path.write_bytes(other)
    with pytest.raises(ResultsError, match=r"out\.jsonl:1: of a campaign with other code, 0123456789abcdef"):
        opened(path)
    assert path.read_bytes() == other


def test_the_first_row_of_a_seed_counts(path: Path) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row(3, "starved")) + "\n")
    assert reopened(path)[3]["verdict"] == "held"


@pytest.mark.parametrize(
    "job",
    [
        SwarmJob(profile=Profile.EDGE),
        SwarmJob(only=("kill",)),
        SwarmJob(bug="x"),
        SwarmJob(is_full=True),
        SwarmJob(buggify=False),
    ],
)
def test_a_file_of_other_options_is_refused_and_stays(path: Path, job: SwarmJob) -> None:
    before = path.read_bytes()
    with pytest.raises(ResultsError, match=r"out\.jsonl:1: of a campaign with other options"):
        opened(path, job)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "text",
    ["my notes", "my notes\n", '{"seed": 1}\n', "[]\n", '{"format": "other"}\n', "\n"],
)
def test_a_file_of_something_else_is_refused_and_stays(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes"
    path.write_text(text)
    with pytest.raises(ResultsError, match="notes"):
        opened(path)
    assert path.read_text() == text


@pytest.mark.parametrize("line", ["{", "7", '{"seed": "3"}', '{"verdict": "held"}'])
def test_a_damaged_line_in_the_midst_is_named(path: Path, line: str) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], line, *lines[1:], ""]))
    with pytest.raises(ResultsError, match=r"out\.jsonl:2: "):
        opened(path)


@pytest.mark.parametrize(
    ("more", "member"),
    [
        ({"simulated_ms": None}, "simulated_ms"),
        ({"simulated_ms": True}, "simulated_ms"),
        ({"points": 5}, "points"),
        ({"points": [[]]}, "points"),
        ({"buggify": {"x": "y"}}, "buggify"),
        ({"excused": 5}, "excused"),
        ({"verdict": "foo"}, "verdict"),
        ({"verdict": "violated", "replay": "x"}, "violations"),
        ({"verdict": "violated", "replay": "x", "violations": [{"checker": "x"}]}, "violations"),
        ({"verdict": "violated", "violations": [{"checker": "x", "what": "y"}]}, "replay"),
        ({"verdict": "error", "replay": "x"}, "error"),
    ],
)
def test_a_row_that_cannot_be_counted_is_named(path: Path, more: dict[str, object], member: str) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row(5) | more) + "\n")
    before = path.read_bytes()
    with pytest.raises(ResultsError, match=rf"out\.jsonl:4: no row of a seed: '{member}'"):
        opened(path)
    assert path.read_bytes() == before


START = {"verdict": "missed", "bug": "x", "seeds": 3, "cpu_s": 1.5, "false_alarms": 0, "checker": ""}


@pytest.mark.parametrize("member", list(START))
def test_a_start_without_a_member_that_is_counted_is_wrong(member: str) -> None:
    assert wrong_in_start(START) == ""
    assert wrong_in_start({name: value for name, value in START.items() if name != member}) == member
    assert wrong_in_start(START | {member: None}) == member


def test_a_file_that_cannot_be_made_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"none/out\.jsonl: No such file"):
        opened(tmp_path / "none" / "out.jsonl")


@pytest.mark.parametrize("name", ["", "pipe"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ResultsError, match="no regular file"):
        opened(tmp_path / name)


def test_two_campaigns_do_not_write_to_one_file(path: Path) -> None:
    with closing(opened(path)), pytest.raises(ResultsError, match="another campaign writes to it"):
        opened(path)
    assert list(reopened(path)) == [3, 4]


class Waits:
    """A run that has begun when its seed's file is there, and has no end."""

    title = "waits"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def run(self, seed: int) -> dict[str, Any]:
        (self._directory / str(seed)).touch()
        signal.pause()
        raise AssertionError(seed)

    def replay(self, seed: int) -> str:
        return f"replay {seed}"


def test_a_process_of_a_seed_that_outlives_its_campaign_does_not_hold_the_file(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeds_module, "may_fork", lambda: True)
    with closing(opened(path)):
        process = SeedProcess(Waits(tmp_path), 7)
    try:
        while not (tmp_path / "7").exists():
            assert process._process.is_alive()
        assert list(reopened(path)) == [3, 4]
    finally:
        process.end()


@pytest.mark.parametrize(("base", "found"), [("5", 5), ("true", None), ("-1", None), ("1.5", None)])
def test_the_base_of_a_measurement_is_a_whole_number(tmp_path: Path, base: str, found: int | None) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text(f'{{"base": {base}}}\n')
    assert _base_in(path) == found
