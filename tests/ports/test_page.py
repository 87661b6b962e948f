"""docs/ports.md names scripts that exist, and every difference that is meant."""

from __future__ import annotations

import re

from tests.ports.call_cases import CALL_CASES
from tests.ports.differences import FILE_DIFFERENCES, PAGE
from tests.ports.file_cases import FILE_CASES
from tests.ports.limit_cases import LIMIT_CASES, SIZE_CASES

SCRIPTS = {script.__name__ for script in (*FILE_CASES, *CALL_CASES, *LIMIT_CASES, *SIZE_CASES)}
DIFFERENCES = {each.script.__name__ for each in FILE_DIFFERENCES}


def test_every_script_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(\w+_\w+_\w+_\w+)`", PAGE.read_text()))
    assert len(named) > 12
    assert named <= SCRIPTS | DIFFERENCES, named - SCRIPTS - DIFFERENCES
