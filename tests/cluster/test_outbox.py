"""The effects of a step: which of them are not made."""

from __future__ import annotations

import logging

import pytest

from cluster.core.effects import Observe
from cluster.core.outbox import Outbox
from cluster.shell.runtime import log_observation, unlogged_observations


def test_observations_of_hidden_kinds_are_not_made() -> None:
    outbox = Outbox()
    outbox.hidden = frozenset({"replica.appended"})
    outbox.observe("replica.appended", last_offset=1)
    outbox.observe("log.truncated", offset=1)
    assert outbox.take() == [Observe(kind="log.truncated", fields=(("offset", 1),))]


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_hidden_are_the_kinds_that_would_not_be_logged(level: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(level, logger="cluster.shell.runtime"):
        for kind in ("replica.appended", "replica.high_watermark", "produce.acknowledged", "log.truncated"):
            log_observation(Observe(kind=kind))
            is_logged = any(record.getMessage().startswith(kind) for record in caplog.records)
            assert is_logged == (kind not in unlogged_observations()), (level, kind)
