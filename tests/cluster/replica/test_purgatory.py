"""The place where requests wait, on its own."""

from __future__ import annotations

from cluster.core.messages import TopicPartition
from cluster.core.outbox import Outbox
from cluster.core.replica.purgatory import Purgatory

T0 = TopicPartition("t", 0)


def test_c9_the_heap_keeps_few_deadlines_of_operations_that_were_taken() -> None:
    expired: list[str] = []
    outbox = Outbox()
    purgatory: Purgatory[str] = Purgatory(outbox, "expiry", lambda now_ms, name: expired.append(name))
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
    purgatory: Purgatory[str] = Purgatory(outbox, "expiry", lambda now_ms, name: expired.append(name))
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
