"""Large records pass by protobuf, and what is on the wire stays a message of `proto/`."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.core.connection.codec import Answers, Calls, Malformed, OutOfBounds
from cluster.core.messages import FetchPartitionResponse, FetchResponse, ProducePartition, ProduceRequest
from cluster.shell.streams import PRODUCE, REPLICA_FETCH, parting
from cluster.shell.wire.framing import NONE_LARGE_BYTES
from tests.cluster.connection.bodies import T0, fetched, produce
from tests.cluster.shell.bounded import within

MIB = 1 << 20
# What one message around the records may take.
AROUND_BYTES = 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One direction of a stream with records: as it parts every frame, and as protobuf alone does it."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    plain_encode: Callable[[Any], bytes]
    plain_decode: Callable[[bytes], Any]
    body: type
    large: Callable[[int], Any]


PARTING_PRODUCE, PLAIN_PRODUCE = parting(PRODUCE, 1), parting(PRODUCE, NONE_LARGE_BYTES)
PARTING_FETCH, PLAIN_FETCH = parting(REPLICA_FETCH, 1), parting(REPLICA_FETCH, NONE_LARGE_BYTES)
CALLS = Half(
    encode=PARTING_PRODUCE.calls_to_bytes,
    decode=PARTING_PRODUCE.calls_from_bytes,
    plain_encode=PLAIN_PRODUCE.calls_to_bytes,
    plain_decode=PLAIN_PRODUCE.calls_from_bytes,
    body=ProduceRequest,
    large=produce,
)
ANSWERS = Half(
    encode=PARTING_FETCH.answers_to_bytes,
    decode=PARTING_FETCH.answers_from_bytes,
    plain_encode=PLAIN_FETCH.answers_to_bytes,
    plain_decode=PLAIN_FETCH.answers_from_bytes,
    body=FetchResponse,
    large=fetched,
)
BOTH = pytest.mark.parametrize("half", [CALLS, ANSWERS], ids=["calls", "answers"])


def listed(half: Half) -> st.SearchStrategy[list[tuple[int, Any]]]:
    return st.lists(st.tuples(st.integers(0, (1 << 63) - 1), within(half.body)), max_size=3)


def outcome(decode: Callable[[bytes], Any], frame: bytes) -> object:
    """What a frame says: pairs, in which a refusal stands as its words; None for no frame."""
    try:
        return [(call, str(body) if isinstance(body, OutOfBounds) else body) for call, body in decode(frame)]
    except Malformed:
        return None


class Counted:
    """A protobuf class that counts the bytes which it encodes and parses."""

    def __init__(self, message: Any) -> None:
        self._message, self.seen_bytes = message, 0
        self.DESCRIPTOR = message.DESCRIPTOR

    def __call__(self) -> Any:
        message, counted = self._message(), self

        class Encoding:
            """A message that says what it was encoded to."""

            def __getattr__(self, name: str) -> Any:
                return getattr(message, name)

            def SerializeToString(self) -> bytes:
                data: bytes = message.SerializeToString()
                counted.seen_bytes += len(data)
                return data

        return Encoding()

    def FromString(self, data: bytes) -> Any:
        self.seen_bytes += len(data)
        return self._message.FromString(data)


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that Python held at one time for `work`, its result included."""
    tracemalloc.start()
    try:
        result = work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        del result


@pytest.mark.parametrize("size_bytes", [256 << 10, MIB])
def test_records_are_copied_once_into_a_frame_and_once_out_of_it(size_bytes: int) -> None:
    counted: Any = Counted(PRODUCE.call_list)
    codec = replace(PRODUCE, call_list=counted)
    calls: Calls = [(1, produce(size_bytes)), (2, produce(size_bytes))]
    frame = codec.calls_to_bytes(calls)
    assert codec.calls_from_bytes(frame) == calls
    assert 0 < counted.seen_bytes < AROUND_BYTES
    assert peak_bytes(lambda: codec.calls_to_bytes(calls)) < 2 * size_bytes + AROUND_BYTES
    assert peak_bytes(lambda: codec.calls_from_bytes(frame)) < 2 * size_bytes + AROUND_BYTES


def test_a_fetched_set_is_copied_once_into_a_frame_and_once_out_of_it() -> None:
    counted: Any = Counted(REPLICA_FETCH.answer_list)
    codec = replace(REPLICA_FETCH, answer_list=counted)
    answers: Answers = [(1, fetched(MIB))]
    frame = codec.answers_to_bytes(answers)
    assert codec.answers_from_bytes(frame) == answers
    assert 0 < counted.seen_bytes < AROUND_BYTES
    assert peak_bytes(lambda: codec.answers_to_bytes(answers)) < MIB + AROUND_BYTES
    assert peak_bytes(lambda: codec.answers_from_bytes(frame)) < MIB + AROUND_BYTES


@BOTH
def test_what_protobuf_alone_writes_and_reads_is_the_same(half: Half) -> None:
    @settings(max_examples=25, deadline=None)
    @given(listed(half))
    def same(entries: list[tuple[int, Any]]) -> None:
        frame = half.encode(entries)
        assert len(frame) == len(half.plain_encode(entries))
        assert half.plain_decode(frame) == entries
        assert half.decode(half.plain_encode(entries)) == entries
        assert half.decode(frame) == entries

    same()


def test_small_records_stay_with_protobuf_beside_large_ones() -> None:
    codec = parting(PRODUCE, 1_000)
    large, small = (ProducePartition(topic_partition=T0, records=bytes(size)) for size in (1_000, 999))
    mixed = ProduceRequest(acks=1, partitions=(small, large, small, large))
    calls: Calls = [
        (1, produce(3)),
        (2, mixed),
        (3, produce(1_000)),
        (4, ProduceRequest(acks=0, partitions=())),
    ]
    frame = codec.calls_to_bytes(calls)
    assert PLAIN_PRODUCE.calls_from_bytes(frame) == calls
    assert codec.calls_from_bytes(frame) == calls
    assert codec.calls_from_bytes(PLAIN_PRODUCE.calls_to_bytes(calls)) == calls


def varint(number: int) -> bytes:
    """The number on the wire."""
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*parts, number))


def sized(number: int, value: bytes) -> bytes:
    """A field of bytes or a message."""
    return varint(number << 3 | 2) + varint(len(value)) + value


UNKNOWN = st.one_of(
    st.builds(lambda value: varint(14 << 3) + varint(value), st.integers(0, (1 << 64) - 1)),
    st.builds(lambda value: varint(14 << 3 | 1) + value, st.binary(min_size=8, max_size=8)),
    st.builds(lambda value: varint(14 << 3 | 5) + value, st.binary(min_size=4, max_size=4)),
    st.builds(sized, st.sampled_from([14, 16, 1_000]), st.binary(max_size=9)),
    # A group, and a known number of another kind.
    st.just(varint(14 << 3 | 3) + b"\x08\x01" + varint(14 << 3 | 4)),
    st.just(varint(2 << 3) + b"\x05"),
)


def shuffled(*fields: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """A message with these fields in any order, each any number of times, and with fields that nobody knows."""
    return st.lists(st.one_of(*fields, UNKNOWN), max_size=5).map(b"".join)


def frames(partitions: int, records: int) -> st.SearchStrategy[bytes]:
    partition = shuffled(
        st.binary(max_size=20).map(lambda value: sized(records, value)),
        st.just(sized(1, sized(1, b"t") + b"\x10\x01")),
        st.just(sized(1, b"\x10\x02")),
    )
    body = shuffled(partition.map(lambda value: sized(partitions, value)), st.just(b"\x08\x01"))
    entry = shuffled(body.map(lambda value: sized(2, value)), st.just(b"\x08\x07"))
    return shuffled(entry.map(lambda value: sized(1, value)))


@pytest.mark.parametrize(
    ("half", "drawn"), [(CALLS, frames(3, 2)), (ANSWERS, frames(2, 9))], ids=["calls", "answers"]
)
def test_fields_in_any_order_repeated_or_unknown_are_read_as_protobuf_does(
    half: Half, drawn: st.SearchStrategy[bytes]
) -> None:
    @settings(max_examples=100, deadline=None)
    @given(drawn)
    def same(frame: bytes) -> None:
        assert outcome(half.decode, frame) == outcome(half.plain_decode, frame)

    same()


def damaged(frame: bytes) -> Iterator[bytes]:
    """The frame cut at every place, and with every byte changed in three ways."""
    for at in range(len(frame)):
        yield frame[:at]
        for change in (0x01, 0x80, 0xFF):
            yield frame[:at] + bytes((frame[at] ^ change,)) + frame[at + 1 :]


@BOTH
def test_a_damaged_frame_is_refused_or_read_as_protobuf_does(half: Half) -> None:
    frame = half.plain_encode([(5, half.large(3)), (200, half.large(200))])
    refused = 0
    for each in damaged(frame):
        found = outcome(half.decode, each)
        assert found == outcome(half.plain_decode, each), each
        refused += found is None
    assert refused > len(frame)


@pytest.mark.parametrize(
    "frame",
    [
        sized(1, b"\x08\x01" + varint(2 << 3 | 2) + varint(100) + bytes(9)),
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x0a\x80",
        b"\x0a",
    ],
)
def test_a_size_beyond_the_frame_is_refused(frame: bytes) -> None:
    for half in (CALLS, ANSWERS):
        with pytest.raises(Malformed):
            half.decode(frame)


def test_a_body_with_large_records_is_checked_against_its_bounds() -> None:
    wrong = replace(
        fetched(9), partitions=(FetchPartitionResponse(topic_partition=T0, leader_id=-2, records=b"x" * 9),)
    )
    ((_, refused), (_, taken)) = ANSWERS.decode(ANSWERS.encode([(1, wrong), (2, fetched(9))]))
    assert isinstance(refused, OutOfBounds)
    assert "leader_id=-2" in refused.detail
    assert taken == fetched(9)


def test_records_inside_a_field_that_nobody_knows_are_not_those_of_the_partition() -> None:
    own, foreign = sized(2, b"own"), sized(16, sized(2, b"foreign"))
    partition = sized(1, sized(1, b"t")) + own + foreign
    frame = sized(1, sized(2, sized(3, partition)))
    ((_, body),) = CALLS.decode(frame)
    assert body.partitions[0].records == b"own"
