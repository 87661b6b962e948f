"""A core that obeys the contract of `start` and `step` and answers by rule, to try shells with."""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster.core.effects import Effect, LearnEndpoint, Reply, RunJob, SetTimer, Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, JobDone, Request, Shutdown, TimerFired
from cluster.core.messages import (
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    RequestBody,
    ResponseBody,
)


def answer_to(body: RequestBody) -> ResponseBody:
    """Return the answer to a request.

    Produce: the length of the records as base offset. Fetch: as many bytes as the fetch offset.
    """
    match body:
        case ProduceRequest():
            return ProduceResponse(
                partitions=tuple(
                    ProducePartitionResponse(
                        topic_partition=item.topic_partition, base_offset=len(item.records)
                    )
                    for item in body.partitions
                )
            )
        case FetchRequest():
            return FetchResponse(
                partitions=tuple(
                    FetchPartitionResponse(
                        topic_partition=item.topic_partition,
                        high_watermark=item.fetch_offset,
                        records=bytes(item.fetch_offset),
                    )
                    for item in body.partitions
                )
            )
        case MetadataRequest():
            return MetadataResponse(cluster_id="echo", metadata_offset=7)
        case DeleteTopicRequest():
            return DeleteTopicResponse(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message=body.name)
        case _:
            raise AssertionError(body)


@dataclass
class EchoCore:
    """A core that echoes. The name of a topic chooses its answer.

    `wait` is answered by a timer, `job` by a job, `never` not at all, and `bug` raises. So is a fetch of `never`.
    """

    learn: tuple[LearnEndpoint, ...] = ()
    events: list[Event] = field(default_factory=list)
    jobs_run: list[int] = field(default_factory=list)
    refuses_metadata: bool = False
    # The calls that the shell told the core to drop.
    forgotten: list[int] = field(default_factory=list)

    def start(self, now_ms: int) -> list[Effect]:
        return list(self.learn)

    def forget(self, call: int) -> None:
        self.forgotten.append(call)

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        """Answer a request as the name of its topic or its type says."""
        self.events.append(event)
        match event:
            case Request(call=call, body=CreateTopicRequest(name=name)):
                return self._create(now_ms, call, name)
            case Request(call=call, body=MetadataRequest()) if self.refuses_metadata:
                return [Reply(call=call, body=MetadataResponse(error=ErrorCode.BROKER_NOT_AVAILABLE))]
            case Request(call=call, body=ProduceRequest(acks=0)):
                return []
            case Request(body=FetchRequest(partitions=(FetchPartition(topic_partition=("never", _)),))):
                return []
            case Request(call=call, body=body):
                return [Reply(call=call, body=answer_to(body))]
            case TimerFired(key=key):
                return [Reply(call=int(key), body=CreateTopicResponse(message="timer"))]
            case JobDone(job=job, error=error):
                return [Reply(call=job, body=CreateTopicResponse(message=f"job {error!r}"))]
            case Shutdown():
                return [Stop(reason="shutdown")]
            case _:
                return []

    def _create(self, now_ms: int, call: int, name: str) -> list[Effect]:
        match name:
            case "wait":
                return [SetTimer(key=str(call), at_ms=now_ms + 20)]
            case "job":
                return [RunJob(job=call, kind="flush", work=lambda: self.jobs_run.append(call))]
            case "never":
                return []
            case "bug":
                raise RuntimeError("a broken invariant")
            case _:
                return [Reply(call=call, body=CreateTopicResponse(topic_id=name))]
