"""What a log does in one step is independent of the number of its segments, counted in lines (RD2, RT2, RT9, RO2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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


def test_rt6_retention_by_size_adds_up_the_segments_once() -> None:
    log = filled_log(8, segment_batches=1)
    log.marks.update_high_watermark(log.log_end_offset)
    log.update_config(replace(log.config, retention_bytes=1 << 30))
    first = lines_of(lambda: log.retention.delete_old(NOW_MS))
    append_each(log, 8)
    assert lines_of(lambda: log.retention.delete_old(NOW_MS)) < first


def test_rt6_the_size_of_a_log_follows_rolls_deletions_and_truncations() -> None:
    log = filled_log(8, segment_batches=1)
    segments = log.local.segments

    def check() -> None:
        assert segments.size_bytes == sum(each.size_bytes for each in segments)

    check()
    append_each(log, 3)
    check()
    log.marks.update_high_watermark(log.log_end_offset)
    log.update_config(replace(log.config, retention_bytes=segments.size_bytes // 2))
    assert log.retention.delete_old(NOW_MS) > 1
    check()
    log.truncate_to(log.log_end_offset - 2, now_ms=NOW_MS)
    check()
    append_each(log, 2)
    check()
    log.truncation.truncate_fully_and_start_at(3, now_ms=NOW_MS)
    check()
