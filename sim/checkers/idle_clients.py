"""Judges whether producers and consumers do what is due, and set a timer for what will be due next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, final

from cluster.core.client.accumulator import ProducerBatch
from cluster.core.client.consumer import ConsumerCore, Position
from cluster.core.client.partition_queue import PartitionQueue
from cluster.core.client.producer import ProducerCore
from cluster.core.effects import Send, Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Response
from cluster.core.messages import (
    FetchRequest,
    InitProducerIdRequest,
    MetadataRequest,
    MetadataResponse,
    RequestBody,
    TopicPartition,
)
from sim.checkers.base import Jury

# A client, and its life.
Client = tuple[str, int]


class Due(NamedTuple):
    """Something that a client has to do at a time of its clock: what it is, and for which partition."""

    at_ms: int
    what: str
    # No text of it is made before something is wrong with it: there is one of these for each partition and step.
    where: TopicPartition | None = None


@final
class _Metadata:
    """When a client has asked for metadata, and what came of it."""

    def __init__(self) -> None:
        self.call: int | None = None
        self.answered_ms: int | None = None
        # Of the last answer that was no failure.
        self.told_ms: int | None = None
        # A send with acks=0 has failed since the last request has left.
        self.has_lost = False

    def due(self, backoff_ms: int, max_age_ms: int) -> Due | None:
        """Returns when the next request is due by time alone; None while one is open, or none was answered yet."""
        if self.call is not None or self.answered_ms is None:
            return None
        allowed_ms = self.answered_ms + backoff_ms
        if self.told_ms is None:
            return Due(allowed_ms, "to ask for metadata again, of which it has none")
        if self.has_lost:
            return Due(allowed_ms, "to ask for metadata, because a send with acks=0 has failed")
        return Due(max(allowed_ms, self.told_ms + max_age_ms), "to ask for metadata, by metadata.max.age.ms")


@final
class _Identity:
    """When a producer has asked for its id, and until when it must wait after a failure."""

    def __init__(self) -> None:
        self.call: int | None = None
        self.answered_ms: int | None = None

    def due(self, core: ProducerCore) -> Due | None:
        """Returns when the next request is due; None while one is open, none was answered yet, or there is an id."""
        if core.identity.current is not None or self.call is not None or self.answered_ms is None:
            return None
        return Due(self.answered_ms + core.config.retry_backoff_ms, "to ask for a producer id again")


@final
class IdleClients:
    """Six rules for each step of a producer or consumer, by what its core holds after it.

    What may be sent was sent: a due batch whose partition has none in flight, if its leader is known and owes no
    answer; the fetch or look-up of a position. Where no leader is known, it asks for metadata, at once or after the
    back-off; and again when what it knows is as old as `metadata.max.age.ms`, or a send with acks=0 has failed,
    which is all that such a producer hears of its leader. No record is without an outcome beyond
    `delivery.timeout.ms`, nor without a place beyond `max.block.ms`. Its timer is set no later than the first of
    what becomes due by time alone. What has failed is repeated no later than after `retry.backoff.ms`. What counts
    as being fetched is: an answer to come asks for it.
    """

    name = "idle-clients"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        self._metadata: dict[Client, _Metadata] = {}
        self._identities: dict[Client, _Identity] = {}
        # The last time of each client's clock, and those whose clock has gone back: no span of theirs is judged.
        self._last_ms: dict[Client, int] = {}
        self._gone_back: set[Client] = set()
        # What the fetches without an answer ask for, by call.
        self._fetches: dict[Client, dict[int, set[TopicPartition]]] = {}

    def on_sent(self, client: Client, call: int, body: RequestBody) -> None:
        """Receives a request as it leaves a client."""
        if type(body) is MetadataRequest:
            known = self._metadata.setdefault(client, _Metadata())
            known.call, known.has_lost = call, False
        elif type(body) is InitProducerIdRequest:
            self._identities.setdefault(client, _Identity()).call = call
        elif type(body) is FetchRequest:
            asked = {each.topic_partition for each in body.partitions}
            self._fetches.setdefault(client, {})[call] = asked

    def on_step(
        self,
        client: Client,
        core: ProducerCore | ConsumerCore,
        now_ms: int,
        events: Iterable[Event],
        effects: Iterable[object],
    ) -> None:
        """Judge a client after a step, at the time of its clock, before its effects are carried out."""
        for event in events:
            if type(event) is Response:
                self._on_answer(client, core, event, now_ms)
        for effect in effects:
            if type(effect) is Stop:
                return
            if type(effect) is Send:
                self.on_sent(client, effect.call, effect.body)
        self.look(client, core, now_ms)

    def _on_answer(
        self, client: Client, core: ProducerCore | ConsumerCore, answer: Response, now_ms: int
    ) -> None:
        if (fetches := self._fetches.get(client)) is not None:
            fetches.pop(answer.call, None)
        known, identity = self._metadata.get(client), self._identities.get(client)
        if known is not None and known.call == answer.call:
            known.call, known.answered_ms = None, now_ms
            if isinstance(answer.body, MetadataResponse) and answer.body.error is ErrorCode.NONE:
                known.told_ms = now_ms
        elif identity is not None and identity.call == answer.call:
            identity.call, identity.answered_ms = None, now_ms
        elif known is not None and type(core) is ProducerCore and core.config.acks == 0:
            # What is sent with acks=0 has no other outcome than a failure.
            known.has_lost = True

    def look(self, client: Client, core: ProducerCore | ConsumerCore, now_ms: int) -> None:
        """Judge a client as it is, at the time of its clock."""
        if now_ms < self._last_ms.get(client, now_ms):
            self._gone_back.add(client)
        self._last_ms[client] = now_ms
        dues = list(_of_producer(core) if type(core) is ProducerCore else _of_consumer(core))
        if type(core) is ConsumerCore and (lost := self._is_fetched_by_none(client, core)) is not None:
            self._report(client, f"counts {lost} as being fetched, and no fetch asks for it")
        known = self._metadata.get(client)
        if known is not None:
            config = core.config
            if (due := known.due(config.retry_backoff_ms, config.metadata_max_age_ms)) is not None:
                dues.append(due)
        identity = self._identities.get(client)
        if identity is not None and type(core) is ProducerCore and (due := identity.due(core)) is not None:
            dues.append(due)
        self._judge(client, core, dues, now_ms, asks=known is not None and known.call is not None)

    def _is_fetched_by_none(self, client: Client, core: ConsumerCore) -> TopicPartition | None:
        """Returns a partition that waits for the answer to no fetch, although it counts as being fetched."""
        fetches = self._fetches.get(client, {}).values()
        for place in core.places:
            if place.is_fetching and not any(place.topic_partition in asked for asked in fetches):
                return place.topic_partition
        return None

    def _judge(
        self, client: Client, core: ProducerCore | ConsumerCore, dues: list[Due], now_ms: int, *, asks: bool
    ) -> None:
        armed_ms = core.armed_ms
        for due in dues:
            if due.at_ms <= now_ms:
                self._report(client, f"has left undone at {now_ms} what was due at {due.at_ms}: {_text(due)}")
            elif armed_ms is None or armed_ms > due.at_ms:
                self._report(
                    client, f"has set its timer to {armed_ms}; at {due.at_ms} it is due {_text(due)}"
                )
        backoff_ms = core.config.retry_backoff_ms
        if not asks and (missing := _without_leader(core, now_ms)) is not None:
            if armed_ms is None or armed_ms > now_ms + backoff_ms:
                self._report(client, f"knows no leader of {missing}, and does not ask for metadata")
        if client not in self._gone_back and (late := _repeats_after(core, now_ms + backoff_ms)) is not None:
            self._report(client, f"repeats what has failed at {late.at_ms}, {_text(late)}; it is {now_ms}")

    def _report(self, client: Client, what: str) -> None:
        self._jury.report(self.name, f"{client[0]} {what}")


def _text(due: Due) -> str:
    return due.what if due.where is None else f"{due.what} {due.where}"


def _of_producer(core: ProducerCore) -> Iterator[Due]:
    """Yield what is due of a producer, now and later, where no answer has to come first."""
    timeout_ms = core.config.delivery_timeout_ms
    if (expiry_ms := core.waiting.next_expiry_ms()) is not None:
        yield Due(expiry_ms, "to give up a record that waits for metadata")
    for queue in core.queues:
        # Batches are in the order in which they began.
        for batch in queue.in_flight:
            if not batch.is_done:
                yield Due(batch.created_ms + timeout_ms, "to give up a batch of", queue.topic_partition)
                break
        if queue.queue:
            first_ms = min([batch.created_ms for batch in queue.queue])
            yield Due(first_ms + timeout_ms, "to give up a batch of", queue.topic_partition)
            if _may_send(core, queue):
                yield Due(_ready_ms(core, queue, queue.queue[0]), "to send a batch of", queue.topic_partition)


def _may_send(core: ProducerCore, queue: PartitionQueue) -> bool:
    """Whether the next batch of a partition waits for nothing but its time."""
    leader = core.metadata.cache.leader(queue.topic_partition)
    if leader is None or queue.in_flight or core.is_asking(leader.leader):
        return False
    if _is_repeated(queue.queue[0]) or not core.config.is_idempotent:
        return True
    return core.identity.current is not None and not queue.needs_resolution


def _is_repeated(batch: ProducerBatch) -> bool:
    """Whether a batch waits for its back-off, and neither lingers nor waits for sequences."""
    return batch.is_sequenced or batch.attempts > 0


def _ready_ms(core: ProducerCore, queue: PartitionQueue, batch: ProducerBatch) -> int:
    """Returns when a batch becomes due: after its back-off, or when it is full, pressed, or has lingered."""
    if _is_repeated(batch):
        return batch.retry_at_ms
    unfinished = core.unfinished
    is_flushed = unfinished.is_flushing and batch.generation < unfinished.generation
    if core.is_closing or is_flushed or batch.is_full or len(queue.queue) > 1 or not core.has_room:
        return batch.created_ms
    return batch.created_ms + core.config.linger_ms


def _of_consumer(core: ConsumerCore) -> Iterator[Due]:
    for place in core.places:
        if _is_idle(place):
            leader = core.metadata.cache.leader(place.topic_partition)
            if leader is not None and (place.offset is None or not core.is_asking(leader.leader)):
                yield Due(place.retry_at_ms, "to ask for", place.topic_partition)


def _is_idle(place: Position) -> bool:
    return not (place.is_paused or place.is_fetching or place.lookup_call is not None)


def _without_leader(core: ProducerCore | ConsumerCore, now_ms: int) -> str | None:
    """Returns a partition of which something is due now, and whose leader the client does not know."""
    leader = core.metadata.cache.leader
    if type(core) is ProducerCore:
        for queue in core.queues:
            batch = queue.queue[0] if queue.queue and not queue.in_flight else None
            if batch is not None and _is_repeated(batch) and batch.retry_at_ms <= now_ms:
                if leader(queue.topic_partition) is None:
                    return str(queue.topic_partition)
    elif type(core) is ConsumerCore:
        for place in core.places:
            if _is_idle(place) and place.retry_at_ms <= now_ms and leader(place.topic_partition) is None:
                return str(place.topic_partition)
    return None


def _repeats_after(core: ProducerCore | ConsumerCore, most_ms: int) -> Due | None:
    """Returns what a client will ask again only after that time of its clock."""
    if type(core) is ProducerCore:
        for queue in core.queues:
            if queue.queue and queue.queue[0].attempts and queue.queue[0].retry_at_ms > most_ms:
                return Due(queue.queue[0].retry_at_ms, "a batch of", queue.topic_partition)
    elif type(core) is ConsumerCore:
        for place in core.places:
            if place.retry_at_ms > most_ms:
                return Due(place.retry_at_ms, "for", place.topic_partition)
    return None
