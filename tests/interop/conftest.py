"""A fixture for tests that ask real Kafka."""

from __future__ import annotations

import pytest

from tests.interop import judge


@pytest.fixture(scope="session")
def kafka() -> None:
    """Skip, with the reason, if Kafka cannot be asked."""
    if reason := judge.absence():
        pytest.skip(reason)
