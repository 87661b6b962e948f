"""A client and a server without I/O, which run in both worlds: they do what a script says, and note what comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, final

from cluster.core.connection.outgoing import Answer
from cluster.core.effects import Effect, Reply, Send, Stop
from cluster.core.events import Event, JobDone, Request, Response, Shutdown, TimerFired, TransportError
from cluster.core.messages import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    RequestBody,
    ResponseBody,
    TopicPartition,
)

SERVER = 1
# The number of a request at which the core of a server fails.
BROKEN = 666
LONG_MS = 60_000
# The three streams, and the calls that travel alone.
Kind = Literal["produce", "fetch", "replica", "alone"]
T0 = TopicPartition("t", 0)
# What a reason of either world means to a caller.
_KINDS = (
    ("no answer in", "deadline"),
    ("the answer is out of bounds", "out of bounds"),
    ("RESOURCE_EXHAUSTED", "too large"),
    ("INVALID_ARGUMENT", "malformed"),
    ("bytes are no", "malformed"),
    ("UNAVAILABLE", "lost"),
    ("CANCELLED", "lost"),
    ("the peer ended the stream", "lost"),
    ("connection", "lost"),
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request that a script sends: it is known by its number on both sides."""

    number: int
    kind: Kind = "produce"
    timeout_ms: int = LONG_MS
    acks: int = -1
    # The bytes of records of a produce request; what a fetch asks for.
    size_bytes: int = 0
    topic: str = "t"

    def effect(self) -> Send:
        return Send(
            to=SERVER, call=self.number, body=self._body(), timeout_ms=self.timeout_ms,
            expects_reply=self.acks != 0,
        )  # fmt: skip

    def _body(self) -> RequestBody:
        partition = TopicPartition(self.topic, self.number)
        match self.kind:
            case "produce":
                records = ProducePartition(topic_partition=partition, records=bytes(self.size_bytes))
                return ProduceRequest(acks=self.acks, partitions=(records,))
            case "alone":
                # Names of a hundred bytes each.
                more = (f"{self.topic:x>100}",) * (self.size_bytes // 100)
                return MetadataRequest(topics=(str(self.number), *more))
            case _:
                wanted = FetchPartition(topic_partition=partition, fetch_offset=self.size_bytes)
                replica_id = 7 if self.kind == "replica" else -1
                return FetchRequest(replica_id=replica_id, partitions=(wanted,))


def number_of(body: RequestBody) -> int:
    """The number of the request that a script has sent."""
    if isinstance(body, MetadataRequest):
        assert body.topics is not None
        return int(body.topics[0])
    assert isinstance(body, (ProduceRequest, FetchRequest))
    return body.partitions[0].topic_partition.partition


def answer_to(body: RequestBody) -> ResponseBody:
    """The answer that has the request's number; to a fetch with as many bytes as its offset."""
    number = number_of(body)
    match body:
        case ProduceRequest():
            produced = ProducePartitionResponse(topic_partition=T0, base_offset=number)
            return ProduceResponse(partitions=(produced,))
        case FetchRequest():
            size = body.partitions[0].fetch_offset
            fetched = FetchPartitionResponse(topic_partition=T0, high_watermark=number, records=bytes(size))
            return FetchResponse(partitions=(fetched,))
        case _:
            return MetadataResponse(cluster_id=str(number))


def seen_of(answer: Answer) -> str:
    """What a caller sees: the number in an answer, the error in it, or how the call failed."""
    match answer:
        case TransportError(reason=reason):
            # A reason that is not in the table is seen as it is, and the worlds differ.
            return next((kind for text, kind in _KINDS if text in reason), reason)
        case ProduceResponse() | FetchResponse() | MetadataResponse() if answer.error:
            return answer.error.name
        case ProduceResponse(partitions=(item,)):
            return f"produced {item.base_offset}"
        case FetchResponse(partitions=(fetched,)):
            return f"fetched {fetched.high_watermark}, {len(fetched.records)} bytes"
        case MetadataResponse(cluster_id=text):
            return f"found {text}"
    raise AssertionError(answer)


@final
class Client:
    """Notes each answer, in order, under the number of its request."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.answers: list[tuple[int, str]] = []

    def step(self, now_ms: int, event: Event) -> Sequence[Effect]:
        assert isinstance(event, Response), event
        self.answers.append((event.call, seen_of(event.body)))
        self._changed()
        return ()

    def of(self, number: int) -> list[str]:
        """Every answer to one request; a core gets exactly one."""
        return [seen for each, seen in self.answers if each == number]


@final
class Server:
    """Answers each request, but for those that it keeps until it is told to release them."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.keeps = False
        # The numbers of the requests that came, and how many came in each step.
        self.asked: list[int] = []
        self.turns: list[int] = []
        # What else came: timers, and ends of jobs.
        self.events: list[str] = []
        self.forgotten: list[int] = []
        self._kept: dict[int, Request] = {}
        self._numbers: dict[int, int] = {}
        # What is answered instead of the echo, by number; an answer may be broken on purpose.
        self.instead: dict[int, ResponseBody] = {}

    def start(self, now_ms: int) -> Sequence[Effect]:
        return ()

    def step(self, now_ms: int, event: Event) -> Sequence[Effect]:
        return self.steps(now_ms, (event,))

    def steps(self, now_ms: int, events: Sequence[Event]) -> Sequence[Effect]:
        requests = [event for event in events if isinstance(event, Request)]
        if requests:
            self.turns.append(len(requests))
        effects = [effect for event in events for effect in self._on(event)]
        self._changed()
        return effects

    def _on(self, event: Event) -> Sequence[Effect]:
        match event:
            case Request():
                assert number_of(event.body) != BROKEN, "a broken invariant"
                return self._on_request(event)
            case TimerFired(key=key):
                self.events.append(f"timer {key}")
            case JobDone(job=job, error=error):
                self.events.append(f"job {job} {error!r}")
            case Shutdown():
                return [*self.release(*self._kept), Stop(reason="shutdown")]
            case _:
                raise AssertionError(event)
        return ()

    def _on_request(self, request: Request) -> Sequence[Effect]:
        number = number_of(request.body)
        self.asked.append(number)
        self._numbers[request.call] = number
        if isinstance(request.body, ProduceRequest) and request.body.acks == 0:
            return ()
        self._kept[number] = request
        return () if self.keeps else self.release(number)

    def release(self, *numbers: int) -> list[Effect]:
        """Answers requests that were kept, in this order."""
        kept = [self._kept.pop(number) for number in numbers]
        return [
            Reply(call=request.call, body=self.instead.get(number) or answer_to(request.body))
            for number, request in zip(numbers, kept, strict=True)
        ]

    def forget(self, call: int) -> None:
        self.forgotten.append(self._numbers[call])
        self._changed()
