"""Produced batches whose checks take longer than a step may: checked by jobs, appended in order, answered once."""

from __future__ import annotations

from typing import final

import pytest

from cluster.core.effects import Effect, Reply, RunJob
from cluster.core.errors import ErrorCode
from cluster.core.events import JobDone
from cluster.core.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    TopicPartition,
)
from cluster.core.metadata.records import RemoveTopicRecord
from cluster.core.replica import sliced_appends
from cluster.core.replica.sliced_appends import MAX_AT_ONCE, SlicedAppend
from storage.batch import set_producer_state
from storage.log.reads import SEGMENTS_A_STEP
from storage.validation.sliced import SlicedValidation
from storage.validation.work import STEP_RECORDS, STEP_WORK
from tests.cluster.broker.cluster_by_hand import batch
from tests.cluster.replica.setup import T0, Setup, of, only, produced
from tests.storage.logs import NOW_MS
from tests.storage.validation.test_batches_that_unpack import equal_records

COUNT = STEP_RECORDS + 1
T1 = TopicPartition("t", 1)
COMPACTED = TopicPartition("keyed", 0)


def large(*, producer_id: int = -1, base_sequence: int = -1) -> bytes:
    """Return a batch of COUNT records in less than 100 bytes."""
    records = bytearray(equal_records(COUNT))
    if producer_id >= 0:
        set_producer_state(records, 0, producer_id=producer_id, producer_epoch=0, base_sequence=base_sequence)
    return bytes(records)


@final
class Produced:
    """Broker 1 leads partition 0, and whatever was produced to it in this test."""

    def __init__(self, **settings: int) -> None:
        self.setup = Setup(**settings)
        self.setup.now_ms = NOW_MS
        self.setup.place(leader=1, isr=(1,))
        self.jobs: list[RunJob] = []
        self.effects: list[Effect] = []

    def produce(
        self,
        records: bytes,
        topic_partition: TopicPartition = T0,
        *,
        acks: int = -1,
        timeout_ms: int = 30_000,
    ) -> None:
        asked = ProducePartition(topic_partition=topic_partition, records=records)
        self.note(self.setup.request(ProduceRequest(acks=acks, timeout_ms=timeout_ms, partitions=(asked,))))

    def note(self, effects: list[Effect]) -> None:
        self.effects += effects
        self.jobs += of(effects, RunJob)

    def run_slice(self) -> None:
        job = self.jobs.pop(0)
        assert job.kind == "validate", job
        job.work()
        self.setup.outbox.on_job_done(self.setup.now_ms, JobDone(job=job.job))
        self.note(self.setup.settle())

    def run_all(self) -> int:
        """Run all slices. Return their number."""
        count = 0
        while self.jobs:
            assert len(self.jobs) == 1, self.jobs
            self.run_slice()
            count += 1
        return count

    def answers(self) -> list[tuple[ErrorCode, int, int]]:
        """Return error, base and last offset of each answer, in the order in which they were sent."""
        found = [produced([reply]) for reply in of(self.effects, Reply)]
        return [(each.error, each.base_offset, each.last_offset) for each in found if each is not None]


def test_pro6_a_batch_of_very_many_records_is_checked_in_slices_and_then_appended() -> None:
    case = Produced()
    case.produce(large())
    assert case.setup.end == 0 and case.answers() == []
    assert case.run_all() > 3
    assert case.setup.end == COUNT
    assert case.answers() == [(ErrorCode.NONE, 0, COUNT - 1)]


def test_pro6_what_comes_for_the_partition_waits_behind_the_batch_that_is_checked() -> None:
    case = Produced()
    case.produce(large(producer_id=5, base_sequence=0))
    case.run_slice()
    case.produce(batch(b"next", producer_id=5, base_sequence=COUNT))
    case.produce(large(producer_id=5, base_sequence=COUNT + 1))
    case.produce(batch(b"last", producer_id=5, base_sequence=2 * COUNT + 1))
    assert case.setup.end == 0 and case.answers() == []
    case.run_all()
    ends = [(0, COUNT - 1), (COUNT, COUNT), (COUNT + 1, 2 * COUNT), (2 * COUNT + 1, 2 * COUNT + 1)]
    assert case.answers() == [(ErrorCode.NONE, *offsets) for offsets in ends]
    # Nothing waits any more: the next batch is appended in its own step.
    case.produce(batch(b"at once"))
    assert case.setup.end == 2 * COUNT + 3 and not case.jobs


@pytest.mark.parametrize("late", [batch(b"late"), large()], ids=["small", "large"])
def test_pro6_a_set_whose_time_is_over_before_its_checks_begin_is_refused(late: bytes) -> None:
    case = Produced()
    case.produce(large())
    case.produce(batch(b"in time"), timeout_ms=6)
    case.produce(late, timeout_ms=5)
    case.produce(batch(b"in time, too"))
    case.setup.now_ms += 6
    case.run_all()
    assert case.answers() == [
        (ErrorCode.NONE, 0, COUNT - 1),
        (ErrorCode.NONE, COUNT, COUNT),
        (ErrorCode.REQUEST_TIMED_OUT, -1, -1),
        (ErrorCode.NONE, COUNT + 1, COUNT + 1),
    ]
    assert case.setup.end == COUNT + 2


def test_pro6_a_set_whose_checks_have_begun_is_appended_however_late_it_is() -> None:
    case = Produced()
    case.produce(large(), timeout_ms=0)
    case.setup.now_ms += 1
    case.run_all()
    assert case.setup.end == COUNT


def test_pro7_a_retry_that_comes_while_the_batch_is_checked_gets_its_offsets() -> None:
    case = Produced()
    case.produce(large(producer_id=5, base_sequence=0))
    case.produce(large(producer_id=5, base_sequence=0))
    case.run_all()
    assert case.answers() == [(ErrorCode.NONE, 0, COUNT - 1)] * 2
    assert case.setup.end == COUNT


def test_what_is_dropped_of_acks_0_is_counted_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sliced_appends, "MAX_WAITING_BYTES", len(large()))
    case = Produced()
    case.produce(large(), acks=0)
    produces = case.setup.manager.produces
    assert produces.dropped == 0 and not caplog.records
    for _ in range(5):
        case.produce(batch(b"lost"), acks=0)
    # Who is told of the refusal is not counted.
    case.produce(batch(b"told"))
    assert produces.dropped == 5
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" reason=")[0] for line in lines] == [
        f"produce dropped: acks=0 topic_partition=t-0 dropped={count}" for count in (1, 2, 4)
    ]
    assert "bytes wait for their checks" in lines[0]


@pytest.mark.parametrize("acks", [0, -1])
def test_c6_what_waits_for_its_checks_is_bounded_whatever_its_acks_are(
    acks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request with acks=0 holds no place at its connection."""
    most = 10_000
    monkeypatch.setattr(sliced_appends, "MAX_WAITING_BYTES", most)
    case = Produced()
    small = batch(bytes(1_000))
    case.produce(large())
    for _ in range(30):
        case.produce(small, acks=acks)
    sliced = case.setup.manager.appends._sliced
    assert most - len(small) < sliced.waiting_bytes <= most
    waiting = len(sliced.queues[T0])
    refused = [(ErrorCode.REQUEST_TIMED_OUT, -1, -1)] * (31 - waiting)
    assert case.answers() == (refused if acks else [])
    case.run_all()
    # What was refused is not in the log, and all else is; then there is room again.
    assert case.setup.end == COUNT + waiting - 1 and sliced.waiting_bytes == 0
    case.produce(large())
    case.run_all()
    assert case.setup.end == 2 * COUNT + waiting - 1


def test_pro6_other_partitions_go_on_and_take_turns() -> None:
    case = Produced()
    case.setup.place(leader=1, isr=(1,), topic_partition=T1)
    case.produce(large())
    case.produce(batch(b"small"), T1)
    assert case.answers() == [(ErrorCode.NONE, 0, 0)]
    case.produce(large(), T1)
    assert len(case.jobs) == 1
    slices = case.run_all()
    alone = Produced()
    alone.produce(large())
    assert slices == 2 * alone.run_all()
    assert case.answers()[1:] == [(ErrorCode.NONE, 0, COUNT - 1), (ErrorCode.NONE, 1, COUNT)]


def test_a_few_partitions_are_checked_at_a_time_and_each_gets_its_turn() -> None:
    case = Produced()
    partitions = [TopicPartition("t", number) for number in range(MAX_AT_ONCE + 3)]
    for topic_partition in partitions[1:]:
        case.setup.place(leader=1, isr=(1,), topic_partition=topic_partition)
    for topic_partition in partitions:
        case.produce(large(), topic_partition)
    case.run_all()
    assert case.answers() == [(ErrorCode.NONE, 0, COUNT - 1)] * len(partitions)


def test_lv8_a_batch_that_is_refused_is_answered_with_the_reason_and_the_next_one_goes_on() -> None:
    case = Produced()
    case.setup.place(leader=1, isr=(1,), topic_partition=COMPACTED, configs={"cleanup.policy": "compact"})
    case.produce(large(), COMPACTED)
    case.produce(large()[:-1], COMPACTED)
    case.produce(batch(b"no key"), COMPACTED)
    case.run_all()
    codes = [error for error, _, _ in case.answers()]
    assert codes == [ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD]
    case.setup.set_topic(case.setup.image.topics["t"])
    case.produce(large())
    case.run_all()
    assert case.answers()[3:] == [(ErrorCode.NONE, 0, COUNT - 1)]


def test_pro6_leadership_that_ends_while_a_batch_is_checked_refuses_it_and_what_waits_behind_it() -> None:
    case = Produced()
    case.produce(large())
    case.produce(batch(b"next"))
    case.setup.place(leader=2, isr=(1, 2), leader_epoch=1, partition_epoch=1)
    case.run_all()
    codes = [error for error, _, _ in case.answers()]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert case.setup.end == 0


@pytest.mark.parametrize("is_deleted", [False, True])
def test_pro6_leadership_that_ends_refuses_more_batches_than_a_step_appends(
    is_deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Produced()
    sliced, asked = case.setup.manager.appends._sliced, 2 * STEP_WORK // STEP_RECORDS
    for _ in range(asked):
        case.produce(large())
    begin, begun = sliced._begin, 0

    def counted(append: SlicedAppend) -> SlicedValidation | None:
        nonlocal begun
        begun += 1
        assert begun <= asked, "the step has no end"
        return begin(append)

    monkeypatch.setattr(sliced, "_begin", counted)
    if is_deleted:
        removed = RemoveTopicRecord(name="t", topic_id=case.setup.image.topics["t"].topic_id)
        case.note(case.setup.replay(removed))
    else:
        case.note(case.setup.place(leader=2, isr=(1, 2), leader_epoch=1, partition_epoch=1))
    case.run_all()
    assert len(case.answers()) == asked and ErrorCode.NONE not in {error for error, _, _ in case.answers()}
    assert not sliced.queues and sliced.waiting_bytes == 0


def test_pro6_a_broker_that_stops_refuses_what_is_checked_and_appends_nothing() -> None:
    case = Produced()
    case.produce(large())
    case.produce(batch(b"next"))
    case.setup.manager.stop(case.setup.now_ms)
    case.note(case.setup.outbox.take())
    assert [error for error, _, _ in case.answers()] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    case.run_all()
    assert case.setup.end == 0


def test_a_caller_that_leaves_gets_no_answer_and_its_records_come_all_the_same() -> None:
    case = Produced()
    case.produce(large(producer_id=5, base_sequence=0))
    assert case.setup.manager.produces.waiting_count == 1
    case.setup.manager.produces.forget(1)
    assert case.setup.manager.produces.waiting_count == 0
    case.run_all()
    assert case.answers() == [] and case.setup.end == COUNT


def test_pro4_the_time_of_an_append_begins_with_its_request() -> None:
    case = Produced()
    case.setup.place(leader=1, isr=(1, 2), leader_epoch=1, partition_epoch=1)
    asked = ProducePartition(topic_partition=T0, records=large())
    case.note(case.setup.request(ProduceRequest(acks=-1, timeout_ms=1_000, partitions=(asked,))))
    case.setup.now_ms += 600
    case.run_all()
    assert case.setup.end == COUNT and case.answers() == []
    case.note(case.setup.wait(400, "produce.expiry"))
    assert [error for error, _, _ in case.answers()] == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_step_takes_only_so_many_batches_and_the_others_follow_by_jobs() -> None:
    case = Produced()
    records = batch(*[b""] * (STEP_RECORDS // 2))
    asked = tuple(ProducePartition(topic_partition=T0, records=records) for _ in range(14))
    effects = case.setup.request(ProduceRequest(acks=-1, partitions=asked))
    case.note(effects)
    in_the_step = case.setup.end // (STEP_RECORDS // 2)
    assert 0 < in_the_step < 14
    case.run_all()
    assert case.setup.end == 14 * (STEP_RECORDS // 2)
    body = only(case.effects, Reply).body
    answers: tuple[ProducePartitionResponse, ...] = getattr(body, "partitions", ())
    assert [each.base_offset for each in answers] == [index * (STEP_RECORDS // 2) for index in range(14)]


def test_rd8_a_look_up_by_time_in_a_large_batch_is_answered_after_a_job() -> None:
    case = Produced()
    case.produce(large())
    case.run_all()
    case.produce(batch(b"small"))
    asked = ListOffsetsRequest(topic_partition=T0, timestamp=NOW_MS)
    effects = case.setup.request(asked)
    assert only(effects, RunJob).kind == "search" and not of(effects, Reply)
    body = only(case.setup.run_jobs(effects), Reply).body
    assert isinstance(body, ListOffsetsResponse)
    assert (body.error, body.offset, body.timestamp) == (ErrorCode.NONE, 0, NOW_MS)


def test_rd8_leadership_that_ends_while_a_job_searches_refuses_the_look_up() -> None:
    case = Produced()
    case.produce(large())
    case.run_all()
    effects = case.setup.request(ListOffsetsRequest(topic_partition=T0, timestamp=NOW_MS))
    case.setup.place(leader=2, isr=(1, 2), leader_epoch=1, partition_epoch=1)
    body = only(case.setup.run_jobs(effects), Reply).body
    assert isinstance(body, ListOffsetsResponse) and body.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_rd8_a_look_up_by_time_over_many_segments_is_answered_after_a_second_step() -> None:
    setup = Setup()
    setup.place(leader=1, isr=(1,))
    log = setup.replica.log
    for _ in range(SEGMENTS_A_STEP + 5):
        log.append_as_leader(batch(b"small"), leader_epoch=0, now_ms=setup.now_ms)
        log.flushes.roll(now_ms=setup.now_ms)
    for segment in log.local.segments:
        # As after a start.
        segment._max_timestamp = None
    effects = setup.request(ListOffsetsRequest(topic_partition=T0, timestamp=NOW_MS + 1))
    assert only(effects, RunJob).kind == "search" and not of(effects, Reply)
    effects = setup.run_jobs(effects)
    assert not of(effects, RunJob)
    body = only(effects, Reply).body
    assert isinstance(body, ListOffsetsResponse)
    assert (body.error, body.offset) == (ErrorCode.NONE, -1)
