"""A controller on a simulated disk, with its jobs carried out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from cluster.core.controller.config import ControllerConfig
from cluster.core.controller.controller import Controller
from cluster.core.effects import Effect, Observe, Reply, RunJob, SetTimer
from cluster.core.events import JobDone, Request, Shutdown, TimerFired
from cluster.core.messages import (
    NO_BROKER_EPOCH,
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    CreateTopicRequest,
    CreateTopicResponse,
    FetchMetadataRequest,
    Header,
    IsrMember,
    OfflinePartition,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RequestBody,
    ResponseBody,
    TopicPartition,
)
from cluster.core.metadata.image import PartitionRegistration
from sim.disk import SimDisk
from sim.disk.life import Life
from storage.draws import Draws

DIRECTORY = "data/controller"
T0 = TopicPartition("t", 0)


class ControllerBench:
    """A controller under test. `ask` does one step and the jobs that it wants; `step` leaves the jobs in `jobs`."""

    def __init__(self, config: ControllerConfig | None = None, *, disk: SimDisk | None = None) -> None:
        self.now_ms = 0
        self.disk = disk or SimDisk(Draws(5), lambda: self.now_ms * 1000)
        self.config = config or ControllerConfig()
        self.jobs: list[RunJob] = []
        self.timers: dict[str, int] = {}
        self.seen: list[Effect] = []
        self._next_call = 0
        # Of all leaders.
        self._attempts = count()
        self.controller = self._start()

    def _start(self) -> Controller:
        self.life = Life("controller")
        file_system = self.disk.file_system(self.life)
        controller = Controller(self.config, file_system, DIRECTORY, Draws(7))
        self.controller = controller
        self.jobs, self.timers = [], {}
        self.run_jobs(self._take(controller.start(self.now_ms)))
        return controller

    def crash_and_restart(self) -> None:
        """Kill the process and start it again. What it wrote stays in the page cache."""
        self.life.kill()
        self.disk.crash_process()
        self.controller = self._start()

    def lose_power_and_restart(self) -> None:
        """Cut the power and start again. Only what was synced stays."""
        self.life.kill()
        self.disk.lose_power("none")
        self.controller = self._start()

    def _take(self, effects: Sequence[Effect]) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, RunJob):
                self.jobs.append(effect)
            elif isinstance(effect, SetTimer):
                self.timers[effect.key] = effect.at_ms
        self.seen += effects
        return list(effects)

    def run_jobs(self, effects: list[Effect] | None = None) -> list[Effect]:
        """Run all waiting jobs, and the jobs that follow from them."""
        effects = [] if effects is None else effects
        while self.jobs:
            job = self.jobs.pop(0)
            job.work()
            effects += self._take(self.controller.step(self.now_ms, JobDone(job=job.job)))
        return effects

    def finish(self, job: RunJob, error: Exception | None = None) -> list[Effect]:
        """Report the end of a job."""
        return self._take(self.controller.step(self.now_ms, JobDone(job=job.job, error=error)))

    def step(self, body: RequestBody) -> tuple[int, list[Effect]]:
        """Do one request and no job. Returns its call number."""
        self._next_call += 1
        request = Request(call=self._next_call, body=self._with_header(body))
        return self._next_call, self._take(self.controller.step(self.now_ms, request))

    def _with_header(self, body: RequestBody) -> RequestBody:
        """Name the sender of a broker's request, unless the test does."""
        match body:
            case AllocateProducerIdsRequest() | AlterPartitionRequest() | BrokerHeartbeatRequest():
                return replace(body, header=body.header or self.header_of(body.broker_id, body.broker_epoch))
            case FetchMetadataRequest():
                return replace(body, header=body.header or self.header_of(body.broker_id, NO_BROKER_EPOCH))
            case _:
                return body

    def header_of(self, broker_id: int, broker_epoch: int) -> Header:
        """Return the header of the broker's registered incarnation, with that epoch."""
        image = self.controller.pending_image
        known = image.brokers.get(broker_id)
        return Header(
            cluster_id=image.cluster_id,
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            incarnation="" if known is None else known.incarnation,
        )

    def ask(self, body: RequestBody) -> ResponseBody:
        call, effects = self.step(body)
        (answer,) = [each for each in self.run_jobs(effects) if isinstance(each, Reply) and each.call == call]
        return answer.body

    def fire(self, key: str) -> list[Effect]:
        """Move the time to the timer of that key and fire it."""
        self.now_ms = max(self.now_ms, self.timers.pop(key))
        return self.run_jobs(self._take(self.controller.step(self.now_ms, TimerFired(key=key))))

    def shut_down(self) -> list[Effect]:
        return self._take(self.controller.step(self.now_ms, Shutdown()))

    # Commands

    def register(self, broker_id: int, incarnation: str = "first") -> RegisterBrokerResponse:
        """Register a broker, by default in its first incarnation."""
        answer = self.ask(
            RegisterBrokerRequest(
                broker_id=broker_id, incarnation=incarnation, host="h", port=9000 + broker_id
            )
        )
        assert isinstance(answer, RegisterBrokerResponse)
        return answer

    def heartbeat(
        self,
        broker_id: int,
        *,
        broker_epoch: int | None = None,
        metadata_offset: int | None = None,
        want_fence: bool = False,
        want_shutdown: bool = False,
        offline: tuple[TopicPartition, ...] = (),
        topic_id: str | None = None,
    ) -> BrokerHeartbeatResponse:
        """Send a heartbeat of the broker's current incarnation, by default as caught up."""
        image = self.controller.image
        answer = self.ask(
            BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=image.broker_epoch(broker_id) if broker_epoch is None else broker_epoch,
                metadata_offset=image.next_offset if metadata_offset is None else metadata_offset,
                want_fence=want_fence,
                want_shutdown=want_shutdown,
                offline_partitions=tuple(
                    OfflinePartition(
                        topic_partition=each,
                        topic_id=self.topic_id(each.topic) if topic_id is None else topic_id,
                    )
                    for each in offline
                ),
            )
        )
        assert isinstance(answer, BrokerHeartbeatResponse)
        return answer

    def unfenced(self, *broker_ids: int) -> ControllerBench:
        for broker_id in broker_ids:
            self.register(broker_id)
            self.heartbeat(broker_id)
        return self

    def fence(self, broker_id: int) -> BrokerHeartbeatResponse:
        return self.heartbeat(broker_id, want_fence=True)

    def create(
        self,
        name: str = "t",
        *,
        assignment: tuple[tuple[int, ...], ...] = (),
        partitions: int = 1,
        replication_factor: int = 1,
        configs: tuple[tuple[str, str], ...] = (),
    ) -> CreateTopicResponse:
        """Create a topic, by default `t` with one partition."""
        answer = self.ask(
            CreateTopicRequest(
                name=name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
                assignment=assignment,
            )
        )
        assert isinstance(answer, CreateTopicResponse)
        return answer

    def alter(
        self,
        *isr: int,
        sender: int = 1,
        broker_epoch: int | None = None,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        member_epochs: dict[int, int] | None = None,
        topic_partition: TopicPartition = T0,
        topic_id: str | None = None,
        attempt: int | None = None,
    ) -> AlterPartitionResponse:
        """Ask for a change of the ISR by default as a leader that knows the present state."""
        image = self.controller.image
        partition = image.partition(topic_partition)
        epochs = member_epochs or {}
        known = (partition.leader_epoch, partition.partition_epoch) if partition else (0, 0)
        answer = self.ask(
            AlterPartitionRequest(
                broker_id=sender,
                broker_epoch=image.broker_epoch(sender) if broker_epoch is None else broker_epoch,
                topic_partition=topic_partition,
                topic_id=self.topic_id(topic_partition.topic) if topic_id is None else topic_id,
                leader_epoch=known[0] if leader_epoch is None else leader_epoch,
                partition_epoch=known[1] if partition_epoch is None else partition_epoch,
                new_isr=tuple(
                    IsrMember(broker_id=each, broker_epoch=epochs.get(each, image.broker_epoch(each)))
                    for each in isr
                ),
                attempt=next(self._attempts) if attempt is None else attempt,
            )
        )
        assert isinstance(answer, AlterPartitionResponse)
        return answer

    def topic_id(self, topic: str) -> str:
        known = self.controller.image.topics.get(topic)
        return "" if known is None else known.topic_id

    def partition(self, topic_partition: TopicPartition = T0) -> PartitionRegistration:
        partition = self.controller.image.partition(topic_partition)
        assert partition is not None, topic_partition
        return partition

    def observed(self, kind: str) -> list[dict[str, int | str]]:
        return [dict(each.fields) for each in self.seen if isinstance(each, Observe) and each.kind == kind]
