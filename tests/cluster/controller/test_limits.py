"""C5: what is too large for the metadata log costs an answer, and nothing else."""

from __future__ import annotations

import pytest

from cluster.core.controller import metadata_log
from cluster.core.controller.config import ControllerConfig
from cluster.core.effects import Observe, Stop
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    AlterTopicConfigsRequest,
    AlterTopicConfigsResponse,
    FetchMetadataRequest,
    FetchMetadataResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from storage.config import LogConfig
from tests.cluster.controller.setup import T0, ControllerBench


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limit of one decision, so that few partitions are too many."""
    monkeypatch.setattr(metadata_log, "METADATA_LOG_CONFIG", LogConfig(max_message_bytes=2_000))


def test_c5_fetch_metadata_with_a_negative_size_is_answered() -> None:
    bench = ControllerBench().unfenced(1)
    answer = bench.ask(FetchMetadataRequest(broker_id=1, offset=0, max_bytes=-1))
    assert isinstance(answer, FetchMetadataResponse) and answer.records


def test_c5_configs_above_the_limit_of_the_log_are_refused_and_the_controller_goes_on() -> None:
    bench = ControllerBench().unfenced(1)
    bench.create()
    before = bench.controller.image.next_offset
    # It is a number, whatever the blanks around it.
    large = ("retention.ms", "1" + " " * (17 << 20))
    refused = bench.ask(AlterTopicConfigsRequest(name="t", configs=(large,)))
    assert isinstance(refused, AlterTopicConfigsResponse) and refused.error is ErrorCode.MESSAGE_TOO_LARGE
    assert bench.controller.image.next_offset == before
    assert bench.create("u").error is ErrorCode.NONE


def test_c5_a_registration_with_a_large_host_is_refused_and_the_controller_goes_on() -> None:
    bench = ControllerBench().unfenced(1)
    before = bench.controller.image.next_offset
    answer = bench.ask(RegisterBrokerRequest(broker_id=2, incarnation="one", host="h" * (17 << 20), port=1))
    assert answer == RegisterBrokerResponse(error=ErrorCode.MESSAGE_TOO_LARGE)
    assert bench.controller.image.next_offset == before and not [e for e in bench.seen if isinstance(e, Stop)]
    assert bench.register(2).error is ErrorCode.NONE


@pytest.mark.usefixtures("little")
def test_c5_a_creation_with_too_many_partitions_says_how_large_it_is() -> None:
    bench = ControllerBench().unfenced(1)
    answer = bench.create(partitions=100)
    assert answer.error is ErrorCode.MESSAGE_TOO_LARGE and "the limit is 2000" in answer.message
    assert not bench.controller.image.topics
    assert bench.create(partitions=1).error is ErrorCode.NONE


@pytest.mark.usefixtures("little")
def test_c5_a_refused_heartbeat_leaves_session_and_offline_partitions_as_they_were() -> None:
    bench = ControllerBench().unfenced(1, 2)
    # Broker 2 leads one partition of many topics: leaving them all is one decision.
    for number in range(25):
        bench.create(f"topic-{number}", assignment=((2, 1),))
    answer = bench.heartbeat(2, want_fence=True)
    assert answer.error is ErrorCode.MESSAGE_TOO_LARGE
    assert bench.controller.sessions.is_live(2, bench.now_ms)
    assert not bench.controller.image.brokers[2].fenced
    assert bench.heartbeat(2).error is ErrorCode.NONE
    offline = tuple(partition.topic_partition for partition in bench.controller.image.partitions())
    assert bench.heartbeat(2, offline=offline).error is ErrorCode.MESSAGE_TOO_LARGE
    assert not bench.controller.partitions.is_offline(2, offline[0])


@pytest.mark.usefixtures("little")
def test_c5_a_fence_that_does_not_fit_is_tried_again_and_ends_nothing() -> None:
    bench = ControllerBench(ControllerConfig(broker_session_timeout_ms=1_000)).unfenced(1, 2)
    for number in range(25):
        bench.create(f"topic-{number}", assignment=((2, 1),))
    bench.now_ms = 900
    bench.heartbeat(1)
    effects = bench.fire("controller.session")
    assert not [each for each in effects if isinstance(each, (Observe, Stop))]
    assert "controller.session" in bench.timers


def test_a_broker_cannot_register_under_the_controllers_own_id() -> None:
    bench = ControllerBench()
    assert bench.register(bench.config.node_id).error is ErrorCode.INVALID_REQUEST


def test_c8_a_fetch_of_metadata_waits_no_longer_than_the_controller_allows() -> None:
    bench = ControllerBench(ControllerConfig(max_fetch_wait_ms=700)).unfenced(1)
    end = bench.controller.image.next_offset
    call, effects = bench.step(FetchMetadataRequest(broker_id=1, offset=end, max_wait_ms=(1 << 31) - 1))
    assert bench.timers[f"controller.fetch:{call}"] == bench.now_ms + 700 and len(effects) == 1


def test_c8_a_fetch_of_metadata_whose_sender_has_left_is_dropped() -> None:
    bench = ControllerBench().unfenced(1)
    end = bench.controller.image.next_offset
    call, _ = bench.step(FetchMetadataRequest(broker_id=1, offset=end))
    bench.controller.forget(call)
    bench.controller.forget(call + 1)
    bench.seen.clear()
    bench.create(T0.topic)
    assert not [each for each in bench.seen if getattr(each, "call", 0) == call]
