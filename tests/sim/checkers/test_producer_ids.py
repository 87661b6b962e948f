"""Ids of idempotent producers are handed out once."""

from __future__ import annotations

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.messages import InitProducerIdResponse
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.producer_ids import ProducerIdsOnce


@pytest.mark.parametrize(
    ("second", "error", "count"),
    [(1, ErrorCode.NONE, 0), (0, ErrorCode.NONE, 1), (0, ErrorCode.NETWORK_EXCEPTION, 0)],
)
def test_an_id_is_handed_out_once_by_all_brokers(second: int, error: ErrorCode, count: int) -> None:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    ids = ProducerIdsOnce(jury)
    ids.on_answer("broker-1", InitProducerIdResponse(producer_id=0, producer_epoch=0))
    ids.on_answer("broker-2", InitProducerIdResponse(error=error, producer_id=second, producer_epoch=0))
    assert [each.checker for each in jury.violations] == ["producer-ids"] * count
