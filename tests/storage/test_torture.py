"""The torture of readers beside changes of a log, in short; by hand: `python -m tests.storage.torture`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.logs import batch
from tests.storage.torture import Torn, check_bytes, run


@pytest.mark.slow
def test_fr17_a_minute_of_readers_beside_all_changes_serves_no_torn_byte(tmp_path: Path) -> None:
    assert " 0 torn" in run(tmp_path, 60, seed=7)


def test_the_torture_notices_bytes_of_two_histories() -> None:
    first, second = batch(0, 2), batch(2, 2)
    assert check_bytes(first + second + second[:30], "a.log") == 2
    with pytest.raises(Torn, match="does not match its checksum"):
        check_bytes(first + second[:80] + first[80 : len(second)], "a.log")
    with pytest.raises(Torn, match="offset 0 follows 1"):
        check_bytes(first + first, "a.log")
