"""A broker whose effects are carried out by hand, which leads two partitions and follows two, one in each directory."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, final

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
from sim.disk import SimDisk
from tests.cluster.broker.cluster_by_hand import batch
from tests.cluster.broker.setup import CLUSTER_ID, BrokerSetup
from tests.cluster.replica.setup import stamped

TOPIC_ID: Final = "1f" * 16
# Seldom enough that the story is short.
SETTINGS: Final = {
    "log_flush_scheduler_interval_ms": 5_000,
    "log_retention_check_interval_ms": 60_000,
    "replica_high_watermark_checkpoint_interval_ms": 60_000,
    "producer_id_expiration_check_interval_ms": 60_000,
    "log_cleaner_backoff_ms": 60_000,
    "broker_heartbeat_interval_ms": 8_000,
}
# The configuration of the topic: flushes that are due by their count and by their time.
FLUSHED: Final = {"flush.messages": "4", "flush.ms": "4000"}
# Each directory gets one that this broker leads and one that it follows.
LED: Final = (TopicPartition("t", 0), TopicPartition("t", 1))
FOLLOWED: Final = (TopicPartition("t", 2), TopicPartition("t", 3))
OTHER: Final = Header(cluster_id=CLUSTER_ID, broker_id=2, broker_epoch=2, incarnation="2" * 32)


def metadata(configs: Mapping[str, str]) -> list[MetadataRecord]:
    other = RegisterBrokerRecord(broker_id=2, incarnation=OTHER.incarnation, host="h", port=9002)
    return [
        other,
        TopicRecord(name="t", topic_id=TOPIC_ID, configs=tuple(configs.items())),
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

    def __init__(
        self,
        disk: SimDisk | None = None,
        *,
        life: int = 1,
        configs: Mapping[str, str] = FLUSHED,
        breaks_for_good: bool = False,
    ) -> None:
        """Start the broker on the disk, an empty one by default, as its life of this number. Raises StorageError."""
        self._breaks_for_good, self.is_broken = breaks_for_good, False
        directories = ("one", "two")
        self.setup = BrokerSetup(disk, life=life, directories=directories, **SETTINGS)
        self.timers: dict[str, int] = {}
        self.unanswered: set[int] = set()
        self.fetches: dict[int, FetchRequest] = {}
        self.has_stopped = False
        # How many batches a test has produced to it.
        self.produced = 0
        self._due: deque[RunJob | Send] = deque()
        self.settle(self.setup.start())
        known = ClusterRecord(cluster_id=CLUSTER_ID), self.setup.own_registration(), *metadata(configs)
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
