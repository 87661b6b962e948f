"""Counting the lines that a call runs: what a call does for each of many things shows, without a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

STORAGE = str(Path(__file__).parents[2] / "storage")


def lines_of(work: Callable[[], object], folder: str = STORAGE) -> int:
    """Count the lines of code in `folder` that `work` runs. Each turn of a loop counts, in a comprehension too."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(folder):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
