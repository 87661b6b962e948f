"""No request ends a node: each with its fields at and beyond their bounds, through the codec, to both cores.

Whatever a core answers is within the bounds of responses too, and it serves on.
"""

from __future__ import annotations

import typing

import pytest
from hypothesis import HealthCheck, assume, given, settings

from cluster.core.connection.incoming import refused_answer
from cluster.core.effects import Effect, Reply, RunJob, Send, Stop
from cluster.core.messages import MetadataRequest, MetadataResponse, ProduceRequest, RequestBody, ResponseBody
from cluster.core.metadata.records import PartitionRecord, TopicRecord
from cluster.shell import wire
from cluster.shell.streams import CODEC
from tests.cluster.broker.setup import BrokerSetup
from tests.cluster.controller.setup import ControllerBench
from tests.cluster.shell.bounded import beyond, within

REQUESTS = typing.get_args(RequestBody)
FEW = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def received(body: RequestBody) -> RequestBody | wire.OutOfBounds:
    """The request as a server reads it from its bytes."""
    try:
        message = wire.request_to_wire(body)
    except ValueError:
        # The wire itself cannot carry it.
        assume(False)
    try:
        return wire.request_from_wire(type(message).FromString(message.SerializeToString()))
    except wire.OutOfBounds as refused:
        return refused


def check_answer(body: ResponseBody) -> None:
    """Check that a client can read the answer."""
    message = wire.response_to_wire(body)
    assert wire.response_from_wire(type(message).FromString(message.SerializeToString())) == body


def check_effects(effects: list[Effect]) -> None:
    assert not [each for each in effects if isinstance(each, Stop)], effects
    for each in effects:
        if isinstance(each, Reply):
            check_answer(each.body)
        elif isinstance(each, Send):
            message = wire.request_to_wire(each.body)
            assert wire.request_from_wire(type(message).FromString(message.SerializeToString())) == each.body


def booted() -> tuple[BrokerSetup, list[Effect]]:
    """Broker 1, which leads `t` and follows broker 2 in `u`."""
    setup = BrokerSetup()
    records: list[TopicRecord | PartitionRecord] = []
    for name, leader in (("t", 1), ("u", 2)):
        records.append(TopicRecord(name=name, topic_id=f"{leader}" * 32))
        records.append(PartitionRecord(topic=name, partition=0, replicas=(1, 2), isr=(1, 2), leader=leader))
    return setup, setup.boot(*records)


def check_broker(body: RequestBody) -> None:
    request = received(body)
    if isinstance(request, wire.OutOfBounds):
        check_answer(refused_answer(request, CODEC))
        return
    setup, _ = booted()
    effects = setup.ask(request)
    for job in [each for each in effects if isinstance(each, RunJob)]:
        effects += setup.finish(job)
    effects += setup.fire("fetch.expiry", 60_000)
    check_effects(effects)
    (answer,) = [each.body for each in setup.ask(MetadataRequest()) if isinstance(each, Reply)]
    assert isinstance(answer, MetadataResponse) and len(answer.topics) == 2


def check_controller(body: RequestBody) -> None:
    request = received(body)
    if isinstance(request, wire.OutOfBounds):
        return
    bench = ControllerBench().unfenced(1, 2)
    bench.create()
    _, effects = bench.step(request)
    effects = bench.run_jobs(effects)
    for timer in list(bench.timers):
        effects += bench.fire(timer)
    check_effects(effects)
    assert bench.create("u" * 9) is not None


@pytest.mark.slow
@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_c5_no_request_at_its_bounds_ends_a_broker(cls: type) -> None:
    FEW(given(within(cls))(check_broker))()


@pytest.mark.slow
@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_c5_no_request_beyond_its_bounds_ends_a_broker(cls: type) -> None:
    if not beyond(cls).is_empty:
        FEW(given(beyond(cls))(check_broker))()


@pytest.mark.slow
@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_c5_no_request_at_its_bounds_ends_a_controller(cls: type) -> None:
    FEW(given(within(cls))(check_controller))()


@pytest.mark.slow
@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_c5_no_request_beyond_its_bounds_ends_a_controller(cls: type) -> None:
    if not beyond(cls).is_empty:
        FEW(given(beyond(cls))(check_controller))()


def test_a_produce_request_without_acks_has_no_answer_even_where_it_is_refused() -> None:
    setup, _ = booted()
    effects = setup.ask(ProduceRequest(acks=0, partitions=()))
    assert not [each for each in effects if isinstance(each, Reply)]
