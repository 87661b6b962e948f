"""The file port: each script sees the same on the kernel's file system as on the simulated disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.ports.differences import FILE_DIFFERENCES, Difference, is_documented
from tests.ports.file_cases import FILE_CASES
from tests.ports.file_world import Desk, real_desk, simulated_desk
from tests.ports.short_calls import short_real_desk, short_simulated_desk


def both(script: Callable[[Desk], None]) -> tuple[list[object], list[object]]:
    """What a script sees of the kernel's file system, and of the simulated disk."""
    with real_desk() as real, simulated_desk() as simulated:
        script(real)
        script(simulated)
        return real.seen, simulated.seen


@pytest.mark.parametrize("script", FILE_CASES, ids=lambda script: script.__name__)
def test_both_disks_show_a_script_the_same(script: Callable[[Desk], None]) -> None:
    real, simulated = both(script)
    assert real == simulated
    assert real, "a script that sees nothing compares nothing"


@pytest.mark.parametrize("script", FILE_CASES, ids=lambda script: script.__name__)
def test_calls_that_stop_early_show_a_script_the_same(script: Callable[[Desk], None]) -> None:
    with real_desk() as whole, short_real_desk() as (real, _), short_simulated_desk() as (simulated, _):
        for desk in (real, simulated, whole):
            script(desk)
        assert real.seen == simulated.seen == whole.seen


def test_calls_do_stop_early_where_they_are_told_to() -> None:
    with short_real_desk() as (real, calls), short_simulated_desk() as (simulated, buggify):
        for desk in (real, simulated):
            file = desk.open("a", content=b"0123456789")
            desk.see(file.read_at, 2, 6)
        assert real.seen == simulated.seen == [b"234567"]
        assert calls.count > 2 and buggify.fired == {"read-in-parts": 1, "write-in-parts": 1}


@pytest.mark.parametrize("difference", FILE_DIFFERENCES, ids=lambda each: each.script.__name__)
def test_the_disks_differ_as_the_table_says(difference: Difference) -> None:
    assert both(difference.script) == (difference.real, difference.simulated)
    assert is_documented(difference), difference.script.__name__
