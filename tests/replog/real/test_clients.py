"""The history that the lines of clients add up to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from replog.real.clients import Consumer, Producer, parse_line
from replog.real.orders import Order, parse_order
from sim.hosts.history import History, Outcome
from sim.scenario.model import ConsumerModel, ProducerModel
from tests.replog.real.places import Deaf


def producer(history: History, **model: object) -> Producer:
    return Producer(
        "producer-1", ProducerModel.model_validate({"topic": "t", **model}), history, Deaf(), Path("unused"),
        routes={1: 9}, seed=0, since_us=1_000,
    )  # fmt: skip


def consumer(history: History, on_lost: Callable[[str], None]) -> Consumer:
    return Consumer(
        "consumer-1", ConsumerModel(topic="t"), history, Deaf(), Path("unused"), routes={1: 9}, partitions=1,
        since_us=1_000, on_lost=on_lost,
    )  # fmt: skip


def line(**fields: object) -> dict[str, object]:
    return parse_line(json.dumps({"at": 5_000, **fields}).encode())


def test_a_send_is_open_until_its_outcome_is_told() -> None:
    history = History()
    client = producer(history)
    assert client.on_line(line(sent=1, value="v1")) == ""
    assert client.on_line(line(sent=2, value="v2")) == ""
    told = line(done=1, outcome="ok", partition="t-0", offset=7, error="NONE")
    assert client.on_line(told) == "t-0"
    first, second = history.sends
    assert (first.outcome, first.partition, first.offset, first.completed_us) == (Outcome.OK, "t-0", 7, 4_000)
    assert (second.outcome, second.invoked_us, second.acks) == (Outcome.OPEN, 4_000, -1)
    assert history.acknowledged == {"t-0": 1}


def test_what_was_open_when_a_producer_was_killed_stays_unknown() -> None:
    history = History()
    client = producer(history)
    client.on_line(line(sent=1, value="v1"))
    client.on_ended(9_000)
    assert [(each.outcome, each.error) for each in history.sends] == [(Outcome.INFO, "KILLED")]
    assert client.is_done


def test_a_producer_that_stood_still_has_so_much_more_time() -> None:
    history = History()
    client = producer(history)
    client.on_line(line(sent=1, value="v1"))
    before = history.sends[0].within_us
    client.on_resumed(2_000_000)
    assert history.sends[0].within_us == before + 2_000_000


def test_reads_know_what_the_consumer_had_passed_before() -> None:
    history = History()
    client = consumer(history, on_lost=lambda what: None)
    client.on_line(line(position="t-0", offset=3))
    client.on_line(line(read="t-0", records=[[3, "a"], [5, "b"]], next=6, high_watermark=9))
    assert [(each.offset, each.after, each.value) for each in history.reads] == [(3, 2, "a"), (5, 3, "b")]
    assert history.positions == {("consumer-1", "t-0"): 6}


def test_a_lost_position_is_reported() -> None:
    lost: list[str] = []
    consumer(History(), on_lost=lost.append).on_line(line(lost="t-0", error="OFFSET_OUT_OF_RANGE"))
    assert lost == ["consumer-1 lost its position in t-0: OFFSET_OUT_OF_RANGE"]


def test_an_order_is_read_as_it_was_written() -> None:
    order = Order(
        name="producer-1", topic="t", routes={1: 2, 3: 4}, seed=5, rate=25, acks=1, left=7, unanswered=9
    )
    assert parse_order(order.text()) == order
    reader = Order(name="consumer-1", topic="t", routes={1: 2}, positions={0: -1, 1: 17})
    assert parse_order(reader.text()) == reader
