"""Logs that a broker should have deleted: those of topics that do not exist any more, or are not placed there."""

from __future__ import annotations

from sim.left_logs import left_logs

ASIDE = "t-0.0123456789abcdef0123456789abcdef-stray"


def test_rol5_a_log_that_is_placed_nowhere_is_found_and_files_are_not() -> None:
    names = ["t-0", "u-1", ASIDE, ASIDE.replace("stray", "delete"), "meta.properties", ".lock"]
    assert list(left_logs(iter(names), {"u-1"})) == ["t-0"]
    assert list(left_logs(iter(names), {"t-0", "u-1"})) == []
