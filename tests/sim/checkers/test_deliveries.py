"""A producer tells its user of a record as delivered when an answer says where it is, and only then."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cluster.core.client.effects import Delivered
from cluster.core.errors import ErrorCode
from cluster.core.events import Response, TimerFired, TransportError
from cluster.core.messages import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    TopicPartition,
)
from sim.checkers.base import Jury
from sim.checkers.deliveries import Client, Deliveries
from sim.checkers.ghost import Ghost
from storage.batch import Record, build_batch

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CLIENT: Client = ("c", 1)
TICK = TimerFired(key="wake")


class Story:
    """One producer, which has sent a request of two records to t-0 and one record to t-1 as call 1."""

    def __init__(self, acks: int = -1) -> None:
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self.deliveries, self.acks = Deliveries(self.jury), acks
        parts = tuple(
            ProducePartition(topic_partition=each, records=batch(count)) for each, count in ((T0, 2), (T1, 1))
        )
        self.deliveries.on_sent(CLIENT, 1, ProduceRequest(acks=acks, partitions=parts))

    def shows(self, event: Response | TimerFired, *told: Delivered) -> bool:
        """Returns whether the rule is broken by a step that tells the user so."""
        self.deliveries.on_step(CLIENT, self.acks, [event], told)
        return bool(self.jury.violations)


def batch(count: int) -> bytes:
    records = [Record(offset=place, timestamp=0, key=None, value=b"v") for place in range(count)]
    return build_batch(records)


def answer(*parts: ProducePartitionResponse, call: int = 1, error: ErrorCode = ErrorCode.NONE) -> Response:
    return Response(call=call, body=ProduceResponse(error=error, partitions=parts))


def part(
    offset: int, error: ErrorCode = ErrorCode.NONE, *, at: TopicPartition = T0, time_ms: int = -1
) -> ProducePartitionResponse:
    return ProducePartitionResponse(
        topic_partition=at, error=error, base_offset=offset, log_append_time_ms=time_ms
    )


def told(*offsets: int, at: TopicPartition = T0, time_ms: int = 5) -> Sequence[Delivered]:
    return [
        Delivered(ticket=number, topic_partition=at, offset=offset, timestamp_ms=time_ms)
        for number, offset in enumerate(offsets)
    ]


def test_what_an_answer_has_placed_is_delivered_where_it_says() -> None:
    whole = answer(part(7), part(3, at=T1))
    assert not Story().shows(whole, *told(7, 8), *told(3, at=T1))
    assert not Story().shows(answer(part(-1, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)), *told(-1, -1))
    assert not Story().shows(answer(part(7)))


@pytest.mark.parametrize(
    "event",
    [
        TICK,
        answer(part(7), call=2),
        answer(part(7, ErrorCode.NOT_ENOUGH_REPLICAS)),
        answer(part(7), error=ErrorCode.UNKNOWN_SERVER_ERROR),
        answer(part(7, at=T1)),
        Response(call=1, body=TransportError(reason="reset")),
    ],
)
def test_what_no_answer_has_placed_is_not_delivered(event: Response | TimerFired) -> None:
    assert Story().shows(event, *told(7, 8))


@pytest.mark.parametrize("offsets", [(7, 7), (8, 9), (7,), (7, 8, 9), (-1, -1)])
def test_each_record_of_a_batch_is_delivered_once_with_its_own_offset(offsets: tuple[int, ...]) -> None:
    assert Story().shows(answer(part(7)), *told(*offsets))


def test_the_time_that_a_leader_has_set_is_told() -> None:
    assert not Story().shows(answer(part(7, time_ms=40)), *told(7, 8, time_ms=40))
    assert Story().shows(answer(part(7, time_ms=40)), *told(7, 8))


def test_one_answer_delivers_once() -> None:
    story = Story()
    assert not story.shows(answer(part(7)), *told(7, 8))
    assert story.shows(answer(part(7)), *told(7, 8))


def test_with_acks_0_no_answer_is_waited_for() -> None:
    assert not Story(acks=0).shows(TICK, *told(-1, -1))
