"""The results of real Kafka's log code on damaged directories, compared with ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.recovery_cases import Judge, Options, main, read_cases
from tests.places import GOLDEN

CASES = tuple(read_cases(GOLDEN / "recovery.jsonl", Options()))
SOURCES = sorted({case["source"] for case in CASES})

ARGUMENTS = [str(GOLDEN / "kafka-4.1"), str(GOLDEN / "recovery.jsonl")]
# The case files are chosen by every option: topics, damage, fields.
SLICE = [
    "--sources",
    "shapes-none,shapes-gzip,index-full-rolls,empty",
    "--without-damage-to",
    "cleaned,swap,deleted,snapshot",
    "--ignore",
    "snapshots",
]


@pytest.mark.slow
def test_the_cases_of_this_slice_end_as_kafkas_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ARGUMENTS, *SLICE]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "64 cases, 0 differ, 1 refused by Kafka"


@pytest.mark.parametrize("source", SOURCES)
def test_ls10_a_damaged_log_is_recovered_to_what_kafka_recovered(source: str, memory_path: Path) -> None:
    differences: list[str] = []
    judge = Judge(GOLDEN / "kafka-4.1", memory_path, Options(), write=differences.append)
    for case in CASES:
        if case["source"] == source:
            judge.judge(case)
    assert judge.cases > 0
    assert (judge.differing, judge.unhealed, differences) == (0, 0, [])


def test_four_hundred_damaged_logs_are_compared_of_which_kafka_refused_thirteen() -> None:
    assert len(CASES) == 400
    assert sum("error" in case["kafka"] for case in CASES) == 13


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], SLICE, ["--ignore", "producers,snapshots"]])
def test_every_falsified_field_is_noticed(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ARGUMENTS, *options, "--self-test"]) == 0
    assert " 0 unnoticed" in capsys.readouterr().out


def test_cases_are_chosen_by_topic_and_by_what_was_damaged() -> None:
    def chosen(**fields: frozenset[str] | tuple[str, ...]) -> list[str]:
        options = Options(**fields)  # type: ignore[arg-type]
        return [case["id"] for case in read_cases(GOLDEN / "recovery.jsonl", options)]

    assert chosen() == [case["id"] for case in CASES]
    assert 0 < len(chosen(sources=frozenset({"empty"}))) < 20
    assert 0 < len(chosen(without_damage_to=("swap", "index"))) < len(CASES)


def test_an_unknown_thing_to_ignore_is_refused() -> None:
    with pytest.raises(SystemExit) as caught:
        main([*ARGUMENTS, "--ignore", "everything"])
    assert caught.value.code == 2
