"""A client that has something to do does it, or has set a timer for it."""

from __future__ import annotations

from dataclasses import replace

from cluster.core.client.config import ConsumerConfig, ProducerConfig
from cluster.core.client.consumer import ConsumerCore
from cluster.core.client.producer import ProducerCore
from cluster.core.effects import Send, Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import Response, Shutdown, TimerFired, TransportError
from cluster.core.messages import InitProducerIdRequest, MetadataRequest, MetadataResponse, TopicPartition
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.idle_clients import IdleClients
from tests.cluster.client.fake_cluster import FakeCluster
from tests.cluster.client.producer_by_hand import accepted, failed, produced, ready_producer

CLIENT = ("c", 1)
LINGER_MS, BACKOFF_MS, TIMEOUT_MS, AGE_MS = 50, 100, 9_000, 20_000
CONFIG = ProducerConfig(
    linger_ms=LINGER_MS, retry_backoff_ms=BACKOFF_MS, delivery_timeout_ms=TIMEOUT_MS, request_timeout_ms=2_000
)  # fmt: skip
METADATA = MetadataResponse(brokers=(), topics=(), cluster_id="", metadata_offset=0)
LOST = TransportError(reason="timed out")


class Judged:
    def __init__(self) -> None:
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self.idle = IdleClients(self.jury)

    def finds(self, core: ProducerCore | ConsumerCore, now_ms: int) -> str:
        """Returns what is wrong with the client at that time, "" for nothing."""
        known = len(self.jury.violations)
        self.idle.look(CLIENT, core, now_ms)
        return "; ".join(each.what for each in self.jury.violations[known:])


def lingering() -> ProducerCore:
    """Returns a producer with one record that lingers since 0."""
    producer, _ = ready_producer(config=CONFIG)
    assert not produced(producer.send(0, "t", None, b"v", ticket=1))
    return producer


def refused(error: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS) -> ProducerCore:
    """Returns a producer whose one batch was refused at 60."""
    producer = lingering()
    (send,) = produced(producer.step(LINGER_MS, TimerFired(key="producer.wake")))
    producer.step(60, failed(send, error))
    return producer


def test_a_batch_that_lingers_is_sent_when_its_time_has_come() -> None:
    judged, producer = Judged(), lingering()
    assert not judged.finds(producer, LINGER_MS - 1)
    assert "to send a batch of t-0" in judged.finds(producer, LINGER_MS)
    producer.step(LINGER_MS, TimerFired(key="producer.wake"))
    assert not judged.finds(producer, LINGER_MS)


def test_a_flush_does_not_wait_for_the_linger() -> None:
    judged, producer = Judged(), lingering()
    producer.unfinished.begin_flush(7)
    assert "to send a batch of t-0" in judged.finds(producer, 1)
    producer = lingering()
    assert produced(producer.flush(1, 7))
    assert not judged.finds(producer, 1)


def test_what_lingers_is_due_at_a_time_for_which_a_timer_is_set() -> None:
    judged, producer = Judged(), lingering()
    assert producer.armed_ms == LINGER_MS
    for armed_ms, is_late in ((LINGER_MS - 1, False), (LINGER_MS + 1, True), (None, True)):
        producer._armed_ms = armed_ms
        assert ("has set its timer" in judged.finds(producer, 1)) == is_late, armed_ms


def test_a_repetition_has_a_timer_and_comes_after_the_back_off() -> None:
    judged, producer = Judged(), refused()
    assert not judged.finds(producer, 60)
    (queue,) = producer.queues
    assert queue.queue[0].retry_at_ms == 60 + BACKOFF_MS
    producer._armed_ms = None
    assert "it is due to send a batch" in judged.finds(producer, 60)
    producer._armed_ms = queue.queue[0].retry_at_ms = 61 + BACKOFF_MS
    assert "repeats what has failed at 161" in judged.finds(producer, 60)


def test_a_clock_that_has_gone_back_makes_no_back_off_too_long() -> None:
    judged, producer = Judged(), refused()
    assert not judged.finds(producer, 60)
    assert not judged.finds(producer, 10)


def test_no_batch_is_without_an_outcome_beyond_the_delivery_timeout() -> None:
    judged, producer = Judged(), lingering()
    (send,) = produced(producer.step(LINGER_MS, TimerFired(key="producer.wake")))
    assert not judged.finds(producer, TIMEOUT_MS - 1)
    assert "to give up a batch of t-0" in judged.finds(producer, TIMEOUT_MS)
    producer.step(TIMEOUT_MS - 1, accepted(send, 0))
    assert not judged.finds(producer, TIMEOUT_MS)


def test_no_record_waits_for_metadata_beyond_max_block() -> None:
    config = replace(CONFIG, max_block_ms=5_000)
    judged, (producer, _) = Judged(), ready_producer(config=config)
    for ticket in (1, 2):
        producer.send(0, "nowhere", None, b"v", ticket=ticket)
    # One of two that are due at once has no outcome.
    assert "to give up a record that waits" in judged.finds(producer, 5_000)
    producer.step(5_000, TimerFired(key="producer.wake"))
    assert "give up a record" not in judged.finds(producer, 5_000)


def test_a_batch_that_waits_for_an_answer_a_leader_or_an_id_is_not_due() -> None:
    judged, producer = Judged(), lingering()
    producer.identity.current, held = None, producer.identity.current
    assert not judged.finds(producer, LINGER_MS)
    producer.identity.current = held
    producer.metadata.cache.brokers.clear()
    assert not judged.finds(producer, LINGER_MS)


def test_a_client_without_a_leader_asks_for_metadata() -> None:
    judged, producer = Judged(), refused()
    producer.metadata.cache.brokers.clear()
    # The timer of the back-off asks.
    assert not judged.finds(producer, 60 + BACKOFF_MS - 1)
    producer._armed_ms = None
    assert "knows no leader of t-0" in judged.finds(producer, 60 + BACKOFF_MS)
    judged.idle.on_sent(CLIENT, 99, MetadataRequest(topics=("t",)))
    assert "knows no leader" not in judged.finds(producer, 60 + BACKOFF_MS)


def test_metadata_is_renewed_when_it_is_old() -> None:
    producer, _ = ready_producer(config=replace(CONFIG, metadata_max_age_ms=AGE_MS))
    for body, age_ms in ((METADATA, AGE_MS), (LOST, BACKOFF_MS)):
        judged = Judged()
        judged.idle.on_sent(CLIENT, 99, MetadataRequest(topics=("t",)))
        producer._armed_ms = 5 + age_ms
        judged.idle.on_step(CLIENT, producer, 5, (Response(call=99, body=body),), ())
        assert not judged.jury.violations
        producer._armed_ms = 6 + age_ms
        assert "to ask for metadata" in judged.finds(producer, 5)
        assert "to ask for metadata" in judged.finds(producer, 5 + age_ms)
        again = Send(to=1, call=100, body=MetadataRequest(topics=("t",)), timeout_ms=1)
        judged = Judged()
        judged.idle.on_step(CLIENT, producer, 5 + age_ms, (TimerFired(key="producer.wake"),), (again,))
        assert not judged.jury.violations


def test_a_producer_that_got_no_id_asks_again_after_the_back_off() -> None:
    judged, producer = Judged(), lingering()
    judged.idle.on_sent(CLIENT, 98, InitProducerIdRequest())
    producer.identity.current, held = None, producer.identity.current
    producer._armed_ms = 5 + BACKOFF_MS
    judged.idle.on_step(CLIENT, producer, 5, (Response(call=98, body=LOST),), ())
    assert not judged.jury.violations
    assert "to ask for a producer id again" in judged.finds(producer, 5 + BACKOFF_MS)
    producer._armed_ms = None
    assert "it is due to ask for a producer id" in judged.finds(producer, 5)
    producer.identity.current = held
    producer._armed_ms = LINGER_MS
    assert not judged.finds(producer, 6)


def test_a_send_with_acks_0_that_fails_makes_the_producer_ask_for_metadata() -> None:
    for acks, is_due in ((0, True), (1, False)):
        judged = Judged()
        producer, _ = ready_producer(config=replace(CONFIG, acks=acks, linger_ms=0))
        judged.idle.on_sent(CLIENT, 1, MetadataRequest(topics=("t",)))
        judged.idle.on_step(CLIENT, producer, 0, [Response(call=1, body=METADATA)], [])
        producer._armed_ms = AGE_MS
        # The call is unknown to the producer's own core, which is not what is judged here.
        lost = Response(call=99, body=LOST)
        judged.idle.on_step(CLIENT, producer, 10, [lost], [])
        assert bool(judged.jury.violations) == is_due, acks
        again = Send(to=1, call=100, body=MetadataRequest(topics=("t",)), timeout_ms=1)
        known = len(judged.jury.violations)
        judged.idle.on_step(CLIENT, producer, BACKOFF_MS, [lost], [again])
        judged.idle.on_step(CLIENT, producer, BACKOFF_MS, [], [])
        assert len(judged.jury.violations) == known, acks


def test_a_producer_that_ends_owes_nothing() -> None:
    judged, producer = Judged(), lingering()
    judged.idle.on_step(CLIENT, producer, LINGER_MS, (Shutdown(),), (Stop(reason="shutdown"),))
    assert not judged.jury.violations


def reading() -> tuple[ConsumerCore, Send]:
    """Returns a consumer that has sent its fetch."""
    consumer = ConsumerCore(ConsumerConfig(retry_backoff_ms=BACKOFF_MS))
    (ask,) = (each for each in consumer.assign(0, [(TopicPartition("t", 0), 0)]) if isinstance(each, Send))
    body = FakeCluster({"t": 1}, broker_count=1).metadata(("t",))
    effects = consumer.step(0, Response(call=ask.call, body=body))
    (fetch,) = (each for each in effects if isinstance(each, Send))
    return consumer, fetch


def test_a_consumer_fetches_unless_it_is_paused_or_waits() -> None:
    judged, (consumer, fetch) = Judged(), reading()
    judged.idle.on_sent(CLIENT, fetch.call, fetch.body)
    assert not judged.finds(consumer, 0)
    (place,) = consumer.places
    consumer._busy_leaders.clear()
    place.is_fetching = False
    assert "to ask for t-0" in judged.finds(consumer, 0)
    place.is_paused = True
    assert not judged.finds(consumer, 0)


def test_what_counts_as_being_fetched_is_asked_for() -> None:
    judged, (consumer, fetch) = Judged(), reading()
    judged.idle.on_sent(CLIENT, fetch.call, fetch.body)
    assert not judged.finds(consumer, 0)
    consumer.pause(TopicPartition("t", 0))
    answer = Response(call=fetch.call, body=LOST)
    consumer.step(10, answer)
    judged.idle.on_step(CLIENT, consumer, 10, [answer], [])
    assert not judged.jury.violations
    (place,) = consumer.places
    place.is_fetching = True
    assert "counts t-0 as being fetched" in judged.finds(consumer, 10)


def test_a_consumer_that_was_refused_has_a_timer_for_its_back_off() -> None:
    judged, (consumer, fetch) = Judged(), reading()
    consumer.step(10, Response(call=fetch.call, body=LOST))
    assert not judged.finds(consumer, 10)
    (place,) = consumer.places
    consumer._armed_ms = None
    assert "it is due to ask for t-0" in judged.finds(consumer, 10)
    consumer._armed_ms = place.retry_at_ms = 11 + BACKOFF_MS
    assert "repeats what has failed" in judged.finds(consumer, 10)


def test_a_consumer_without_a_leader_asks_for_metadata() -> None:
    judged, (consumer, fetch) = Judged(), reading()
    consumer.metadata.cache.brokers.clear()
    consumer.step(10, Response(call=fetch.call, body=LOST))
    consumer._armed_ms = None
    assert "knows no leader of t-0" in judged.finds(consumer, 10 + BACKOFF_MS)
