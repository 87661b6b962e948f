"""The sender of a follower's fetch is compared before anything else: cluster, life, process (G-4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.core.effects import Reply, Send
from cluster.core.errors import ErrorCode
from cluster.core.messages import FetchRequest, FetchResponse, Header
from cluster.core.metadata.records import RegisterBrokerRecord
from tests.cluster.broker.setup import BROKER_EPOCH, CLUSTER_ID, BrokerSetup
from tests.cluster.replica.setup import of, only

PRESENT = "2" * 32


def booted() -> tuple[BrokerSetup, Header]:
    """Return broker 1 and the header of broker 2, which it knows."""
    setup = BrokerSetup()
    setup.boot(RegisterBrokerRecord(broker_id=2, incarnation=PRESENT, host="h", port=2))
    broker_epoch = setup.broker.image.broker_epoch(2)
    return setup, Header(cluster_id=CLUSTER_ID, broker_id=2, broker_epoch=broker_epoch, incarnation=PRESENT)


def outcome(setup: BrokerSetup, header: Header | None, *, broker_epoch: int | None = None) -> ErrorCode:
    """Return the error of a fetch of broker 2 with that header."""
    if broker_epoch is None:
        broker_epoch = -1 if header is None else header.broker_epoch
    request = FetchRequest(replica_id=2, broker_epoch=broker_epoch, header=header, partitions=())
    body = only(setup.ask(request), Reply).body
    assert isinstance(body, FetchResponse)
    return body.error


def test_g4_a_fetch_of_a_known_life_is_served_and_that_of_a_newer_one_too() -> None:
    setup, header = booted()
    assert outcome(setup, header) is ErrorCode.NONE
    newer = replace(header, broker_epoch=header.broker_epoch + 5, incarnation="3" * 32)
    assert outcome(setup, newer) is ErrorCode.NONE


def test_g4_a_fetch_from_another_cluster_is_refused() -> None:
    setup, header = booted()
    assert outcome(setup, replace(header, cluster_id="f" * 32)) is ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize("change", [{"broker_epoch": 0}, {"incarnation": "3" * 32}])
def test_g4_a_fetch_of_an_earlier_life_or_of_another_process_is_refused(change: dict[str, object]) -> None:
    setup, header = booted()
    assert outcome(setup, replace(header, **change)) is ErrorCode.STALE_BROKER_EPOCH  # type: ignore[arg-type]


def test_g4_a_follower_without_a_header_or_with_anothers_is_refused() -> None:
    setup, header = booted()
    assert outcome(setup, None) is ErrorCode.INVALID_REQUEST
    assert outcome(setup, replace(header, broker_id=3)) is ErrorCode.INVALID_REQUEST
    assert outcome(setup, header, broker_epoch=header.broker_epoch + 1) is ErrorCode.INVALID_REQUEST


def test_g4_every_request_to_the_controller_has_the_header_of_this_life() -> None:
    setup = BrokerSetup()
    first = [effect.body for effect in of(setup.start(), Send)]
    again = BrokerSetup()
    again.boot()
    later = [effect.body for effect in of(again.fire("broker.heartbeat", 2_000), Send)]
    headers = [body.header for body in (*first, *later)]  # type: ignore[union-attr]
    incarnation = setup.broker.lifecycle.incarnation
    unknown = Header(broker_id=1, incarnation=incarnation)
    known = Header(cluster_id=CLUSTER_ID, broker_id=1, broker_epoch=BROKER_EPOCH, incarnation=incarnation)
    assert first and headers[: len(first)] == [unknown] * len(first)
    assert later and headers[len(first) :] == [known] * len(later)
