"""Fixtures that the tests of `replog log` share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replog.log_directories import manager
from tests.storage.logs import append_each


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log directory after an orderly stop: t-0 with 10 records, u-0 with 3."""
    logs = manager(tmp_path / "data")
    append_each(logs.create("t", 0), 10)
    append_each(logs.create("u", 0), 3)
    logs.shutdown()
    return tmp_path / "data"
