"""The admin core: one rule a test."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cluster.core.client.admin import AdminCore
from cluster.core.client.config import AdminConfig
from cluster.core.client.effects import AdminEffect, Answered, Described
from cluster.core.effects import BOOTSTRAP, Send, SetTimer
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.events import Response, TimerFired, TransportError
from cluster.core.messages import (
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    MetadataRequest,
    MetadataResponse,
    ResponseBody,
)
from cluster.core.refusals import refusal
from tests.cluster.client.fake_cluster import FakeCluster

WAKE = TimerFired(key="admin.wake")
CREATE = CreateTopicRequest(name="t")

UNSERVED = TransportError(reason="no broker serves", is_unserved=True)


def sends(effects: Sequence[AdminEffect]) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send)]


def test_a_call_reaches_the_bootstrap_address_and_its_answer_returns() -> None:
    admin = AdminCore(AdminConfig())
    (send,) = sends(admin.ask(0, CREATE, ticket=5))
    assert (send.to, send.body) == (BOOTSTRAP, CREATE)
    body = CreateTopicResponse(topic_id="x")
    assert admin.step(0, Response(call=send.call, body=body)) == [Answered(ticket=5, body=body)]


def test_refusal_is_an_answer() -> None:
    admin = AdminCore(AdminConfig())
    (send,) = sends(admin.ask(0, CREATE, ticket=5))
    body = CreateTopicResponse(error=ErrorCode.TOPIC_ALREADY_EXISTS, message="there")
    (answered,) = admin.step(0, Response(call=send.call, body=body))
    assert isinstance(answered, Answered)
    assert (answered.error, answered.message) == (ErrorCode.TOPIC_ALREADY_EXISTS, "there")


def test_unknown_topic_is_an_answer_and_not_tried_again() -> None:
    admin = AdminCore(AdminConfig())
    (send,) = sends(admin.ask(0, DeleteTopicRequest(name="t"), ticket=5))
    body = DeleteTopicResponse(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    (answered,) = admin.step(0, Response(call=send.call, body=body))
    assert isinstance(answered, Answered)


def test_call_without_an_answer_is_tried_again_after_the_back_off() -> None:
    admin = AdminCore(AdminConfig())
    (send,) = sends(admin.ask(0, CREATE, ticket=5))
    effects = admin.step(0, Response(call=send.call, body=TransportError(reason="cut")))
    assert effects == [SetTimer(key="admin.wake", at_ms=100)]
    assert sends(admin.step(100, WAKE))


def test_a_broker_that_is_starting_is_no_answer_and_another_is_asked() -> None:
    admin = AdminCore(AdminConfig())
    (send,) = sends(admin.ask(0, MetadataRequest(), ticket=5))
    starting = MetadataResponse(error=ErrorCode.BROKER_NOT_AVAILABLE)
    assert admin.step(0, Response(call=send.call, body=starting)) == [SetTimer(key="admin.wake", at_ms=100)]
    assert sends(admin.step(100, WAKE))


def test_call_is_given_up_after_its_time_with_the_last_reason() -> None:
    admin = AdminCore(AdminConfig(default_api_timeout_ms=150))
    (send,) = sends(admin.ask(0, CREATE, ticket=5))
    admin.step(10, Response(call=send.call, body=CreateTopicResponse(error=ErrorCode.NOT_CONTROLLER)))
    (again,) = sends(admin.step(110, WAKE))
    admin.step(149, Response(call=again.call, body=TransportError(reason="cut")))
    (answered,) = admin.step(250, WAKE)
    expected = Answered(ticket=5, body=None, error=ErrorCode.NETWORK_EXCEPTION, message="cut")
    assert answered == expected


def test_addresses_of_which_none_is_a_brokers_are_told_at_once() -> None:
    admin = AdminCore(AdminConfig())
    (send,) = sends(admin.ask(0, MetadataRequest(), ticket=5))
    (answered,) = admin.step(0, Response(call=send.call, body=UNSERVED))
    assert answered == Answered(
        ticket=5, body=None, error=ErrorCode.INVALID_REQUEST, message="no broker serves"
    )
    (send,) = sends(admin.describe(0, ticket=6))
    (described,) = admin.step(0, Response(call=send.call, body=UNSERVED))
    assert isinstance(described, Described)
    assert (described.error, described.message) == (ErrorCode.INVALID_REQUEST, "no broker serves")


def test_a_known_broker_may_help_where_the_addresses_do_not() -> None:
    admin = AdminCore(AdminConfig())
    (send,) = sends(admin.ask(0, MetadataRequest(), ticket=5))
    admin.step(0, Response(call=send.call, body=FakeCluster({"t": 1}).metadata(["t"])))
    (send,) = sends(admin.ask(0, CREATE, ticket=6))
    effects = admin.step(0, Response(call=send.call, body=UNSERVED))
    assert effects == [SetTimer(key="admin.wake", at_ms=100)]


def test_a_description_of_a_refused_metadata_has_the_error() -> None:
    admin = AdminCore(AdminConfig())
    (send,) = sends(admin.describe(0, ("t",), ticket=5))
    refused = MetadataResponse(error=ErrorCode.INVALID_REQUEST)
    (described,) = admin.step(0, Response(call=send.call, body=refused))
    assert isinstance(described, Described)
    assert (described.error, described.metadata) == (ErrorCode.INVALID_REQUEST, None)


def test_a_description_asks_the_brokers_for_what_is_left_of_its_time_only() -> None:
    """A description whose metadata came late took a request time-out longer than it may (drawn seed 60,000,594)."""
    config = AdminConfig()
    for answered_ms, left_ms in ((0, config.request_timeout_ms), (config.default_api_timeout_ms - 200, 200)):
        admin = AdminCore(config)
        (send,) = sends(admin.describe(0, ("t",), ticket=5))
        asked = sends(
            admin.step(answered_ms, Response(call=send.call, body=FakeCluster({"t": 1}).metadata(["t"])))
        )
        assert asked and {each.timeout_ms for each in asked} == {left_ms}


@pytest.mark.parametrize(
    "none",
    [
        TransportError(reason="cut"),
        refusal(DescribeReplicasRequest(), ClusterError(ErrorCode.UNKNOWN_SERVER_ERROR, "full")),
    ],
    ids=["silent", "refuses"],
)
def test_a_description_asks_every_broker_and_leaves_out_those_that_give_none(
    none: ResponseBody | TransportError,
) -> None:
    admin, cluster = AdminCore(AdminConfig()), FakeCluster({"t": 1}, broker_count=2)
    (send,) = sends(admin.describe(0, ("t",), ticket=5))
    asked = sends(admin.step(0, Response(call=send.call, body=cluster.metadata(("t",)))))
    assert [each.to for each in asked] == [1, 2]
    assert all(each.body == DescribeReplicasRequest(topics=("t",)) for each in asked)
    held = DescribeReplicasResponse(broker_id=2, state="running")
    admin.step(0, Response(call=asked[0].call, body=none))
    (described,) = admin.step(0, Response(call=asked[1].call, body=held))
    assert isinstance(described, Described)
    assert described.metadata is not None and described.replicas == (held,)
