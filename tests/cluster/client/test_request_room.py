"""The bounds of a produce request: what no buffer and no frame can hold is refused, and all else is sent in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import shake_128

import pytest

from cluster.core.client.config import ProducerConfig
from cluster.core.client.producer import ProducerCore
from cluster.core.client.request_room import MOST_BATCHES_BYTES, fits_in_request
from cluster.core.connection.pieces import MOST_FRAME_BYTES
from cluster.core.effects import Send
from cluster.core.errors import ErrorCode
from cluster.core.messages import ProducePartition, ProduceRequest, TopicPartition
from cluster.rpc.methods import PRODUCE
from cluster.shell.streams import CODEC
from storage.batch import build_batch
from storage.batch.record import Record
from storage.codec.compression import Compression
from tests.cluster.client.producer_by_hand import batch_of, delivered, produced, ready_producer

MIB = 1 << 20
# Larger than what a frame can carry.
ROOMY = ProducerConfig(
    batch_size=200 * MIB, max_request_size=200 * MIB, buffer_memory=400 * MIB, linger_ms=10
)
LONGEST_TOPIC = "t" * 249


def sent_together(config: ProducerConfig, values: Sequence[bytes]) -> tuple[ProducerCore, list[Send]]:
    """Returns a producer and its requests to one leader, after a record for each of as many of its partitions."""
    producer, _ = ready_producer(config=config, partitions=2 * len(values))
    for number, value in enumerate(values):
        # The leaders of the partitions take turns.
        assert not produced(producer.send(0, "t", None, value, partition=2 * number, ticket=number))
    return producer, produced(producer.flush(0, 99))


def sizes_of(requests: list[Send]) -> list[int]:
    """Returns the number of partitions in each request."""
    bodies = [send.body for send in requests]
    return [len(body.partitions) for body in bodies if isinstance(body, ProduceRequest)]


def test_a_record_above_buffer_memory_is_too_large_and_no_retry_helps() -> None:
    producer, _ = ready_producer(config=ProducerConfig(buffer_memory=1000))
    (told,) = delivered(producer.send(0, "t", None, bytes(2000), ticket=1))
    assert (told.error, told.message) == (
        ErrorCode.MESSAGE_TOO_LARGE,
        "2096 bytes are above buffer.memory 1000",
    )
    assert not told.error.is_retriable


def test_batches_that_fit_together_are_one_request() -> None:
    _, requests = sent_together(ROOMY, [b"v"] * 3)
    assert sizes_of(requests) == [3]


@pytest.mark.slow
def test_a_request_is_no_larger_than_a_frame_whatever_max_request_size_says() -> None:
    _, requests = sent_together(ROOMY, [bytes(40 * MIB)] * 2)
    assert sizes_of(requests) == [1, 1]


def test_a_request_of_the_most_bytes_fits_into_a_frame_whatever_its_topics_are_called() -> None:
    count = 1000
    whole = MOST_BATCHES_BYTES - 512 * (count - 1)
    assert fits_in_request(whole, count, 200 * MIB) and not fits_in_request(whole + 1, count, 200 * MIB)
    partitions = tuple(
        ProducePartition(
            topic_partition=TopicPartition(LONGEST_TOPIC, (1 << 31) - 1 - number),
            topic_id="f" * 32,
            records=bytes(whole - (count - 1) * 100 if number == 0 else 100),
        )
        for number in range(count)
    )
    request = ProduceRequest(acks=-1, timeout_ms=(1 << 31) - 1, partitions=partitions)
    frame = CODEC.stream_at(PRODUCE).calls_to_bytes([((1 << 63) - 1, request)])
    assert len(frame) <= MOST_FRAME_BYTES


def test_a_batch_is_no_larger_than_a_frame_whatever_batch_size_says() -> None:
    producer, _ = ready_producer(config=ROOMY)
    value = bytes(20 * MIB)
    effects = [producer.send(0, "t", None, value, ticket=ticket) for ticket in range(4)]
    # The fourth makes a batch of its own, so the one before it is due.
    assert [len(produced(each)) for each in effects] == [0, 0, 0, 1]
    (sent,) = produced(effects[3])
    assert batch_of(sent).record_count == 3


def test_a_record_that_no_request_can_carry_is_refused_at_once() -> None:
    producer, _ = ready_producer(config=ROOMY)
    (told,) = delivered(producer.send(0, "t", None, bytes(MOST_BATCHES_BYTES), ticket=1))
    assert told.error is ErrorCode.MESSAGE_TOO_LARGE
    assert f"above the {MOST_BATCHES_BYTES} that a request can carry" in told.message


@pytest.mark.slow
def test_a_large_record_that_its_codec_makes_small_enough_is_sent() -> None:
    producer, _ = ready_producer(config=replace(ROOMY, compression_type=Compression.ZSTD))
    (send,) = produced(producer.send(0, "t", None, bytes(MOST_BATCHES_BYTES), ticket=1))
    assert batch_of(send).record_count == 1


def test_a_codec_that_makes_a_batch_larger_does_not_end_the_producer() -> None:
    """The room of a batch is judged before it is packed, and noise takes a little more then."""
    noise = shake_128(b"noise").digest(1000)
    plain = len(build_batch([Record(0, 0, None, noise)]))
    packed = len(build_batch([Record(0, 0, None, noise)], compression=Compression.GZIP))
    assert packed > plain
    config = ProducerConfig(
        max_request_size=plain + packed, compression_type=Compression.GZIP, linger_ms=10, batch_size=2000
    )
    _, requests = sent_together(config, [noise] * 3)
    assert sizes_of(requests) == [2, 1]
