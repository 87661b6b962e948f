"""The place where requests wait, on its own."""

from __future__ import annotations

from cluster.core.messages import TopicPartition
from cluster.core.outbox import Outbox
from cluster.core.replica.purgatory import Purgatory

T0 = TopicPartition("t", 0)


def test_c9_the_heap_keeps_few_deadlines_of_operations_that_were_taken() -> None:
    expired: list[str] = []
    outbox = Outbox()
    purgatory: Purgatory[str] = Purgatory(
        outbox, "expiry", lambda now_ms, name: expired.append(name), spare=64
    )
    # The first one is due first, so that its deadline stays on top of the heap and holds back all others.
    purgatory.park("stays", [T0], deadline_ms=1_000)
    for number in range(1_000):
        purgatory.park("taken", [T0], deadline_ms=2_000 + number)
        ((last, _),) = purgatory.watching(T0)[1:]
        purgatory.take(last)
        assert purgatory.deadlines_held <= 100, number
    outbox.on_timer(1_000, "expiry")
    assert expired == ["stays"] and len(purgatory) == 0


def test_an_operation_parked_before_a_clean_up_is_still_ended_by_its_deadline() -> None:
    expired: list[str] = []
    outbox = Outbox()
    purgatory: Purgatory[str] = Purgatory(
        outbox, "expiry", lambda now_ms, name: expired.append(name), spare=64
    )
    for number in range(200):
        purgatory.park(f"{number}", [T0], deadline_ms=1_000 + number)
    for number in purgatory.numbers():
        if number % 10:
            purgatory.take(number)
    assert purgatory.deadlines_held <= 2 * len(purgatory) + 64
    # One timer after the other, as a shell fires them.
    for now_ms in range(1_000, 1_201):
        outbox.on_timer(now_ms, "expiry")
    assert expired == [f"{number}" for number in range(9, 200, 10)]


def test_deadlines_in_any_order_are_met_after_a_clean_up() -> None:
    expired: list[str] = []
    outbox = Outbox()
    purgatory: Purgatory[str] = Purgatory(
        outbox, "expiry", lambda now_ms, name: expired.append(name), spare=1
    )
    # What is left of this heap is no heap.
    for deadline_ms in (3, 4, 2, 0, 5, 1):
        purgatory.park(f"{deadline_ms}", [T0], deadline_ms=deadline_ms)
    for number in purgatory.numbers():
        if number % 3:
            purgatory.take(number)
    assert purgatory.deadlines_held == len(purgatory) == 2
    found = []
    for now_ms in range(4):
        outbox.on_timer(now_ms, "expiry")
        found.append(list(expired))
    assert found == [[], ["1"], ["1", "2"], ["1", "2"]]
