"""The life of a broker towards the controller (BRK)."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from cluster.core.effects import Effect, LearnEndpoint, Reply, RunJob, SetTimer, Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import Shutdown, TransportError
from cluster.core.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    FetchMetadataRequest,
    FetchMetadataResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    TopicPartition,
)
from cluster.core.metadata.records import (
    BrokerChangeRecord,
    ClusterRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicConfigRecord,
    TopicRecord,
)
from storage.errors import DirectoryInUse
from tests.cluster.broker.cluster_by_hand import batch
from tests.cluster.broker.setup import BROKER_EPOCH, CLUSTER_ID, BrokerSetup
from tests.cluster.replica.setup import observed, of, only, only_sent, sent

TOPIC = TopicRecord(name="t", topic_id="1f" * 16)
LED_HERE = PartitionRecord(topic="t", partition=0, replicas=(1,), isr=(1,), leader=1)
T0 = TopicPartition("t", 0)


def registration_of(effects: list[Effect]) -> RegisterBrokerRequest:
    body = only_sent(effects, RegisterBrokerRequest).body
    assert isinstance(body, RegisterBrokerRequest)
    return body


def beat_of(effects: list[Effect]) -> BrokerHeartbeatRequest:
    body = only_sent(effects, BrokerHeartbeatRequest).body
    assert isinstance(body, BrokerHeartbeatRequest)
    return body


def state_of(setup: BrokerSetup) -> str:
    body = only(setup.ask(DescribeReplicasRequest()), Reply).body
    assert isinstance(body, DescribeReplicasResponse)
    return body.state


# Registration


def test_brk1_a_broker_registers_with_a_drawn_incarnation() -> None:
    first, second = BrokerSetup(life=1), BrokerSetup(life=2)
    request = registration_of(first.start())
    assert (request.broker_id, request.host, request.port) == (1, "127.0.0.1", 9001)
    assert len(request.incarnation) == 32 and int(request.incarnation, 16) >= 0
    assert request.incarnation != registration_of(second.start()).incarnation
    assert request.previous_broker_epoch == -1


def test_brk1_a_duplicate_is_retried_until_the_old_session_ends() -> None:
    setup = BrokerSetup()
    effects = setup.start()
    delays = []
    for _ in range(6):
        call = only_sent(effects, RegisterBrokerRequest).call
        refused = setup.answer(call, RegisterBrokerResponse(error=ErrorCode.DUPLICATE_BROKER_REGISTRATION))
        delays.append(only(refused, SetTimer).at_ms - setup.now_ms)
        effects = setup.fire("broker.register", delays[-1])
    assert delays == [100, 200, 400, 800, 1_000, 1_000]
    call = only_sent(effects, RegisterBrokerRequest).call
    effects = setup.answer(call, RegisterBrokerResponse(broker_epoch=8, cluster_id=CLUSTER_ID))
    assert observed(effects, "broker.registered") == [{"broker_epoch": 8}]
    assert state_of(setup) == "recovery"


def test_brk1_a_lost_answer_is_asked_for_again_with_the_same_incarnation() -> None:
    setup = BrokerSetup()
    effects = setup.start()
    first = registration_of(effects)
    setup.answer(only_sent(effects, RegisterBrokerRequest).call, TransportError(reason="cut"))
    assert registration_of(setup.fire("broker.register", 100)) == first


def test_another_clusters_controller_ends_the_broker() -> None:
    setup = BrokerSetup()
    call = only_sent(setup.start(), RegisterBrokerRequest).call
    effects = setup.answer(call, RegisterBrokerResponse(error=ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert "another cluster" in only(effects, Stop).reason
    assert setup.ask(MetadataRequest()) == []


# Unfencing


def test_brk2_a_broker_asks_to_stay_fenced_until_its_registration_is_replayed() -> None:
    setup = BrokerSetup()
    call = only_sent(setup.start(), RegisterBrokerRequest).call
    effects = setup.answer(call, RegisterBrokerResponse(broker_epoch=BROKER_EPOCH, cluster_id=CLUSTER_ID))
    beat = beat_of(effects)
    assert (beat.broker_epoch, beat.metadata_offset, beat.want_fence) == (1, 0, True)
    setup.answer(only_sent(effects, BrokerHeartbeatRequest).call, BrokerHeartbeatResponse(is_fenced=True))
    effects = setup.metadata(ClusterRecord(cluster_id=CLUSTER_ID))
    assert sent(effects, BrokerHeartbeatRequest) == []
    # The heartbeat is sent at once, not with the next timer.
    beat = beat_of(setup.metadata(setup.own_registration()))
    assert (beat.metadata_offset, beat.want_fence) == (2, False)


def test_brk2_a_broker_runs_once_the_controller_has_unfenced_it() -> None:
    setup = BrokerSetup()
    effects = setup.boot()
    assert observed(effects, "broker.unfenced") == [{}]
    assert state_of(setup) == "running"
    timer = only(effects, SetTimer)
    assert (timer.key, timer.at_ms) == ("broker.heartbeat", setup.now_ms + 2_000)


def test_nothing_is_led_before_the_own_registration_is_replayed() -> None:
    """The last life's leadership is still in the log; to take it up again would reuse (offset, epoch)."""
    setup = BrokerSetup()
    call = only_sent(setup.start(), RegisterBrokerRequest).call
    other = RegisterBrokerRecord(broker_id=1, incarnation="0" * 32, host="h", port=1)
    effects = setup.metadata(ClusterRecord(cluster_id=CLUSTER_ID), other, TOPIC, LED_HERE)
    assert setup.broker.replicas() == {}
    setup.answer(call, RegisterBrokerResponse(broker_epoch=5, cluster_id=CLUSTER_ID))
    assert setup.broker.replicas() == {}
    effects = setup.metadata(
        PartitionChangeRecord(topic="t", partition=0, leader=-1), setup.own_registration()
    )
    assert observed(effects, "replica.became_leader") == []
    assert [each["leader"] for each in observed(effects, "replica.became_follower")] == [-1]


def test_metadata_is_answered_only_from_a_whole_image() -> None:
    setup = BrokerSetup()
    setup.start()
    early = only(setup.ask(MetadataRequest()), Reply).body
    assert isinstance(early, MetadataResponse) and early.error is ErrorCode.BROKER_NOT_AVAILABLE
    setup = BrokerSetup()
    setup.boot()
    setup.metadata(BrokerChangeRecord(broker_id=1, broker_epoch=1, fenced=False), TOPIC, LED_HERE)
    answer = only(setup.ask(MetadataRequest()), Reply).body
    assert isinstance(answer, MetadataResponse)
    assert [topic.name for topic in answer.topics] == ["t"]
    assert [broker.port for broker in answer.brokers] == [9001]


def test_addresses_of_other_brokers_come_with_the_metadata() -> None:
    setup = BrokerSetup()
    setup.boot()
    other = RegisterBrokerRecord(broker_id=2, incarnation="2" * 32, host="b", port=9002)
    assert only(setup.metadata(other), LearnEndpoint) == LearnEndpoint(node_id=2, host="b", port=9002)


def test_a_metadata_fetch_that_fails_is_made_again() -> None:
    setup = BrokerSetup()
    setup.boot()
    effects = setup.answer(setup.metadata_fetch, TransportError(reason="cut"))
    assert sent(effects, FetchMetadataRequest) == []
    assert len(sent(setup.fire("metadata.retry", 100), FetchMetadataRequest)) == 1
    effects = setup.answer(setup.metadata_fetch, FetchMetadataResponse(error=ErrorCode.NOT_CONTROLLER))
    assert len(sent(setup.fire("metadata.retry", 100), FetchMetadataRequest)) == 1


# Heartbeats


def test_brk8_a_heartbeat_every_two_seconds() -> None:
    setup = BrokerSetup()
    setup.boot()
    beat = beat_of(setup.fire("broker.heartbeat", 2_000))
    assert (beat.want_fence, beat.want_shutdown, beat.broker_epoch) == (False, False, 1)


def test_a_lost_heartbeat_is_sent_again_soon() -> None:
    setup = BrokerSetup()
    setup.boot()
    call = only_sent(setup.fire("broker.heartbeat", 2_000), BrokerHeartbeatRequest).call
    timer = only(setup.answer(call, TransportError(reason="cut")), SetTimer)
    assert (timer.key, timer.at_ms) == ("broker.heartbeat", setup.now_ms + 100)


def test_brk3_a_stale_broker_epoch_makes_it_register_again() -> None:
    setup = BrokerSetup()
    setup.boot()
    call = only_sent(setup.fire("broker.heartbeat", 2_000), BrokerHeartbeatRequest).call
    effects = setup.answer(call, BrokerHeartbeatResponse(error=ErrorCode.STALE_BROKER_EPOCH))
    call = only_sent(effects, RegisterBrokerRequest).call
    effects = setup.answer(call, RegisterBrokerResponse(broker_epoch=40, cluster_id=CLUSTER_ID))
    beat = beat_of(effects)
    assert (beat.broker_epoch, beat.want_fence) == (40, True)


OTHER_PROCESS = RegisterBrokerRecord(broker_id=1, incarnation="f" * 32, host="elsewhere", port=9001)
LED_BY_OTHER = PartitionChangeRecord(topic="t", partition=0, isr=(1,), leader=1)


def leading_with_one_that_waits() -> BrokerSetup:
    """Return a broker that leads t-0, at which one produce waits for broker 2."""
    setup = BrokerSetup()
    setup.boot(TOPIC, replace(LED_HERE, replicas=(1, 2), isr=(1, 2)))
    assert produce_error(setup) is None
    return setup


def produce_error(setup: BrokerSetup) -> ErrorCode | None:
    asked = ProducePartition(topic_partition=T0, records=batch(b"a"))
    return error_of(setup.ask(ProduceRequest(acks=-1, partitions=(asked,))))


def error_of(effects: list[Effect]) -> ErrorCode | None:
    bodies = [reply.body for reply in of(effects, Reply) if isinstance(reply.body, ProduceResponse)]
    return bodies[0].partitions[0].error if bodies else None


def test_pro8_a_fetch_that_waits_at_a_process_that_steps_down_is_refused() -> None:
    setup = leading_with_one_that_waits()
    asked = FetchPartition(topic_partition=T0, fetch_offset=0, max_bytes=1_000)
    assert (
        of(setup.ask(FetchRequest(replica_id=-1, max_wait_ms=500, min_bytes=1, partitions=(asked,))), Reply)
        == []
    )
    call = only_sent(setup.fire("broker.heartbeat", 100), BrokerHeartbeatRequest).call
    effects = setup.answer(call, BrokerHeartbeatResponse(error=ErrorCode.STALE_BROKER_EPOCH))
    (answer,) = [reply.body for reply in of(effects, Reply) if isinstance(reply.body, FetchResponse)]
    assert answer.partitions[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_brk3_a_process_with_a_stale_broker_epoch_steps_down_at_once() -> None:
    setup = leading_with_one_that_waits()
    call = only_sent(setup.fire("broker.heartbeat", 2_000), BrokerHeartbeatRequest).call
    effects = setup.answer(call, BrokerHeartbeatResponse(error=ErrorCode.STALE_BROKER_EPOCH))
    assert error_of(effects) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert observed(effects, "broker.superseded") == [{"broker_epoch": BROKER_EPOCH}]
    # It has no roles any more, and so they rest on nothing.
    assert setup.broker.applied_offset == -1
    assert produce_error(setup) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    # Nothing that the metadata says counts, until the process is registered again.
    setup.metadata(LED_BY_OTHER)
    assert produce_error(setup) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_brk3_a_process_does_not_lead_what_another_process_of_its_id_was_elected_for() -> None:
    setup = leading_with_one_that_waits()
    effects = setup.metadata(OTHER_PROCESS)
    assert error_of(effects) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert registration_of(effects).incarnation == setup.broker.lifecycle.incarnation
    again = setup.metadata(LED_BY_OTHER)
    assert sent(again, RegisterBrokerRequest) == [] and observed(again, "broker.superseded") == []
    assert produce_error(setup) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_brk3_a_process_that_is_registered_again_takes_its_roles_from_the_new_life_on() -> None:
    setup = leading_with_one_that_waits()
    call = only_sent(setup.metadata(OTHER_PROCESS, LED_BY_OTHER), RegisterBrokerRequest).call
    broker_epoch = setup.metadata_end
    setup.answer(call, RegisterBrokerResponse(broker_epoch=broker_epoch, cluster_id=CLUSTER_ID))
    assert produce_error(setup) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    setup.metadata(setup.own_registration(), LED_BY_OTHER)
    assert produce_error(setup) is ErrorCode.NONE
    assert setup.broker.replicas()[T0].leader_epoch == 2


def test_brk3_a_topic_that_was_deleted_for_the_other_process_is_set_aside_by_the_next_life() -> None:
    setup = leading_with_one_that_waits()
    effects = setup.metadata(OTHER_PROCESS, RemoveTopicRecord(name="t", topic_id=TOPIC.topic_id))
    call = only_sent(effects, RegisterBrokerRequest).call
    answer = RegisterBrokerResponse(broker_epoch=setup.metadata_end, cluster_id=CLUSTER_ID)
    setup.answer(call, answer)
    effects = setup.metadata(setup.own_registration())
    assert setup.broker.replicas() == {}
    assert len(observed(effects, "replica.set_aside")) == 1


def test_brk3_properties_that_changed_for_the_other_process_are_used_in_the_next_life() -> None:
    setup = leading_with_one_that_waits()
    config = TopicConfigRecord(topic="t", configs=(("segment.ms", "700"),))
    call = only_sent(setup.metadata(OTHER_PROCESS, config), RegisterBrokerRequest).call
    setup.answer(call, RegisterBrokerResponse(broker_epoch=setup.metadata_end, cluster_id=CLUSTER_ID))
    setup.metadata(setup.own_registration())
    assert setup.broker.replicas()[T0].log.config.segment_ms == 700


def test_brk3_a_heartbeat_of_the_life_before_that_is_answered_late_ends_no_life() -> None:
    setup = leading_with_one_that_waits()
    late = only_sent(setup.fire("broker.heartbeat", 2_000), BrokerHeartbeatRequest).call
    call = only_sent(setup.metadata(OTHER_PROCESS), RegisterBrokerRequest).call
    broker_epoch = setup.metadata_end
    setup.answer(call, RegisterBrokerResponse(broker_epoch=broker_epoch, cluster_id=CLUSTER_ID))
    effects = setup.answer(late, BrokerHeartbeatResponse(error=ErrorCode.STALE_BROKER_EPOCH))
    assert sent(effects, RegisterBrokerRequest) == [] and observed(effects, "broker.superseded") == []
    call = only_sent(effects, BrokerHeartbeatRequest).call
    assert beat_of(effects).broker_epoch == broker_epoch
    setup.metadata(setup.own_registration(), LED_BY_OTHER)
    beat = beat_of(setup.answer(call, BrokerHeartbeatResponse(is_fenced=True)))
    assert not beat.want_fence
    assert produce_error(setup) is ErrorCode.NONE


def test_a_fenced_broker_continues_and_is_reported() -> None:
    setup = BrokerSetup()
    setup.boot()
    setup.metadata(TOPIC, LED_HERE)
    call = only_sent(setup.fire("broker.heartbeat", 2_000), BrokerHeartbeatRequest).call
    effects = setup.answer(call, BrokerHeartbeatResponse(is_fenced=True))
    assert observed(effects, "broker.fenced") == [{}]
    assert setup.broker.replicas()[T0].role == "leader"
    assert beat_of(setup.fire("broker.heartbeat", 2_000)).want_fence is False


# Leadership and metadata


def produce(setup: BrokerSetup, value: bytes) -> ProduceResponse:
    asked = ProducePartition(topic_partition=T0, records=batch(value))
    body = only(setup.ask(ProduceRequest(acks=1, partitions=(asked,))), Reply).body
    assert isinstance(body, ProduceResponse)
    return body


def test_e4_after_the_record_that_removes_its_leadership_it_acknowledges_nothing() -> None:
    setup = BrokerSetup()
    setup.boot()
    setup.metadata(TOPIC, LED_HERE)
    assert produce(setup, b"a").partitions[0].error is ErrorCode.NONE
    setup.metadata(PartitionChangeRecord(topic="t", partition=0, leader=-1))
    assert produce(setup, b"b").partitions[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


# The end


def test_brk7_a_broker_asks_for_its_leave_and_ends_when_it_is_granted() -> None:
    setup = BrokerSetup()
    setup.boot()
    beat = setup.broker.step(setup.now_ms, Shutdown())
    assert beat_of(beat).want_shutdown
    assert state_of(setup) == "pending_shutdown"
    call = only_sent(beat, BrokerHeartbeatRequest).call
    effects = setup.answer(call, BrokerHeartbeatResponse(is_fenced=False))
    assert of(effects, RunJob) == []
    call = only_sent(setup.fire("broker.heartbeat", 50), BrokerHeartbeatRequest).call
    effects = setup.answer(call, BrokerHeartbeatResponse(is_fenced=True, should_shut_down=True))
    job = only(effects, RunJob)
    assert job.kind == "shutdown"
    assert only(setup.finish(job), Stop).reason == "shutdown"


def test_brk7_a_silent_controller_does_not_hold_the_end_for_ever() -> None:
    setup = BrokerSetup()
    setup.boot()
    setup.broker.step(setup.now_ms, Shutdown())
    job = only(setup.fire("broker.shutdown", 10_000), RunJob)
    assert only(setup.finish(job), Stop).reason == "shutdown"


def test_a_broker_that_never_registered_ends_at_once() -> None:
    setup = BrokerSetup()
    setup.start()
    job = only(setup.broker.step(setup.now_ms, Shutdown()), RunJob)
    assert only(setup.finish(job), Stop).reason == "shutdown"


def test_sto3_a_clean_stop_is_known_to_the_next_life_with_its_broker_epoch() -> None:
    setup = BrokerSetup()
    setup.boot()
    setup.metadata(TOPIC, LED_HERE)
    produce(setup, b"a")
    setup.broker.step(setup.now_ms, Shutdown())
    setup.finish(only(setup.fire("broker.shutdown", 10_000), RunJob))
    again = BrokerSetup(setup.disk, life=2)
    effects = again.start()
    assert observed(effects, "broker.started") == [{"clean": 1}]
    assert registration_of(effects).previous_broker_epoch == BROKER_EPOCH
    assert registration_of(effects).cluster_id == CLUSTER_ID


def test_sto3_a_crash_is_no_clean_stop() -> None:
    setup = BrokerSetup()
    setup.boot()
    setup.disk.crash_process()
    again = BrokerSetup(setup.disk, life=2)
    effects = again.start()
    assert observed(effects, "broker.started") == [{"clean": 0}]
    assert registration_of(effects).previous_broker_epoch == -1


def test_waiting_requests_are_answered_before_the_end_and_none_is_served_after() -> None:
    setup = BrokerSetup()
    setup.boot()
    waits = PartitionRecord(topic="t", partition=0, replicas=(1, 2), isr=(1, 2), leader=1)
    setup.metadata(TOPIC, waits)
    asked = ProducePartition(topic_partition=T0, records=batch(b"a"))
    assert of(setup.ask(ProduceRequest(acks=-1, partitions=(asked,))), Reply) == []
    setup.broker.step(setup.now_ms, Shutdown())
    effects = setup.fire("broker.shutdown", 10_000)
    body = only(effects, Reply).body
    assert isinstance(body, ProduceResponse)
    assert body.partitions[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    late = only(setup.ask(ProduceRequest(acks=-1, partitions=(asked,))), Reply).body
    assert isinstance(late, ProduceResponse) and late.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert setup.ask(ProduceRequest(acks=0, partitions=(asked,))) == []


def test_pro9_a_failing_disk_ends_the_broker() -> None:
    setup = BrokerSetup()
    setup.boot()
    setup.metadata(TOPIC, LED_HERE)
    produce(setup, b"a")
    setup.disk.fail(1, errno.EIO)
    asked = ProducePartition(topic_partition=T0, records=batch(b"b"))
    effects = setup.ask(ProduceRequest(acks=1, partitions=(asked,)))
    assert of(effects, Reply) == []
    assert "append" in only(effects, Stop).reason


def test_pro9_a_failing_flush_ends_the_broker() -> None:
    setup = BrokerSetup()
    setup.boot()
    flushed = TopicRecord(name="t", topic_id="1f" * 16, configs=(("flush.messages", "1"),))
    setup.metadata(flushed, LED_HERE)
    asked = ProducePartition(topic_partition=T0, records=batch(b"a"))
    job = only(setup.ask(ProduceRequest(acks=-1, partitions=(asked,))), RunJob)
    effects = setup.finish(job, OSError(errno.EIO, "input/output error"))
    assert of(effects, Reply) == []
    assert "flush" in only(effects, Stop).reason


def test_a_directory_in_use_is_refused() -> None:
    setup = BrokerSetup()
    setup.start()
    with pytest.raises(DirectoryInUse):
        BrokerSetup(setup.disk, life=2).start()


# Checkpoints


def test_hwm8_high_watermarks_are_checkpointed_as_a_job_and_found_again() -> None:
    setup = BrokerSetup()
    setup.boot()
    setup.metadata(TOPIC, LED_HERE)
    produce(setup, b"a")
    job = only(setup.fire("checkpoint.high_watermark", 5_000), RunJob)
    assert job.kind == "checkpoint"
    timer = only(setup.finish(job), SetTimer)
    assert timer.at_ms == setup.now_ms + 5_000
    setup.disk.crash_process()
    again = BrokerSetup(setup.disk, life=2)
    again.start()
    assert again.broker._logs.directories.online[0].logs["t-0"].high_watermark == 1


def test_recovery_points_are_checkpointed_every_minute() -> None:
    setup = BrokerSetup()
    setup.boot()
    timer = only(setup.fire("checkpoint.recovery_point", 60_000), SetTimer)
    assert timer.at_ms == setup.now_ms + 60_000
