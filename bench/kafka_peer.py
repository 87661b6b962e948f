"""Kafka's own log measured in the same run, where `tools/kafka-judge` can ask it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "tools" / "kafka-judge"


def absence() -> str | None:
    """Why Kafka cannot be measured here; None where it can."""
    answer = subprocess.run([sys.executable, str(SCRIPT), "available"], capture_output=True, text=True)
    return None if answer.returncode == 0 else answer.stdout.strip()


def _ask(*arguments: str) -> list[dict[str, float]]:
    answer = subprocess.run(
        [sys.executable, str(SCRIPT), "bench", *arguments], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in answer.stdout.splitlines()]


def recovery_mb_s(directory: Path) -> float:
    """LogSegment.recover over the segment that lies there, the best of several passes."""
    return _ask("recover", str(directory))[0]["recover_mb_s"]


def append_mb_s(megabytes: int, directory: Path) -> list[dict[str, float]]:
    """One a batch size: `leader_mb_s`, `follower_mb_s`, `records` in a batch."""
    return _ask(str(megabytes), str(directory))
