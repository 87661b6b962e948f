"""What a log does in one step is independent of the number of its segments, counted in lines (RD2, RT2, RT9, RO2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storage.log import PartitionLog
from tests.storage.lines import lines_of
from tests.storage.logs import NOW_MS, append_each, filled_log

STEPS: dict[str, Callable[[PartitionLog], object]] = {
    "ap9_an_append": lambda log: append_each(log, 1),
    "ro2_a_roll": lambda log: log.flushes.roll(now_ms=NOW_MS),
    "rd2_a_read": lambda log: log.read(log.log_end_offset // 2, max_size=100),
    "rt9_a_truncation_of_one_segment": lambda log: log.truncate_to(log.log_end_offset - 2, now_ms=NOW_MS),
    "rt2_retention_that_deletes_nothing": lambda log: log.retention.delete_old(NOW_MS),
}


def lines_with(segments: int, step: Callable[[PartitionLog], object]) -> int:
    log = filled_log(segments, segment_batches=1)
    log.marks.update_high_watermark(log.log_end_offset)
    assert len(log.local.segments) >= segments
    return lines_of(lambda: step(log))


@pytest.mark.parametrize("name", STEPS)
def test_rt9_a_step_runs_as_many_lines_with_sixteen_segments_as_with_eight(name: str) -> None:
    few, many = lines_with(8, STEPS[name]), lines_with(16, STEPS[name])
    assert few > 1
    assert many == few, name
