"""The controller compares the sender of a request before it decides, and topics by their ids (G-4, KIP-516)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.events import Request
from cluster.core.messages import (
    NO_BROKER_EPOCH,
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    FetchMetadataRequest,
    Header,
    RegisterBrokerRequest,
    RequestBody,
)
from tests.cluster.controller.setup import T0, ControllerBench


def bench() -> ControllerBench:
    return ControllerBench().unfenced(1, 2)


def asked(bench: ControllerBench, header: Header) -> list[RequestBody]:
    """Return each kind of request that a registered broker sends to the controller."""
    number, epoch = header.broker_id, header.broker_epoch
    return [
        AllocateProducerIdsRequest(header=header, broker_id=number, broker_epoch=epoch),
        AlterPartitionRequest(
            header=header, broker_id=number, broker_epoch=epoch, topic_partition=T0,
            topic_id=bench.topic_id("t"), leader_epoch=0, partition_epoch=0, new_isr=(),
        ),
        BrokerHeartbeatRequest(header=header, broker_id=number, broker_epoch=epoch, metadata_offset=0),
        FetchMetadataRequest(header=header, broker_id=number, offset=0, max_wait_ms=0),
        CreateTopicRequest(header=header, name="u"),
        DeleteTopicRequest(header=header, name="t"),
    ]  # fmt: skip


def errors(bench: ControllerBench, header: Header) -> set[ErrorCode]:
    """Return the errors of all of them, and check that nothing was decided."""
    end = bench.controller.log.end_offset
    found = {bench.ask(body).error for body in asked(bench, header)}  # type: ignore[union-attr]
    assert bench.controller.log.end_offset == end
    return found


def present(bench: ControllerBench) -> Header:
    return bench.header_of(1, bench.controller.image.broker_epoch(1))


def test_g4_no_request_from_another_cluster_is_obeyed() -> None:
    one = bench()
    assert errors(one, replace(present(one), cluster_id="f" * 32)) == {ErrorCode.INCONSISTENT_CLUSTER_ID}


def test_g4_no_request_of_an_earlier_life_is_obeyed() -> None:
    one = bench()
    assert errors(one, replace(present(one), broker_epoch=0)) == {ErrorCode.STALE_BROKER_EPOCH}


def test_g4_no_request_of_another_process_in_the_same_life_is_obeyed() -> None:
    one = bench()
    assert errors(one, replace(present(one), incarnation="other")) == {ErrorCode.STALE_BROKER_EPOCH}


def test_g4_a_broker_that_is_not_registered_yet_reads_the_metadata() -> None:
    one = bench()
    header = Header(broker_id=3, broker_epoch=NO_BROKER_EPOCH, incarnation="new")
    answer = one.ask(FetchMetadataRequest(header=header, broker_id=3, offset=0, max_wait_ms=0))
    assert answer.error is ErrorCode.NONE  # type: ignore[union-attr]


def test_g4_a_registration_with_the_header_of_another_cluster_is_refused() -> None:
    one = bench()
    header = Header(cluster_id="f" * 32, broker_id=3, incarnation="new")
    answer = one.ask(RegisterBrokerRequest(header=header, broker_id=3, incarnation="new", host="h", port=1))
    assert answer.error is ErrorCode.INCONSISTENT_CLUSTER_ID  # type: ignore[union-attr]


def test_g4_a_broker_that_sends_no_header_is_refused() -> None:
    one = bench()
    body = BrokerHeartbeatRequest(broker_id=1, broker_epoch=0, metadata_offset=0)
    (reply,) = one.controller.step(0, Request(call=99, body=body))
    assert isinstance(reply, Reply)
    assert reply.body.error is ErrorCode.INVALID_REQUEST  # type: ignore[union-attr]


def recreated() -> tuple[ControllerBench, str]:
    """Return a controller with a topic that was created twice, and its first id."""
    one = bench()
    first = one.create(assignment=((1, 2),)).topic_id
    one.ask(DeleteTopicRequest(name="t"))
    one.create(assignment=((1, 2),))
    return one, first


@pytest.mark.parametrize("topic_id", ["first", ""])
def test_c1_the_leader_of_the_deleted_topic_does_not_change_the_isr_of_the_next(topic_id: str) -> None:
    one, first = recreated()
    answer = one.alter(1, topic_id=first if topic_id else "")
    assert answer.error is ErrorCode.UNKNOWN_TOPIC_ID
    assert one.partition().isr == (1, 2)


def test_c1_an_offline_log_of_the_deleted_topic_costs_no_place_in_the_isr_of_the_next() -> None:
    one, first = recreated()
    one.heartbeat(2, offline=(T0,), topic_id=first)
    assert one.partition().isr == (1, 2)
    one.heartbeat(2, offline=(T0,))
    assert one.partition().isr == (1,)


def test_ctl3_a_refusal_that_rests_on_a_registration_waits_until_that_is_on_disk() -> None:
    one = bench()
    header = present(one)
    one.step(RegisterBrokerRequest(broker_id=3, incarnation="new", host="h", port=1))
    one.jobs.pop()
    wrong = replace(header, broker_epoch=0)
    call, effects = one.step(
        BrokerHeartbeatRequest(header=wrong, broker_id=1, broker_epoch=0, metadata_offset=0)
    )
    assert [each for each in effects if isinstance(each, Reply)] == []
    one.lose_power_and_restart()
    # Nobody was told of what is lost now.
    assert 3 not in one.controller.image.brokers
    assert not [each for each in one.seen if isinstance(each, Reply) and each.call == call]
