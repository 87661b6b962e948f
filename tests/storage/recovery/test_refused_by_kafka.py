"""Directories that Kafka's own log code could not load: here each heals, or is refused, and nothing sound is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.recovery_cases import prepare
from tests.golden.soundness import judge, main, sound_prefix
from tests.places import GOLDEN

CASES = [json.loads(line) for line in (GOLDEN / "refused.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=[f"{case['id']}-{case['kafka']['error']}" for case in CASES])
def test_what_kafka_cannot_load_heals_to_the_longest_sound_prefix_or_is_refused(
    case: dict[str, Any], tmp_path: Path
) -> None:
    verdict, told = judge(case, prepare(case, GOLDEN / "kafka-4.1", tmp_path))
    assert verdict in ("healed", "refused"), told


def test_the_refused_cases_of_the_golden_set_lose_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(GOLDEN / "kafka-4.1"), str(GOLDEN / "recovery.jsonl")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(", 0 lose something sound")


def test_the_judge_notices_a_batch_too_few(tmp_path: Path) -> None:
    case = next(case for case in CASES if case["kafka"]["error"] == "InvalidOffsetException")
    directory = prepare(case, GOLDEN / "kafka-4.1", tmp_path)
    prefix = sound_prefix(directory)
    assert 0 < prefix.end_offset and prefix.content
    assert judge({**case, "log_start_offset": 0}, directory)[0] == "healed"
    log = max(directory.glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    assert sound_prefix(directory).end_offset < prefix.end_offset
