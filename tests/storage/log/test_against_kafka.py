"""The results of real Kafka's log, operation by operation, compared with ours."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from tests.golden.log_operations import Judge, main, read_cases
from tests.places import GOLDEN

CASES = GOLDEN / "log-operations.jsonl"
CASES_A_TEST = 15


@pytest.mark.parametrize("first", range(0, 300, CASES_A_TEST))
def test_appends_reads_truncations_and_compactions_end_as_kafkas_did(first: int, memory_path: Path) -> None:
    judge = Judge(memory_path)
    for case in islice(read_cases(CASES), first, first + CASES_A_TEST):
        assert judge.judge(case) == [], case["id"]
    assert judge.summary == f"{CASES_A_TEST} cases, 0 differ"


def test_each_case_is_in_one_of_the_tests() -> None:
    with CASES.open(encoding="utf-8") as file:
        assert sum(1 for _ in file) == 300


@pytest.mark.slow
def test_every_falsified_field_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(CASES), "--self-test"]) == 0
    assert " 0 unnoticed" in capsys.readouterr().out


def test_a_wrong_case_is_reported_with_its_operation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with CASES.open(encoding="utf-8") as file:
        case = json.loads(file.readline())
    number, operation = next(
        (number, each) for number, each in enumerate(case["ops"]) if "first_offset" in each["kafka"]
    )
    operation["kafka"]["last_offset"] += 1
    (tmp_path / "cases.jsonl").write_text(json.dumps(case))
    assert main([str(tmp_path / "cases.jsonl")]) == 1
    told, summary = capsys.readouterr().out.splitlines()
    assert told.startswith(f"{case['id']} ops[{number}] {operation['op']}.kafka.last_offset: Kafka ")
    assert summary == "1 cases, 1 differ"
