"""Measures Kafka's own log in the same run, if `tools/kafka-judge` can run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import final

SCRIPT = Path(__file__).parents[1] / "tools" / "kafka-judge"


def absence() -> str | None:
    """Returns the reason why Kafka cannot be measured here; None if it can."""
    answer = subprocess.run([sys.executable, str(SCRIPT), "available"], capture_output=True, text=True)
    return None if answer.returncode == 0 else answer.stdout.strip()


def _ask(*arguments: str) -> list[dict[str, float]]:
    answer = subprocess.run(
        [sys.executable, str(SCRIPT), "bench", *arguments], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in answer.stdout.splitlines()]


def recovery_mb_s(directory: Path) -> float:
    """Measure LogSegment.recover over the segment in `directory`; returns the best of several passes."""
    return _ask("recover", str(directory))[0]["recover_mb_s"]


@final
class LeaderAppends:
    """A Kafka process that appends `megabytes` (of 2^20 bytes) as a leader at each `pass_mb_s`; `with` ends it."""

    def __init__(self, megabytes: int, directory: Path) -> None:
        command = [sys.executable, str(SCRIPT), "bench", "leader", str(megabytes), str(directory)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> LeaderAppends:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def pass_mb_s(self, batch_bytes: int) -> tuple[float, int]:
        """Append once; returns MB (of 10^6 bytes) a second and the number of records in a batch."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{batch_bytes}\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        return found["leader_mb_s"], found["records"]
