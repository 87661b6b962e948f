"""A producer's first batch is alone in flight, and no client asks again at once for what was refused (KIP-951)."""

from __future__ import annotations

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.events import Response, TransportError
from cluster.core.messages import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    RequestBody,
    ResponseBody,
    TopicMetadata,
    TopicPartition,
)
from sim.checkers.base import Jury
from sim.checkers.client_sends import Client, ClientSends
from sim.checkers.ghost import Ghost
from storage.batch import Record, build_batch

T0 = TopicPartition("t", 0)
CLIENT: Client = ("c", 1)
BACKOFF_MS = 100


def batch(sequence: int, epoch: int = 0, producer_id: int = 9, topic_id: str = "") -> ProduceRequest:
    records = build_batch(
        [Record(offset=0, timestamp=0, key=None, value=b"v")],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    part = ProducePartition(topic_partition=T0, topic_id=topic_id, records=records)
    return ProduceRequest(acks=-1, partitions=(part,))


def appended(error: ErrorCode = ErrorCode.NONE, leader_epoch: int = -1) -> ProduceResponse:
    part = ProducePartitionResponse(topic_partition=T0, error=error, leader_epoch=leader_epoch)
    return ProduceResponse(partitions=(part,))


class Story:
    """A client that knows leader epoch 3, unless it is told otherwise.

    Of the epoch that it knows as it sends it was told before, unless another one is `told`.
    """

    def __init__(self, told: int | None = None) -> None:
        self.told = told
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self.sends = ClientSends(self.jury)
        self.known_epoch = 3

    def sent(self, call: int, body: RequestBody, now_ms: int = 0, client: Client = CLIENT) -> list[str]:
        """Returns the rules that are broken after this request."""
        if isinstance(body, (ProduceRequest, FetchRequest)):
            self.tell(
                body.partitions[0].topic_id, self.known_epoch if self.told is None else self.told, client
            )
        self.sends.on_sent(client, call, body, now_ms, lambda topic_partition: self.known_epoch)
        return [each.checker for each in self.jury.violations]

    def tell(self, topic_id: str, epoch: int, client: Client = CLIENT) -> None:
        """Shows the client's metadata to the checker, which does not know who has asked for them."""
        partition = PartitionMetadata(partition=0, leader=1, leader_epoch=epoch, replicas=(1,), isr=(1,))
        topic = TopicMetadata(name="t", topic_id=topic_id, partitions=(partition,))
        self.sends.on_step(client, [Response(call=-1, body=MetadataResponse(topics=(topic,)))], 0)

    def answered(
        self,
        call: int,
        body: ResponseBody | TransportError,
        now_ms: int = 0,
        paused: tuple[TopicPartition, ...] = (),
    ) -> None:
        self.sends.on_step(CLIENT, [Response(call=call, body=body)], now_ms + BACKOFF_MS, paused)


def test_the_first_batch_of_a_producer_is_alone_in_flight() -> None:
    story = Story()
    assert story.sent(1, batch(0)) == []
    assert story.sent(2, batch(1)) == ["lone-first-batch"]


def test_the_first_batch_of_a_new_epoch_is_alone_too() -> None:
    story = Story()
    story.sent(1, batch(0))
    story.answered(1, appended())
    assert story.sent(2, batch(0, epoch=1)) == []
    assert story.sent(3, batch(1, epoch=1)) == ["lone-first-batch"]


def test_a_late_answer_to_an_earlier_epoch_proves_nothing_and_takes_nothing_back() -> None:
    story = Story()
    story.sent(1, batch(0))
    story.answered(1, appended())
    # The answers to the second batch and to the first of the new epoch change places.
    story.sent(2, batch(1))
    story.sent(3, batch(0, epoch=1))
    story.answered(3, appended())
    story.sent(4, batch(1, epoch=1))
    story.answered(2, appended())
    assert story.sent(5, batch(2, epoch=1)) == []
    # Nor does such an answer let the first batch of an epoch have company.
    story.sent(6, batch(0, epoch=2))
    story.answered(4, appended())
    assert story.sent(7, batch(1, epoch=2)) == ["lone-first-batch"]


def test_the_first_batch_to_a_topic_that_was_created_again_is_alone_too() -> None:
    story = Story()
    story.sent(1, batch(0, topic_id="old"))
    story.answered(1, appended())
    assert story.sent(2, batch(1, topic_id="new")) == []
    assert story.sent(3, batch(2, topic_id="new")) == ["lone-first-batch"]


def test_the_first_batch_in_a_leader_epoch_is_alone_too() -> None:
    story = Story()
    story.sent(1, batch(0))
    story.answered(1, appended())
    story.sent(2, batch(1))
    story.known_epoch = 4
    # The one before is in flight yet.
    assert story.sent(3, batch(2)) == ["lone-first-batch"]


def test_an_acknowledgement_of_an_earlier_leader_epoch_lets_the_first_batch_of_the_next_have_no_company() -> (
    None
):
    story = Story()
    story.sent(1, batch(0))
    story.known_epoch = 4
    story.answered(1, appended())
    assert story.sent(2, batch(1)) == []
    assert story.sent(3, batch(2)) == ["lone-first-batch"]


def test_a_first_batch_counts_for_its_leader_epoch_although_the_topic_was_unknown_meanwhile() -> None:
    story = Story()
    story.sent(1, batch(0))
    story.sent(7, MetadataRequest(topics=("t",)))
    unknown = TopicMetadata(name="t", topic_id="", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    story.answered(7, MetadataResponse(topics=(unknown,)))
    story.answered(1, appended())
    assert story.sent(2, batch(1)) == []
    assert story.sent(3, batch(2)) == []


def test_after_the_first_was_acknowledged_there_may_be_several() -> None:
    story = Story()
    story.sent(1, batch(0))
    story.answered(1, appended())
    assert story.sent(2, batch(1)) == []
    assert story.sent(3, batch(2)) == []


def test_a_batch_whose_call_has_failed_is_not_in_flight_and_another_life_is_another_producer() -> None:
    story = Story()
    story.sent(1, batch(0))
    story.answered(1, TransportError(reason="timed out"))
    assert story.sent(2, batch(0)) == []
    assert story.sent(1, batch(0, producer_id=10), client=("c", 2)) == []


def fetch(offset: int, epoch: int = 3) -> FetchRequest:
    asked = FetchPartition(
        topic_partition=T0, fetch_offset=offset, last_fetched_epoch=2, max_bytes=1, current_leader_epoch=epoch
    )
    return FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1, partitions=(asked,))


def refused(error: ErrorCode, leader_epoch: int) -> FetchResponse:
    part = FetchPartitionResponse(topic_partition=T0, error=error, leader_epoch=leader_epoch)
    return FetchResponse(partitions=(part,))


@pytest.mark.parametrize("leader_epoch", [2, 3])
def test_kip951_a_refusal_that_names_no_newer_epoch_is_no_reason_to_ask_again_at_once(
    leader_epoch: int,
) -> None:
    story = Story()
    story.sent(1, fetch(5))
    story.answered(1, refused(ErrorCode.KAFKA_STORAGE_ERROR, leader_epoch))
    assert story.sent(2, fetch(5), now_ms=BACKOFF_MS - 1) == ["hasty-retries"]


def test_kip951_nor_for_a_producer() -> None:
    story = Story()
    story.sent(1, batch(0))
    story.answered(1, appended(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3))
    assert story.sent(2, batch(0), now_ms=1) == ["hasty-retries"]


def test_kip951_with_a_newer_epoch_or_after_the_back_off_it_may() -> None:
    story = Story()
    story.sent(1, fetch(5))
    story.answered(1, refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, 4))
    assert story.sent(2, fetch(5)) == []
    story.answered(2, refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3))
    assert story.sent(3, fetch(5), now_ms=BACKOFF_MS) == []


@pytest.mark.parametrize("named_epoch", [-1, 2])
def test_kip951_an_older_epoch_is_news_to_who_was_told_meanwhile_that_there_is_no_such_topic(
    named_epoch: int,
) -> None:
    """A broker that lags names the topic again, in an epoch that is older still."""
    story = Story()
    story.sent(1, fetch(5))
    story.sent(2, MetadataRequest(topics=("t",)))
    missing = TopicMetadata(name="t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    story.answered(2, MetadataResponse(topics=(missing,)))
    story.known_epoch = 1
    story.answered(1, refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, named_epoch))
    story.known_epoch = max(1, named_epoch)
    assert story.sent(3, fetch(5, story.known_epoch)) == (["hasty-retries"] if named_epoch < 0 else [])


@pytest.mark.parametrize("is_lost", [False, True])
def test_who_asks_in_vain_asks_for_metadata(is_lost: bool) -> None:
    story = Story()
    failure = TransportError(reason="reset") if is_lost else refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3)
    for call in range(1, 5):
        now_ms = call * BACKOFF_MS
        assert story.sent(call, fetch(5), now_ms) == []
        story.answered(call, failure, now_ms)
    assert story.sent(5, fetch(5), 5 * BACKOFF_MS) == ["blind-retries"]


def test_who_has_asked_for_metadata_may_ask_in_vain() -> None:
    story = Story()
    for call in range(1, 9, 2):
        now_ms = call * BACKOFF_MS
        story.sent(call, fetch(5), now_ms)
        story.answered(call, refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3), now_ms)
        story.sent(call + 1, MetadataRequest(topics=("t",)), now_ms)
        story.answered(call + 1, TransportError(reason="reset"), now_ms)
    # The answer to this one takes long.
    story.sent(9, MetadataRequest(topics=("t",)), 9 * BACKOFF_MS)
    for call in range(10, 20):
        story.sent(call, fetch(5), call * BACKOFF_MS)
        story.answered(call, refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3), call * BACKOFF_MS)
    assert not story.jury.violations


@pytest.mark.parametrize("asks", [MetadataRequest(topics=("t",)), InitProducerIdRequest()])
def test_metadata_and_an_id_are_asked_for_again_after_the_back_off(asks: RequestBody) -> None:
    story = Story()
    story.sent(1, asks)
    story.answered(1, TransportError(reason="reset"))
    assert story.sent(2, asks, BACKOFF_MS) == []
    story.answered(2, TransportError(reason="reset"), BACKOFF_MS)
    assert story.sent(3, asks, 2 * BACKOFF_MS - 1) == ["hasty-retries"]


def knowing(*epochs: int, topic_ids: str = "aaa", between: MetadataResponse | None = None) -> list[str]:
    """Returns the rules that a producer breaks that knows these leader epochs at its sends, one after the other."""
    story = Story()
    for call, (epoch, topic_id) in enumerate(zip(epochs, topic_ids, strict=False)):
        story.known_epoch = epoch
        story.sent(2 * call, batch(call, topic_id=topic_id))
        story.answered(2 * call, appended())
        if between is not None:
            story.sent(2 * call + 1, MetadataRequest(topics=("t",)), call * BACKOFF_MS)
            story.answered(2 * call + 1, between, call * BACKOFF_MS)
    return [each.checker for each in story.jury.violations]


def test_kip320_a_client_goes_back_to_no_earlier_leader_epoch() -> None:
    assert knowing(3, 3, 5) == []
    assert knowing(3, 5, 4) == ["client-epochs"]


@pytest.mark.parametrize("named", [2, 3, 4, -1])
def test_kip320_what_a_consumer_asks_names_the_epoch_that_it_knows(named: int) -> None:
    broken = [] if named == 3 else ["client-epochs"]
    assert Story().sent(1, fetch(5, named)) == broken
    looks_up = ListOffsetsRequest(topic_partition=T0, timestamp=-1, current_leader_epoch=named)
    assert Story().sent(1, looks_up) == broken


def test_kip320_a_client_knows_no_epoch_of_which_nobody_has_told_it() -> None:
    assert Story(told=3).sent(1, batch(0)) == []
    assert Story(told=2).sent(1, batch(0)) == ["client-epochs"]
    # A refusal may have named it (KIP-951).
    story = Story(told=2)
    story.known_epoch = 2
    story.sent(1, batch(0))
    story.answered(1, appended(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3))
    story.known_epoch = 3
    assert story.sent(2, batch(0)) == []
    # That of a deleted topic is none of the next one of its name.
    assert story.sent(3, batch(0, topic_id="another")) == ["client-epochs"]


def test_kip320_unless_the_topic_is_another_one_or_was_missing() -> None:
    assert knowing(3, 0, topic_ids="ab") == []
    missing = TopicMetadata(name="t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert knowing(3, 0, between=MetadataResponse(topics=(missing,))) == []
    assert knowing(3, 0, between=MetadataResponse(topics=(TopicMetadata(name="t"),))) == ["client-epochs"]


def test_who_is_sent_elsewhere_by_its_user_may_ask_at_once() -> None:
    story = Story()
    story.sent(1, fetch(5))
    story.answered(1, refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3))
    story.sends.on_sought(CLIENT, T0)
    assert story.sent(2, fetch(5)) == []


def test_nor_does_it_wait_for_the_answer_to_what_it_has_asked_before() -> None:
    story = Story()
    story.sent(1, fetch(5))
    story.sends.on_sought(CLIENT, T0)
    story.answered(1, refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3))
    assert story.sent(2, fetch(5)) == []


def test_fet4_who_was_refused_while_it_read_no_further_may_ask_at_once() -> None:
    """The answer to a fetch of a partition that is paused meanwhile is dropped, with its error."""
    for paused, broken in (((), ["hasty-retries"]), ((T0,), [])):
        story = Story()
        story.sent(1, fetch(5))
        story.answered(1, refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3), paused=paused)
        assert story.sent(2, fetch(5)) == broken
