"""A short run of the differential judge with real Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.damage import KINDS
from tests.interop.differential import run

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_both_recover_newly_drawn_damage_in_the_same_way(tmp_path: Path, kafka: None) -> None:
    assert run(1, 200, KINDS, tmp_path / "root", None) == 0
