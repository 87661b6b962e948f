"""Ids of idempotent producers are handed out once."""

from __future__ import annotations

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.messages import AllocateProducerIdsResponse, InitProducerIdResponse
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
    ids.on_granted("broker-1", AllocateProducerIdsResponse(first_producer_id=0, count=2))
    ids._granted["broker-2"] = ids._granted["broker-1"]
    ids.on_answer("broker-1", InitProducerIdResponse(producer_id=0, producer_epoch=0))
    ids.on_answer("broker-2", InitProducerIdResponse(error=error, producer_id=second, producer_epoch=0))
    assert [each.checker for each in jury.violations] == ["producer-ids"] * count


@pytest.mark.parametrize(
    ("broker", "producer_id", "count"), [("broker-1", 9, 0), ("broker-1", 10, 1), ("broker-2", 9, 1)]
)
def test_a_broker_hands_out_ids_of_its_own_blocks_only(broker: str, producer_id: int, count: int) -> None:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    ids = ProducerIdsOnce(jury)
    ids.on_granted("broker-1", AllocateProducerIdsResponse(first_producer_id=0, count=10))
    refused = AllocateProducerIdsResponse(error=ErrorCode.NETWORK_EXCEPTION, first_producer_id=0, count=99)
    ids.on_granted("broker-2", refused)
    ids.on_answer(broker, InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))
    assert len(jury.violations) == count


@pytest.mark.parametrize(("first", "count", "is_wrong"), [(9, 10, True), (0, 1, True), (10, 10, False)])
def test_no_id_is_in_two_blocks(first: int, count: int, *, is_wrong: bool) -> None:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    ids = ProducerIdsOnce(jury)
    ids.on_granted("broker-1", AllocateProducerIdsResponse(first_producer_id=0, count=10))
    ids.on_granted("broker-2", AllocateProducerIdsResponse(first_producer_id=first, count=count))
    told = f"broker-2 was granted the ids {first} to {first + count} (excl.); 0 to 10 (excl.) are granted already"
    assert [each.what for each in jury.violations] == [told] * is_wrong
