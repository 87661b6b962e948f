"""The controller's pipeline: append, flush, commit, publish; and its lives."""

from __future__ import annotations

import pytest

from cluster.core.controller.config import ControllerConfig
from cluster.core.controller.controller import Controller
from cluster.core.effects import Effect, Observe, Reply, RunJob, Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import JobDone
from cluster.core.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicRequest,
    CreateTopicResponse,
    FetchMetadataRequest,
    FetchMetadataResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from cluster.core.metadata.changes import ChangeReader
from cluster.core.metadata.delta import MetadataDelta
from cluster.core.metadata.image import MetadataImage
from cluster.core.metadata.log import committed_changes
from cluster.core.metadata.records import MetadataRecord
from sim.disk.faults import WRITES
from sim.disk.life import Life
from storage.disk.filesystem import OpenMode
from storage.draws import Draws
from storage.errors import DirectoryInUse
from tests.cluster.controller.setup import DIRECTORY, T0, ControllerBench

TOPIC = CreateTopicRequest(name="t")


def replies(effects: list[Effect]) -> dict[int, object]:
    return {effect.call: effect.body for effect in effects if isinstance(effect, Reply)}


def read(data: bytes, start: int = 0) -> list[tuple[int, MetadataRecord]]:
    """Return the records of all whole changes, with their offsets."""
    return [numbered for change in ChangeReader(start).read(data) for numbered in change.records]


def fetch(offset: int, *, broker_id: int = 1, max_wait_ms: int = 500) -> FetchMetadataRequest:
    return FetchMetadataRequest(broker_id=broker_id, offset=offset, max_wait_ms=max_wait_ms)


def test_ctl3_reply_and_image_wait_for_the_flush() -> None:
    bench = ControllerBench().unfenced(1)
    call, effects = bench.step(TOPIC)
    assert [type(effect) for effect in effects] == [RunJob]
    assert not bench.controller.image.topics
    done = bench.run_jobs()
    assert isinstance(replies(done)[call], CreateTopicResponse)
    assert "t" in bench.controller.image.topics


def test_ctl3_observations_come_with_the_commit_before_the_reply() -> None:
    bench = ControllerBench().unfenced(1)
    bench.step(TOPIC)
    kinds = [each.kind if isinstance(each, Observe) else type(each).__name__ for each in bench.run_jobs()]
    assert kinds == ["controller.topic_created", "controller.leader_elected", "Reply"]


def test_ctl3_a_refusal_waits_for_the_records_that_it_relied_on() -> None:
    bench = ControllerBench().unfenced(1)
    bench.step(TOPIC)
    second, effects = bench.step(TOPIC)
    assert not replies(effects)
    assert second in replies(bench.run_jobs())


def test_decisions_that_come_during_a_flush_share_the_next_one() -> None:
    bench = ControllerBench().unfenced(1)
    calls = [bench.step(CreateTopicRequest(name=name))[0] for name in ("a", "b", "c")]
    assert len(bench.jobs) == 1
    job = bench.jobs.pop()
    job.work()
    effects = bench.controller.step(0, JobDone(job=job.job))
    assert list(replies(effects)) == calls[:1]
    (second,) = [effect for effect in effects if isinstance(effect, RunJob)]
    second.work()
    assert list(replies(bench.controller.step(0, JobDone(job=second.job)))) == calls[1:]


def test_failed_flush_stops_the_node() -> None:
    bench = ControllerBench().unfenced(1)
    bench.step(TOPIC)
    failed = JobDone(job=bench.jobs[0].job, error=OSError(5, "EIO"))
    (stop,) = bench.controller.step(0, failed)
    assert isinstance(stop, Stop) and "EIO" in stop.reason
    assert bench.step(TOPIC)[1] == []


def test_krctl1_a_decision_builds_on_the_one_before_that_is_not_committed() -> None:
    bench = ControllerBench().unfenced(1)
    bench.step(TOPIC)
    assert "t" in bench.controller.pending_image.topics and not bench.controller.image.topics
    second, _ = bench.step(CreatePartitionsRequest(name="t", count=3))
    done = replies(bench.run_jobs())
    assert done[second] == CreatePartitionsResponse()
    assert len(bench.controller.image.topics["t"].partitions) == 3
    assert bench.controller.pending_image is bench.controller.image


def test_krctl2_a_failed_flush_drops_everything_that_was_not_committed() -> None:
    bench = ControllerBench().unfenced(1)
    committed = bench.controller.image
    calls = [bench.step(CreateTopicRequest(name=name))[0] for name in ("a", "b")]
    effects = bench.controller.step(0, JobDone(job=bench.jobs[0].job, error=OSError(5, "EIO")))
    assert bench.controller.pending_image is bench.controller.image is committed
    assert not any(call in replies(effects) for call in calls)


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_krctl2_an_append_that_fails_is_dropped_whole(failing: int) -> None:
    bench = ControllerBench(ControllerConfig(metadata_max_batch_bytes=4 << 10)).unfenced(1)
    committed = bench.controller.image
    # The creation takes several batches, one write each.
    bench.disk.fail(failing, verbs=WRITES, path_suffix=".log")
    _, effects = bench.step(CreateTopicRequest(name="t", partitions=90))
    assert isinstance(effects[-1], Stop) and not replies(effects)
    assert bench.controller.pending_image is bench.controller.image is committed
    bench.disk.disarm()
    bench.crash_and_restart()
    assert not bench.controller.image.topics
    assert bench.unfenced(2).create().error is ErrorCode.NONE


def test_krctl2_a_refused_change_leaves_nothing_behind() -> None:
    bench = ControllerBench(ControllerConfig(metadata_max_batch_bytes=4 << 10)).unfenced(1, 2)
    bench.create(assignment=((2, 1),))
    bench.now_ms = 20_000
    before, end = bench.controller.pending_image, bench.controller.log.end_offset
    offline = bench.controller.partitions.offline
    known = dict(offline)
    large = RegisterBrokerRequest(broker_id=2, incarnation="next", host="h" * 5_000, port=1)
    answer = bench.ask(large)
    assert answer == RegisterBrokerResponse(error=ErrorCode.MESSAGE_TOO_LARGE)
    # Broker 2 would have left its partition in the same change.
    assert bench.controller.pending_image is before and bench.controller.image is before
    assert bench.controller.log.end_offset == end and offline == known
    assert bench.partition(T0).leader == 2
    assert bench.register(2, "next").broker_epoch == bench.controller.image.broker_epoch(2)


def test_acknowledged_decisions_survive_a_power_loss() -> None:
    bench = ControllerBench().unfenced(1, 2, 3)
    bench.create(partitions=3, replication_factor=3)
    before = list(bench.controller.image.partitions()), bench.controller.image.brokers
    bench.lose_power_and_restart()
    assert (list(bench.controller.image.partitions()), bench.controller.image.brokers) == before


def test_what_was_not_flushed_is_lost_whole_after_a_power_loss() -> None:
    bench = ControllerBench().unfenced(1)
    bench.step(CreateTopicRequest(name="t", partitions=50))
    bench.lose_power_and_restart()
    assert not bench.controller.image.topics
    assert bench.create().error is ErrorCode.NONE


def test_records_kept_by_the_page_cache_are_flushed_before_they_are_reported() -> None:
    bench = ControllerBench().unfenced(1)
    bench.step(TOPIC)
    bench.crash_and_restart()
    assert bench.partition(T0).leader == 1
    bench.lose_power_and_restart()
    assert bench.partition(T0).leader == 1


def test_a_torn_decision_is_cut_whole_and_reported() -> None:
    bench = ControllerBench().unfenced(1)
    path = f"{DIRECTORY}/__cluster_metadata-0/00000000000000000000.log"
    bench.create("kept")
    bench.life.kill()
    bench.disk.crash_process()
    file = bench.disk.file_system(Life("damage")).open(path, OpenMode.WRITE)
    file.append(b"\x00" * 30)
    file.close()
    bench.crash_and_restart()
    (cut,) = bench.observed("log.recovered_cut")
    assert cut["removed_bytes"] == 30
    assert list(bench.controller.image.topics) == ["kept"]


def test_replay_builds_the_same_image() -> None:
    bench = ControllerBench().unfenced(1, 2, 3)
    bench.create(partitions=2, replication_factor=3)
    bench.fence(1)
    delta = MetadataDelta(MetadataImage())
    for change in committed_changes(bench.controller.log, ChangeReader()):
        delta.apply_change(change)
    assert delta.after() == bench.controller.image


def test_second_controller_on_the_directory_is_refused() -> None:
    bench = ControllerBench()
    other = Controller(ControllerConfig(), bench.disk.file_system(bench.life), DIRECTORY, Draws(1))
    with pytest.raises(DirectoryInUse):
        other.start(0)


def test_shutdown_waits_for_the_disk_and_releases_the_lock() -> None:
    bench = ControllerBench().unfenced(1)
    creating, _ = bench.step(TOPIC)
    assert not bench.shut_down()
    effects = bench.run_jobs()
    assert creating in replies(effects)
    assert effects[-1] == Stop(reason="shutdown")
    other = Controller(ControllerConfig(), bench.disk.file_system(bench.life), DIRECTORY, Draws(1))
    other.start(0)
    assert "t" in other.image.topics


def test_shutdown_answers_parked_observers() -> None:
    bench = ControllerBench().unfenced(1)
    call, _ = bench.step(fetch(bench.controller.log.end_offset))
    effects = bench.shut_down()
    assert call in replies(effects)
    assert effects[-1] == Stop(reason="shutdown")


def test_request_during_the_shutdown_is_refused() -> None:
    bench = ControllerBench().unfenced(1)
    bench.step(TOPIC)
    bench.shut_down()
    call, effects = bench.step(CreateTopicRequest(name="u"))
    answer = replies(effects)[call]
    assert isinstance(answer, CreateTopicResponse) and answer.error is ErrorCode.NOT_CONTROLLER


def test_request_for_a_broker_is_refused() -> None:
    answer = ControllerBench().ask(FetchRequest(replica_id=-1, partitions=()))
    assert isinstance(answer, FetchResponse) and answer.error is ErrorCode.INVALID_REQUEST


# Observers


def test_observer_reads_committed_batches_from_its_offset() -> None:
    bench = ControllerBench().unfenced(1)
    bench.create()
    answer = bench.ask(fetch(0))
    assert isinstance(answer, FetchMetadataResponse)
    assert [offset for offset, _ in read(answer.records)] == list(range(bench.controller.log.end_offset))
    assert answer.high_watermark == bench.controller.log.end_offset


def test_observer_gets_whole_batches_within_its_limit_and_at_least_one() -> None:
    bench = ControllerBench().unfenced(1)
    bench.create()
    request = FetchMetadataRequest(broker_id=1, offset=0, max_bytes=1)
    answer = bench.ask(request)
    assert isinstance(answer, FetchMetadataResponse)
    assert [offset for offset, _ in read(answer.records)] == [0]


def test_observer_that_has_all_is_parked_until_something_is_committed() -> None:
    bench = ControllerBench().unfenced(1)
    end = bench.controller.log.end_offset
    call, effects = bench.step(fetch(end))
    assert not replies(effects)
    bench.step(TOPIC)
    woken = replies(bench.run_jobs())[call]
    assert isinstance(woken, FetchMetadataResponse)
    assert len(read(woken.records, end)) == 2


def test_an_observer_never_reads_uncommitted_records() -> None:
    bench = ControllerBench().unfenced(1)
    end = bench.controller.log.end_offset
    bench.step(TOPIC)
    call, effects = bench.step(fetch(end, max_wait_ms=0))
    answer = replies(effects)[call]
    assert isinstance(answer, FetchMetadataResponse)
    assert (answer.records, answer.high_watermark) == (b"", end)


def test_parked_observer_is_answered_empty_after_its_wait() -> None:
    bench = ControllerBench().unfenced(1)
    call, _ = bench.step(fetch(bench.controller.log.end_offset))
    answer = replies(bench.fire(f"controller.fetch:{call}"))[call]
    assert isinstance(answer, FetchMetadataResponse)
    assert (answer.error, answer.records) == (ErrorCode.NONE, b"")


def test_second_fetch_of_a_broker_answers_its_first() -> None:
    bench = ControllerBench().unfenced(1)
    end = bench.controller.log.end_offset
    first, _ = bench.step(fetch(end))
    second, effects = bench.step(fetch(end))
    assert list(replies(effects)) == [first] and second != first


def test_observer_ahead_of_the_log_is_out_of_range() -> None:
    bench = ControllerBench()
    answer = bench.ask(fetch(99))
    assert isinstance(answer, FetchMetadataResponse)
    assert answer.error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_metadata_shows_only_what_is_committed() -> None:
    bench = ControllerBench().unfenced(1)
    bench.step(TOPIC)
    call, effects = bench.step(MetadataRequest(topics=("t",)))
    answer = replies(effects)[call]
    assert isinstance(answer, MetadataResponse)
    assert answer.topics[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
