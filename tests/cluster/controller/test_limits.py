"""C5: what is too large for the metadata log costs an answer, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.core.controller.config import ControllerConfig
from cluster.core.effects import Effect, Reply, Stop
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    NO_BROKER_EPOCH,
    AlterTopicConfigsRequest,
    AlterTopicConfigsResponse,
    FetchMetadataRequest,
    FetchMetadataResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from storage.batch import iterate_batches
from storage.errors import ConfigError
from tests.cluster.controller.setup import T0, ControllerBench

# Two batches hold what one broker leads, or more.
LITTLE = ControllerConfig(metadata_max_batch_bytes=4 << 10, broker_session_timeout_ms=1_000)
MANY = 50


def batches_from(bench: ControllerBench, offset: int) -> int:
    return len(list(iterate_batches(bench.controller.log.read(offset, 1 << 20))))


@pytest.mark.parametrize(
    "settings",
    [
        {"metadata_max_batch_bytes": 4_095},
        {"metadata_max_batch_bytes": (16 << 20) + 1},
        {"metadata_log_max_record_bytes_between_snapshots": 0},
    ],
)
def test_a_limit_of_the_metadata_log_that_cannot_work_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings)).replace("_", r"\.")):
        replace(ControllerConfig(), **settings)  # type: ignore[arg-type]


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


def test_krlog8_a_creation_larger_than_a_batch_is_one_change() -> None:
    bench = ControllerBench(LITTLE).unfenced(1)
    end = bench.controller.log.end_offset
    assert bench.create(partitions=MANY).error is ErrorCode.NONE
    assert batches_from(bench, end) > 1
    assert len(bench.controller.image.topics["t"].partitions) == MANY
    bench.crash_and_restart()
    assert len(bench.controller.image.topics["t"].partitions) == MANY


def test_krlog8_a_fence_larger_than_a_batch_is_one_change_and_is_not_tried_again() -> None:
    bench = ControllerBench(LITTLE).unfenced(1, 2)
    for number in range(MANY):
        bench.create(f"topic-{number}", assignment=((2, 1),))
    bench.now_ms = 900
    bench.heartbeat(1)
    end = bench.controller.log.end_offset
    bench.fire("controller.session")
    assert batches_from(bench, end) > 1
    assert bench.controller.image.brokers[2].fenced
    assert {each.leader for each in bench.controller.image.partitions()} == {1}


def test_krlog8_a_registration_after_a_large_change_has_the_offset_of_its_record_as_epoch() -> None:
    bench = ControllerBench(LITTLE).unfenced(1, 2)
    for number in range(MANY):
        bench.create(f"topic-{number}", assignment=((2, 1),))
    bench.now_ms = 5_000
    # Broker 2 leaves all its partitions and is registered again in one change.
    answer = bench.register(2, "second")
    assert answer.broker_epoch == bench.controller.image.broker_epoch(2)
    assert answer.broker_epoch == bench.controller.image.next_offset - 1


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


def test_long_polls_of_two_processes_with_one_broker_id_do_not_push_each_other_out() -> None:
    bench = ControllerBench().unfenced(1)

    def fetch(incarnation: str, broker_epoch: int) -> list[Effect]:
        header = replace(bench.header_of(1, broker_epoch), incarnation=incarnation)
        offset = bench.controller.log.committed_offset
        body = FetchMetadataRequest(broker_id=1, offset=offset, max_wait_ms=500, header=header)
        return [each for each in bench.step(body)[1] if isinstance(each, Reply)]

    epoch = bench.controller.image.brokers[1].broker_epoch
    live = bench.controller.image.brokers[1].incarnation
    assert fetch(live, epoch) == []
    assert fetch("f0" * 16, NO_BROKER_EPOCH) == []
    # A newer one of the same process does.
    assert len(fetch(live, epoch)) == 1
