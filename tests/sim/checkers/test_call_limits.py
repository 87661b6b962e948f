"""How long brokers and clients wait for the answers to their calls."""

from __future__ import annotations

import pytest

from cluster.core.client.config import ConsumerConfig
from cluster.core.client.consumer import ConsumerCore
from cluster.core.config import BrokerConfig
from cluster.core.effects import Send
from cluster.core.messages import (
    AllocateProducerIdsRequest,
    BrokerHeartbeatRequest,
    FetchMetadataRequest,
    FetchRequest,
    RegisterBrokerRequest,
    RequestBody,
)
from sim.checkers.base import Jury
from sim.checkers.call_limits import CallLimits, most_of_broker
from sim.checkers.ghost import Ghost

CONFIG = BrokerConfig(
    node_id=1,
    broker_session_timeout_ms=900,
    broker_heartbeat_interval_ms=300,
    replica_fetch_wait_max_ms=200,
    replica_socket_timeout_ms=3_000,
    controller_socket_timeout_ms=5_000,
)


def judged(core: object, body: RequestBody, timeout_ms: int) -> list[str]:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    CallLimits(jury).on_sent("broker-1", core, Send(to=0, call=1, body=body, timeout_ms=timeout_ms))
    return [each.what for each in jury.violations]


@pytest.mark.parametrize(
    ("body", "most_ms"),
    [
        (BrokerHeartbeatRequest(broker_id=1, broker_epoch=1, metadata_offset=0), 450),
        (RegisterBrokerRequest(broker_id=1, incarnation="a", host="h", port=1), 450),
        (FetchMetadataRequest(broker_id=1, offset=0), 650),
        (FetchRequest(replica_id=1, partitions=()), 3_000),
        (AllocateProducerIdsRequest(broker_id=1, broker_epoch=1), 5_000),
    ],
)
def test_l1_a_lost_call_of_a_broker_leaves_time_for_another_one(body: RequestBody, most_ms: int) -> None:
    assert most_of_broker(CONFIG, body) == most_ms


def test_pro8_a_fetch_takes_no_less_than_its_receiver_may_wait() -> None:
    core = ConsumerCore(ConsumerConfig(request_timeout_ms=700))
    fetch = FetchRequest(replica_id=-1, max_wait_ms=500, partitions=())
    assert judged(core, fetch, 700) == judged(core, fetch, 500) == []
    assert judged(core, fetch, 499) != []
    assert judged(core, fetch, 701) != []
