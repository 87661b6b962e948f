"""One broker by hand: the test writes the controller's answers."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from cluster.core.bounds import StepBounds
from cluster.core.broker.broker import Broker
from cluster.core.config import BrokerConfig
from cluster.core.effects import Effect, RunJob
from cluster.core.events import JobDone, Request, Response, TimerFired, TransportError
from cluster.core.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    FetchMetadataRequest,
    FetchMetadataResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RequestBody,
    ResponseBody,
)
from cluster.core.metadata.batches import build_change
from cluster.core.metadata.records import ClusterRecord, MetadataRecord, RegisterBrokerRecord
from sim.disk import SimDisk
from sim.disk.life import Life
from storage.batch import stamp
from storage.draws import Draws
from tests.cluster.replica.setup import only_sent, sent

CLUSTER_ID = "0123456789abcdef0123456789abcdef"
BROKER_EPOCH = 1


@final
class BrokerSetup:
    """A broker over a simulated disk. `boot` brings it up: registered with epoch 1, caught up, unfenced.

    The records given to `boot` are in the first image.
    """

    def __init__(
        self,
        disk: SimDisk | None = None,
        *,
        life: int = 1,
        directories: str | tuple[str, ...] = "data",
        **settings: int | StepBounds,
    ) -> None:
        self.now_ms = 1_000_000
        self.disk = disk or SimDisk(Draws(3), lambda: self.now_ms)
        config = replace(BrokerConfig(node_id=1, port=9001), **settings)  # type: ignore[arg-type]
        file_system = self.disk.file_system(Life(f"1#{life}"))
        self.broker = Broker(config, file_system, directories, Draws(5).child("life", life))
        self._next_call = 0
        self.metadata_end = 0
        # The call of the metadata fetch in flight.
        self.metadata_fetch = -1

    def start(self) -> list[Effect]:
        effects = self.broker.start(self.now_ms)
        self._note(effects)
        return effects

    def _note(self, effects: list[Effect]) -> list[Effect]:
        for send in of_sends(effects, FetchMetadataRequest):
            self.metadata_fetch = send
        return effects

    def ask(self, body: RequestBody) -> list[Effect]:
        self._next_call += 1
        return self._note(self.broker.step(self.now_ms, Request(call=self._next_call, body=body)))

    def answer(self, call: int, body: ResponseBody | TransportError) -> list[Effect]:
        return self._note(self.broker.step(self.now_ms, Response(call=call, body=body)))

    def fire(self, timer: str, after_ms: int = 0) -> list[Effect]:
        self.now_ms += after_ms
        return self._note(self.broker.step(self.now_ms, TimerFired(key=timer)))

    def finish(self, job: RunJob, error: Exception | None = None) -> list[Effect]:
        """Do the job's work, unless it is to fail with `error`, and report how it has ended."""
        if error is None:
            try:
                job.work()
            except Exception as raised:
                error = raised
        return self._note(self.broker.step(self.now_ms, JobDone(job=job.job, error=error)))

    def metadata(self, *records: MetadataRecord) -> list[Effect]:
        """Answer the metadata fetch with the next records, as one committed batch."""
        data = b""
        if records:
            batch = bytearray(*build_change(records, timestamp_ms=self.now_ms, max_bytes=1 << 20))
            stamp(batch, 0, base_offset=self.metadata_end, partition_leader_epoch=0)
            data = bytes(batch)
            self.metadata_end += len(records)
        return self.answer(
            self.metadata_fetch, FetchMetadataResponse(high_watermark=self.metadata_end, records=data)
        )

    def boot(self, *records: MetadataRecord) -> list[Effect]:
        """Start, register, catch up with `records` in the first image, and unfence. Returns the last effects."""
        registration = only_sent(self.start(), RegisterBrokerRequest)
        effects = self.answer(
            registration.call, RegisterBrokerResponse(broker_epoch=BROKER_EPOCH, cluster_id=CLUSTER_ID)
        )
        beat = only_sent(effects, BrokerHeartbeatRequest)
        self.answer(beat.call, BrokerHeartbeatResponse(is_fenced=True))
        beat = only_sent(
            self.metadata(ClusterRecord(cluster_id=CLUSTER_ID), self.own_registration(), *records),
            BrokerHeartbeatRequest,
        )
        return self.answer(beat.call, BrokerHeartbeatResponse(is_fenced=False, is_caught_up=True))

    def own_registration(self) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=1, incarnation=self.broker.lifecycle.incarnation, host="127.0.0.1", port=9001
        )


def of_sends(effects: list[Effect], body: type[RequestBody]) -> list[int]:
    return [send.call for send in sent(effects, body)]
