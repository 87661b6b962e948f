"""The file port: each script sees the same on the kernel's file system as on the simulated disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.ports.differences import FILE_DIFFERENCES, Difference, is_documented
from tests.ports.file_cases import FILE_CASES
from tests.ports.file_world import Desk, real_desk, simulated_desk


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


@pytest.mark.parametrize("difference", FILE_DIFFERENCES, ids=lambda each: each.script.__name__)
def test_the_disks_differ_as_the_table_says(difference: Difference) -> None:
    assert both(difference.script) == (difference.real, difference.simulated)
    assert is_documented(difference), difference.script.__name__
