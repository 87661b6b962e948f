"""A disk error at any call of a broker's steps and jobs: every request is answered, and the broker's timers stand.

The directory whose disk fails goes offline (KIP-112, AP16); what the other one holds is served as before.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, final

import pytest

from cluster.core.effects import CancelTimer, Effect, Reply, RunJob, Send, SetTimer, Stop
from cluster.core.events import JobDone, TransportError
from cluster.core.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    FetchMetadataRequest,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    Header,
    ListOffsetsRequest,
    ProducePartition,
    ProduceRequest,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RequestBody,
    TopicPartition,
)
from cluster.core.metadata.records import (
    ClusterRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from sim.disk.faults import ALL_VERBS, READ_OR_MUTATE
from tests.cluster.broker.cluster_by_hand import batch
from tests.cluster.broker.setup import CLUSTER_ID, BrokerSetup
from tests.cluster.replica.setup import stamped

TOPIC_ID: Final = "1f" * 16
# An error of one call; of all calls of the directory from then on; a process without a descriptor for one call.
FAULTS: Final = ("error", "breaks", "lack")
# Seldom enough that the story is short.
SETTINGS: Final = {
    "log_flush_scheduler_interval_ms": 5_000,
    "log_retention_check_interval_ms": 60_000,
    "replica_high_watermark_checkpoint_interval_ms": 60_000,
    "producer_id_expiration_check_interval_ms": 60_000,
    "log_cleaner_backoff_ms": 60_000,
    "broker_heartbeat_interval_ms": 8_000,
}
# Each directory gets one that this broker leads and one that it follows.
LED: Final = (TopicPartition("t", 0), TopicPartition("t", 1))
FOLLOWED: Final = (TopicPartition("t", 2), TopicPartition("t", 3))
OTHER: Final = Header(cluster_id=CLUSTER_ID, broker_id=2, broker_epoch=2, incarnation="2" * 32)


def metadata() -> list[MetadataRecord]:
    other = RegisterBrokerRecord(broker_id=2, incarnation=OTHER.incarnation, host="h", port=9002)
    return [
        other,
        TopicRecord(name="t", topic_id=TOPIC_ID, configs=(("flush.messages", "4"), ("flush.ms", "4000"))),
        *(
            PartitionRecord(
                topic=each.topic, partition=each.partition, replicas=(1, 2), isr=(1, 2), leader=leader
            )
            for leader, partitions in ((1, LED), (2, FOLLOWED))
            for each in partitions
        ),
    ]


@final
class Driven:
    """A broker whose effects are carried out by hand: its timers fire, its jobs run, its requests get answers."""

    def __init__(self, *, breaks_for_good: bool = False) -> None:
        self._breaks_for_good, self.is_broken = breaks_for_good, False
        self.setup = BrokerSetup(directories=("one", "two"), **SETTINGS)  # type: ignore[arg-type]  # ints only
        self.timers: dict[str, int] = {}
        self.unanswered: set[int] = set()
        self.fetches: dict[int, FetchRequest] = {}
        self.has_stopped = False
        self._due: deque[RunJob | Send] = deque()
        self.settle(self.setup.start())
        known = ClusterRecord(cluster_id=CLUSTER_ID), self.setup.own_registration(), *metadata()
        self.settle(self.setup.metadata(*known))

    def settle(self, effects: list[Effect]) -> None:
        """Carry out the effects, and those that follow."""
        self._note(effects)
        self._break()
        while self._due and not self.has_stopped:
            match self._due.popleft():
                case RunJob() as job:
                    self._run(job)
                case Send(call=call, body=RegisterBrokerRequest()):
                    answer = RegisterBrokerResponse(broker_epoch=1, cluster_id=CLUSTER_ID)
                    self._note(self.setup.answer(call, answer))
                case Send(call=call, body=BrokerHeartbeatRequest()):
                    self._note(
                        self.setup.answer(
                            call,
                            BrokerHeartbeatResponse(
                                is_fenced=self.setup.metadata_end == 0, is_caught_up=True
                            ),
                        )
                    )
                case Send(call=call, body=FetchRequest() as body):
                    self.fetches[call] = body
                case Send(body=FetchMetadataRequest()):
                    pass
                case Send(call=call):
                    self._note(self.setup.answer(call, TransportError(reason="away")))

    def _break(self) -> None:
        """Break the directory that met the first error, if errors last here."""
        disk = self.setup.disk
        if self._breaks_for_good and not self.is_broken and disk.has_refused:
            self.is_broken = True
            disk.break_directory("one" if disk.refused("one") else "two")

    def _note(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SetTimer(key=key, at_ms=at_ms):
                    self.timers[key] = at_ms
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case Reply(call=call):
                    # A second answer would fail here.
                    self.unanswered.remove(call)
                case RunJob() | Send():
                    self._due.append(effect)
                case Stop():
                    self.has_stopped = True

    def _run(self, job: RunJob) -> None:
        error: Exception | None = None
        try:
            job.work()
        except Exception as raised:
            error = raised
        self._note(self.setup.broker.step(self.setup.now_ms, JobDone(job=job.job, error=error)))

    def ask(self, body: RequestBody) -> None:
        self.unanswered.add(self.setup._next_call + 1)
        self.settle(self.setup.ask(body))

    def answer_fetches(self, records: bytes) -> None:
        """Answer the fetches that wait at a leader: each partition of them gets `records`, or nothing if empty."""
        waiting, self.fetches = self.fetches, {}
        for call, asked in waiting.items():
            answers = tuple(_answer(each, records) for each in asked.partitions)
            self.settle(self.setup.answer(call, FetchResponse(partitions=answers)))

    def advance(self, for_ms: int) -> None:
        """Fire the timers that are due until then, in their order."""
        end_ms = self.setup.now_ms + for_ms
        while self.timers and not self.has_stopped:
            key = min(self.timers, key=lambda each: (self.timers[each], each))
            at_ms = self.timers[key]
            if at_ms > end_ms:
                break
            del self.timers[key]
            self.settle(self.setup.fire(key, max(0, at_ms - self.setup.now_ms)))
        self.setup.now_ms = max(end_ms, self.setup.now_ms)


def _answer(asked: FetchPartition, records: bytes) -> FetchPartitionResponse:
    end = asked.fetch_offset + (1 if records else 0)
    # The high watermark is behind the records, as it is of a leader that waits for this very follower.
    return FetchPartitionResponse(
        topic_partition=asked.topic_partition,
        high_watermark=asked.fetch_offset,
        log_start_offset=0,
        log_end_offset=end,
        leader_id=2,
        leader_epoch=asked.current_leader_epoch,
        records=stamped(asked.fetch_offset, asked.current_leader_epoch, records) if records else b"",
    )


def produced(partitions: Sequence[TopicPartition], *, acks: int) -> ProduceRequest:
    asked = tuple(ProducePartition(topic_partition=each, records=batch(b"x", b"y")) for each in partitions)
    return ProduceRequest(acks=acks, timeout_ms=1_000, partitions=asked)


def fetched(
    partitions: Sequence[TopicPartition], offset: int, *, by: int, epoch: int = 0, last_epoch: int = 0
) -> FetchRequest:
    """Return a fetch by broker `by`, or by a consumer for -1."""
    asked = tuple(
        FetchPartition(
            topic_partition=each,
            topic_id=TOPIC_ID,
            fetch_offset=offset,
            current_leader_epoch=epoch,
            last_fetched_epoch=last_epoch if offset else -1,
        )
        for each in partitions
    )
    header, broker_epoch = (OTHER, OTHER.broker_epoch) if by >= 0 else (None, -1)
    return FetchRequest(
        replica_id=by, broker_epoch=broker_epoch, header=header, max_wait_ms=400, partitions=asked
    )


def elected(leader: int, partitions: Sequence[TopicPartition]) -> list[MetadataRecord]:
    return [PartitionChangeRecord(topic="t", partition=each.partition, leader=leader) for each in partitions]


def story(driven: Driven) -> None:
    """Drive a broker through reads, appends, flushes, checkpoints and roles, and through every request's time."""
    driven.ask(produced(LED, acks=-1))
    driven.ask(fetched(LED, 0, by=2))
    driven.ask(fetched(LED, 0, by=-1))
    driven.ask(fetched(LED, 2, by=2))
    for timestamp in (0, -1, -3):
        driven.ask(ListOffsetsRequest(topic_partition=LED[0], topic_id=TOPIC_ID, timestamp=timestamp))
    for _ in range(3):
        driven.answer_fetches(b"some")
    driven.advance(6_000)
    driven.ask(produced(LED, acks=1))
    driven.ask(fetched(LED, 4, by=2))
    driven.advance(65_000)
    driven.ask(produced(LED, acks=-1))
    driven.settle(driven.setup.metadata(*elected(2, LED), *elected(1, FOLLOWED)))
    # The place of the high watermark, which was below the end, is looked up as the follower gets ahead of it.
    driven.ask(fetched(FOLLOWED, 3, by=2, epoch=1))
    driven.ask(fetched(FOLLOWED, 0, by=-1, epoch=1))
    driven.ask(produced(FOLLOWED, acks=-1))
    driven.ask(fetched(FOLLOWED, 5, by=2, epoch=1, last_epoch=1))
    driven.answer_fetches(b"some")
    driven.advance(65_000)


def standing(driven: Driven) -> set[str]:
    """Return the timers of the broker itself; those of single replicas have a colon."""
    return {key for key in driven.timers if ":" not in key}


def struck(number: int, fault: str) -> Driven | None:
    """Tell the story with an error at the disk's call `number`; return None if it ends before that call.

    With `breaks`, all later calls of the directory fail too; with `lack`, the process has no descriptor left once.
    """
    driven = Driven(breaks_for_good=fault == "breaks")
    is_lack = fault == "lack"
    driven.setup.disk.fail(
        number, errno.EMFILE if is_lack else errno.EIO, verbs=ALL_VERBS if is_lack else READ_OR_MUTATE
    )
    story(driven)
    return None if driven.setup.disk.has_faults and not driven.is_broken else driven


def check_each(fault: str, numbers: Iterable[int]) -> int:
    """Check the broker after a fault at each of these calls, as far as the story has them. Return how many it had."""
    clean = Driven()
    story(clean)
    for count, number in enumerate(numbers):
        driven = struck(number, fault)
        if driven is None:
            return count
        assert not driven.has_stopped, number
        assert not driven.unanswered, (number, driven.unanswered)
        assert standing(driven) >= standing(clean), (number, standing(clean) - standing(driven))
    raise AssertionError("the story had more calls")


def test_without_a_fault_every_request_of_the_story_is_answered() -> None:
    driven = Driven()
    story(driven)
    assert not driven.unanswered and not driven.has_stopped
    assert len(standing(driven)) > 6, standing(driven)


@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_at_some_calls_each_request_is_answered_and_each_timer_stands(fault: str) -> None:
    assert check_each(fault, range(3, 1_000, 31)) > 4


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_at_any_call_each_request_is_answered_and_each_timer_stands(fault: str) -> None:
    assert check_each(fault, range(1, 10_000)) > 120
