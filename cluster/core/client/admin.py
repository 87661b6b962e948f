"""The admin client without I/O: sends each call to a node that answers, and repeats it while that may help."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from cluster.core.client.config import AdminConfig
from cluster.core.client.effects import AdminEffect, Answered, Described
from cluster.core.client.metadata_cache import MetadataUpdater
from cluster.core.effects import Send, SetTimer, Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import (
    Event,
    JobDone,
    Request,
    Response,
    Shutdown,
    TimerFired,
    TransportError,
)
from cluster.core.messages import (
    AlterTopicConfigsRequest,
    AlterTopicConfigsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    MetadataRequest,
    MetadataResponse,
    ResponseBody,
)

WAKE_TIMER = "admin.wake"
AdminRequest = (
    CreateTopicRequest
    | DeleteTopicRequest
    | AlterTopicConfigsRequest
    | CreatePartitionsRequest
    | MetadataRequest
)
# A producer or consumer tries again after this error; for an admin it is the answer.
_NEVER_IN_PLACE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
# The node did not answer, or is a broker that is starting: another may help now, and this one later.
_OF_THE_NODE = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE)


@dataclass(slots=True, kw_only=True)
class _Task:
    """One call of the user; with `is_description`, a DescribeReplicas to each broker follows its answer."""

    ticket: int
    body: AdminRequest
    deadline_ms: int
    retry_at_ms: int
    call: int | None = None
    is_description: bool = False
    last_error: ErrorCode = ErrorCode.NETWORK_EXCEPTION
    last_message: str = ""


@dataclass(slots=True, kw_only=True)
class _Description:
    ticket: int
    metadata: MetadataResponse
    calls: dict[int, None] = field(default_factory=dict)
    replicas: list[DescribeReplicasResponse] = field(default_factory=list)


@final
class AdminCore:
    """The admin's state: call `ask`, `describe` and `step` on one thread; each ticket gets one answer."""

    def __init__(self, config: AdminConfig) -> None:
        self.config = config
        self.metadata = MetadataUpdater(
            retry_backoff_ms=config.retry_backoff_ms,
            request_timeout_ms=config.request_timeout_ms,
            max_age_ms=config.default_api_timeout_ms * 5,
        )
        self._tasks: dict[int, _Task] = {}
        self._descriptions: list[_Description] = []
        self._next_call = 0
        self._armed_ms: int | None = None
        self._is_stopped = False

    def ask(self, now_ms: int, body: AdminRequest, *, ticket: int) -> list[AdminEffect]:
        """Sends a call to a node. A repeated creation may find the topic that the first one made."""
        self._add(now_ms, body, ticket, is_description=False)
        return self._run(now_ms)

    def describe(
        self, now_ms: int, topics: tuple[str, ...] | None = None, *, ticket: int
    ) -> list[AdminEffect]:
        """Asks for metadata, then each broker for its replicas of `topics` (None: all).

        Brokers that are silent or refuse are left out.
        """
        self._add(now_ms, MetadataRequest(topics=topics), ticket, is_description=True)
        return self._run(now_ms)

    def step(self, now_ms: int, event: Event) -> list[AdminEffect]:
        """Takes an answer, a timer or `Shutdown`; returns what it leads to, nothing after `Shutdown`."""
        if self._is_stopped:
            return []
        effects: list[AdminEffect] = []
        match event:
            case Response():
                effects += self._on_response(now_ms, event.call, event.body)
            case TimerFired():
                self._armed_ms = None
            case Shutdown():
                self._is_stopped = True
                return [Stop(reason="shutdown")]
            case Request() | JobDone():
                pass
        effects += self._run(now_ms)
        # Nothing would ever end it.
        assert not self._descriptions or self._descriptions[-1].calls, self._descriptions[-1]
        return effects

    def _add(self, now_ms: int, body: AdminRequest, ticket: int, *, is_description: bool) -> None:
        assert ticket not in self._tasks, ticket
        # Nobody would answer it.
        assert not self._is_stopped, ticket
        self._tasks[ticket] = _Task(
            ticket=ticket,
            body=body,
            deadline_ms=now_ms + self.config.default_api_timeout_ms,
            retry_at_ms=now_ms,
            is_description=is_description,
        )

    def _run(self, now_ms: int) -> list[AdminEffect]:
        effects: list[AdminEffect] = []
        for task in list(self._tasks.values()):
            if task.call is None and now_ms >= task.deadline_ms:
                effects.append(self._give_up(task))
            elif task.call is None and task.retry_at_ms <= now_ms:
                effects.append(self._send(now_ms, task))
        return [*effects, *self._arm(now_ms)]

    def _send(self, now_ms: int, task: _Task) -> Send:
        assert task.call is None, (task.ticket, task.call)
        assert task.deadline_ms > now_ms, (task.ticket, task.deadline_ms, now_ms)
        task.call = self._take_call()
        timeout_ms = min(self.config.request_timeout_ms, task.deadline_ms - now_ms)
        return Send(to=self.metadata.next_node(), call=task.call, body=task.body, timeout_ms=timeout_ms)

    def _take_call(self) -> int:
        self._next_call += 1
        return self._next_call - 1

    def _arm(self, now_ms: int) -> list[AdminEffect]:
        idle = [task for task in self._tasks.values() if task.call is None]
        wake_ms = min((max(task.retry_at_ms, now_ms + 1) for task in idle), default=None)
        if wake_ms is None or (self._armed_ms is not None and self._armed_ms <= wake_ms):
            return []
        self._armed_ms = wake_ms
        return [SetTimer(key=WAKE_TIMER, at_ms=wake_ms)]

    def _on_response(self, now_ms: int, call: int, body: ResponseBody | TransportError) -> list[AdminEffect]:
        assert call < self._next_call, (call, self._next_call)
        assert not self._is_stopped, call
        for task in self._tasks.values():
            if task.call == call:
                task.call = None
                return self._on_answer(now_ms, task, body)
        for description in self._descriptions:
            if call in description.calls:
                return self._on_replicas(description, call, body)
        return []

    def _on_answer(self, now_ms: int, task: _Task, body: ResponseBody | TransportError) -> list[AdminEffect]:
        assert task.call is None, (task.ticket, task.call)
        error, message = _error_of(body)
        if isinstance(body, TransportError) and body.is_unserved and not self.metadata.cache.brokers:
            # No address that this client has been given is a broker's, so no time mends it.
            error = ErrorCode.INVALID_REQUEST
        self.metadata.count_failure(has_failed=error in _OF_THE_NODE)
        may_help = error in _OF_THE_NODE or error.is_retriable
        if may_help and error not in _NEVER_IN_PLACE:
            task.last_error, task.last_message = error, message
            task.retry_at_ms = now_ms + self.config.retry_backoff_ms
            return []
        del self._tasks[task.ticket]
        answer = None if isinstance(body, TransportError) else body
        assert answer is not None or error is ErrorCode.INVALID_REQUEST, (task.ticket, error)
        learned: list[AdminEffect] = []
        if isinstance(body, MetadataResponse) and error is ErrorCode.NONE:
            learned += self.metadata.cache.update(body)
            if task.is_description:
                return [*learned, *self._ask_brokers(now_ms, task, body)]
        if task.is_description:
            return [Described(ticket=task.ticket, metadata=None, error=error, message=message)]
        return [*learned, Answered(ticket=task.ticket, body=answer, error=error, message=message)]

    def _ask_brokers(self, now_ms: int, task: _Task, metadata: MetadataResponse) -> list[AdminEffect]:
        assert isinstance(task.body, MetadataRequest)
        # A silent broker must not hold the description up beyond its deadline.
        timeout_ms = min(self.config.request_timeout_ms, max(1, task.deadline_ms - now_ms))
        if not metadata.brokers:
            return [Described(ticket=task.ticket, metadata=metadata)]
        description = _Description(ticket=task.ticket, metadata=metadata)
        self._descriptions.append(description)
        effects: list[AdminEffect] = []
        for broker in metadata.brokers:
            call = self._take_call()
            description.calls[call] = None
            body = DescribeReplicasRequest(topics=task.body.topics)
            effects.append(Send(to=broker.broker_id, call=call, body=body, timeout_ms=timeout_ms))
        assert len(effects) == len(description.calls), (len(effects), len(description.calls))
        return effects

    def _on_replicas(
        self, description: _Description, call: int, body: ResponseBody | TransportError
    ) -> list[AdminEffect]:
        del description.calls[call]
        # Whoever refuses names no broker (`refusals.py`), and is left out as one that is silent.
        if isinstance(body, DescribeReplicasResponse) and body.broker_id >= 0:
            description.replicas.append(body)
        answered, asked = len(description.replicas), len(description.metadata.brokers)
        assert answered + len(description.calls) <= asked, (answered, len(description.calls), asked)
        if description.calls:
            return []
        self._descriptions.remove(description)
        replicas = tuple(sorted(description.replicas, key=lambda answer: answer.broker_id))
        return [Described(ticket=description.ticket, metadata=description.metadata, replicas=replicas)]

    def _give_up(self, task: _Task) -> AdminEffect:
        assert task.call is None, (task.ticket, task.call)
        del self._tasks[task.ticket]
        message = task.last_message or "no node answered in time"
        if task.is_description:
            return Described(ticket=task.ticket, metadata=None, error=task.last_error, message=message)
        return Answered(ticket=task.ticket, body=None, error=task.last_error, message=message)


def _error_of(body: ResponseBody | TransportError) -> tuple[ErrorCode, str]:
    match body:
        case TransportError(reason=reason):
            return ErrorCode.NETWORK_EXCEPTION, reason
        case (
            CreateTopicResponse()
            | DeleteTopicResponse()
            | AlterTopicConfigsResponse()
            | CreatePartitionsResponse()
        ):
            return body.error, body.message
        case MetadataResponse(error=error):
            return error, ""
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(body).__name__} is no answer to this"
