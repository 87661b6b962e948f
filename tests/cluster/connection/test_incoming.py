"""The side of a connection that answers: room, merging, refusals, and what happens when the client leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cluster.core.connection import rooms
from cluster.core.connection.codec import Malformed, OutOfBounds
from cluster.core.connection.incoming import IncomingCall, IncomingStream
from cluster.core.connection.merging import PARTITION_BYTES, bytes_held_by
from cluster.core.connection.rooms import MOST_BYTES, MOST_CALLS, UNARY, UNARY_BYTES, Rooms
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    RequestBody,
    ResponseBody,
    TopicPartition,
)
from cluster.rpc import methods
from cluster.shell.streams import CODEC, CONSUMER_FETCH
from tests.cluster.connection.bodies import fetch, fetched, frame_of, produce

PATH = methods.CONSUMER_FETCH
METADATA = f"/{methods.DATA}/Metadata"


class FakeNode:
    """A receiver that keeps what it is asked until the test answers."""

    def __init__(self) -> None:
        self.asked: list[RequestBody] = []
        self.answers: dict[int, Callable[[ResponseBody], None]] = {}
        self.forgotten: list[int] = []

    def ask(self, body: RequestBody, answer: Callable[[ResponseBody], None]) -> int:
        self.asked.append(body)
        self.answers[len(self.asked)] = answer
        return len(self.asked)

    def ask_without_reply(self, body: RequestBody) -> None:
        self.asked.append(body)

    def forget(self, call: int) -> None:
        self.forgotten.append(call)


class Setup:
    """A node with rooms, and streams of clients into it."""

    def __init__(self, **limits: int) -> None:
        self.node = FakeNode()
        self.rooms = Rooms(**limits)
        self.refused: list[OutOfBounds] = []
        self.woken: list[str] = []

    def stream(self, peer: str = "a", path: str = PATH) -> IncomingStream:
        return IncomingStream(
            CODEC, path, self.rooms.enter(peer, path), self.node,
            wake=lambda: self.woken.append(peer), on_refused=self.refused.append,
        )  # fmt: skip

    def answer(self, number: int, body: ResponseBody) -> None:
        self.node.answers.pop(number)(body)


def answers_in(frame: bytes | None) -> list[int]:
    """The numbers of the calls that a frame answers."""
    assert frame is not None
    return [call for call, _ in CONSUMER_FETCH.answers_from_bytes(frame)]


def test_an_answer_has_the_clients_number_whatever_the_order() -> None:
    setup = Setup()
    stream = setup.stream()
    assert stream.on_frame(frame_of(CODEC, (70, fetch(1)), (71, fetch(2)), (72, fetch(3))))
    setup.answer(3, fetched(3))
    setup.answer(1, fetched(1))
    assert answers_in(stream.next_frame()) == [72, 70]
    stream.on_written()
    assert stream.next_frame() is None and not stream.is_idle
    setup.answer(2, fetched(2))
    assert answers_in(stream.next_frame()) == [71]
    stream.on_written()
    assert stream.is_idle


def test_a_number_that_a_client_uses_twice_is_answered_twice() -> None:
    setup = Setup()
    stream = setup.stream()
    stream.on_frame(frame_of(CODEC, (1, fetch(3)), (1, fetch(4))))
    for number in (1, 2):
        setup.answer(number, fetched(number))
    assert answers_in(stream.next_frame()) == [1, 1]


def test_c6_an_answer_holds_its_place_until_it_is_written() -> None:
    setup = Setup()
    stream = setup.stream()
    (room,) = [room for _, room in setup.rooms.items()]
    stream.on_frame(frame_of(CODEC, (1, fetch(500))))
    assert (room.own.calls, room.own.held_bytes) == (1, 500)
    setup.answer(1, fetched(20))
    assert (room.own.calls, room.own.held_bytes) == (1, 20)
    assert stream.next_frame() is not None
    assert room.own.calls == 1
    stream.on_written()
    assert (room.own.calls, room.own.held_bytes) == (0, 0)
    assert (room.node.calls, room.node.held_bytes) == (0, 0)


def test_c6_partitions_without_records_hold_bytes_too() -> None:
    """A fetch of very many partitions is answered with as many errors, to a client that may not read them."""
    setup = Setup()
    stream = setup.stream()
    (item,) = fetch(0).partitions
    wide, answer = FetchRequest(replica_id=-1, partitions=(item,) * 10_000), fetched(0)
    assert not stream.on_frame(frame_of(CODEC, *[(call, wide) for call in range(20)]))
    asked = len(setup.node.asked)
    assert 1 < asked == MOST_BYTES // (10_000 * PARTITION_BYTES)
    for number in range(1, asked + 1):
        setup.answer(number, replace(answer, partitions=answer.partitions * 10_000))
    assert len(setup.node.asked) == asked
    assert len(answers_in(stream.next_frame())) == 1
    stream.on_written()
    assert len(setup.node.asked) == asked + 1


def test_c6_fetches_that_wait_hold_their_partitions_of_the_node() -> None:
    setup = Setup(node_bytes=10_000 * PARTITION_BYTES)
    (item,) = fetch(1 << 20).partitions
    wide = FetchRequest(replica_id=-1, partitions=(item,) * 6_000)
    assert all(setup.stream(peer).on_frame(frame_of(CODEC, (1, wide))) for peer in "ab")
    setup.rooms.end_turn()
    assert setup.rooms.node(PATH).held_bytes == 2 * 5_999 * PARTITION_BYTES
    # Everybody may have one call, and nobody a second one now.
    third = setup.stream("c")
    assert not third.on_frame(frame_of(CODEC, (1, fetch(1)), (2, fetch(1))))
    assert len(setup.node.asked) == 3


def test_c6_a_connection_without_room_is_not_read_until_an_answer_is_written() -> None:
    setup = Setup()
    stream = setup.stream()
    whole = fetch(10 << 20)
    count = MOST_BYTES // (10 << 20)
    assert not stream.on_frame(frame_of(CODEC, *[(call, whole) for call in range(count + 2)]))
    assert len(setup.node.asked) == count and not stream.is_ready
    setup.answer(1, fetched(10 << 20))
    assert len(setup.node.asked) == count
    assert stream.next_frame() is not None
    stream.on_written()
    assert len(setup.node.asked) == count + 1 and not stream.is_ready
    setup.answer(2, fetched(0))
    # The answer is small: what it does not need is free before it is written.
    assert len(setup.node.asked) == count + 2 and stream.is_ready
    assert setup.woken


def test_c8_a_connection_has_a_bounded_number_of_calls_in_the_core() -> None:
    setup = Setup()
    stream = setup.stream()
    stream.on_frame(frame_of(CODEC, *[(call, fetch(0)) for call in range(MOST_CALLS + 9)]))
    assert len(setup.node.asked) == MOST_CALLS


def test_a_single_call_of_any_size_has_room() -> None:
    setup = Setup(node_bytes=5)
    stream = setup.stream(path=methods.PRODUCE)
    assert stream.on_frame(frame_of(CODEC, (1, produce(100))))
    assert len(setup.node.asked) == 1


def test_c6_a_node_has_a_bounded_number_of_calls_of_a_kind_in_flight() -> None:
    setup = Setup(node_calls=3)
    first, second = setup.stream("a"), setup.stream("b")
    assert first.on_frame(frame_of(CODEC, *[(call, fetch(0)) for call in range(3)]))
    # A connection without a call has room for one, however full the node is; its second waits.
    assert not second.on_frame(frame_of(CODEC, (1, fetch(0)), (2, fetch(0))))
    assert len(setup.node.asked) == 4
    # Calls of another kind have limits of their own.
    assert setup.stream("a", methods.REPLICA_FETCH).on_frame(frame_of(CODEC, (1, fetch(0, replica_id=2))))
    for number in (1, 2):
        setup.answer(number, fetched(0))
    assert first.next_frame() is not None
    first.on_written()
    assert second.is_ready and len(setup.node.asked) == 6


def test_c6_a_node_holds_a_bounded_number_of_bytes_of_answers() -> None:
    setup = Setup(node_bytes=100)
    first, second = setup.stream("a"), setup.stream("b")
    first.on_frame(frame_of(CODEC, (1, fetch(60)), (2, fetch(0))))
    setup.answer(1, fetched(60))
    setup.rooms.end_turn()
    assert second.on_frame(frame_of(CODEC, (1, fetch(0))))
    assert not second.on_frame(frame_of(CODEC, (2, fetch(41))))
    assert second.is_ready is False
    assert first.next_frame() is not None
    first.on_written()
    assert second.is_ready


def test_c6_the_first_calls_of_many_connections_hold_a_bounded_number_of_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rooms, "NODE_BYTES_WITH_FIRST_CALLS", 200)
    setup = Setup(node_bytes=100)
    streams = [setup.stream(peer) for peer in "abcd"]
    assert [stream.on_frame(frame_of(CODEC, (1, fetch(90)))) for stream in streams] == [
        True,
        True,
        False,
        False,
    ]
    for number in (1, 2):
        setup.answer(number, fetched(90))
    setup.rooms.end_turn()
    assert [stream.is_ready for stream in streams] == [True, True, False, False]
    # What one client reads is room for the next that waits, in order.
    assert streams[1].next_frame() is not None
    streams[1].on_written()
    assert [stream.is_ready for stream in streams] == [True, True, True, False]


def test_a_fetch_that_waits_in_the_core_holds_no_bytes_of_the_node() -> None:
    setup = Setup(node_bytes=100)
    streams = [setup.stream(peer) for peer in "abc"]
    for stream in streams:
        stream.on_frame(frame_of(CODEC, (1, fetch(0)), (2, fetch(90))))
    assert [stream.is_ready for stream in streams] == [True, False, False]
    setup.rooms.end_turn()
    # The first waits in the core now; each turn lets one more of this size in.
    assert [stream.is_ready for stream in streams] == [True, True, False]
    setup.rooms.end_turn()
    assert all(stream.is_ready for stream in streams)
    assert setup.rooms.node(PATH).held_bytes == 90


def test_rooms_that_wait_for_the_node_are_served_in_order() -> None:
    setup = Setup(node_calls=2)
    first = setup.stream("a")
    first.on_frame(frame_of(CODEC, (1, fetch(0)), (2, fetch(0))))
    later = [setup.stream(peer) for peer in "bc"]
    for stream in later:
        stream.on_frame(frame_of(CODEC, (1, fetch(0)), (2, fetch(0))))
    for number in (1, 2):
        setup.answer(number, fetched(0))
    assert first.next_frame() is not None
    first.on_written()
    # Two places are free of four that were taken: still full.
    assert [stream.is_ready for stream in later] == [False, False]
    setup.answer(3, fetched(0))
    assert later[0].next_frame() is not None
    later[0].on_written()
    assert [stream.is_ready for stream in later] == [True, False]


def test_a_room_waits_for_the_node_as_long_as_its_first_call_does() -> None:
    setup = Setup(node_bytes=100)
    reader, beside, other = setup.stream("a"), setup.stream("a"), setup.stream("b")
    for _, room in setup.rooms.items():
        room.own.most_bytes = 80
    other.on_frame(frame_of(CODEC, (1, fetch(60))))
    # The second call would fit into the connection, and not into the node.
    assert not reader.on_frame(frame_of(CODEC, (1, fetch(10)), (2, fetch(50))))
    # This one does not even fit into the connection.
    assert not beside.on_frame(frame_of(CODEC, (3, fetch(75))))
    setup.answer(1, fetched(0))
    assert reader.is_ready and not beside.is_ready


def test_c6_a_client_that_is_only_refused_leaves_nothing_behind() -> None:
    setup = Setup()
    stream = setup.stream()
    for call in range(50):
        assert stream.on_frame(frame_of(CODEC, (call, fetch(-5))))
        assert answers_in(stream.next_frame()) == [call]
        stream.on_written()
    # A turn of the core, which would end it, need not come.
    assert len(setup.refused) == 50 and not setup.rooms.fresh


def test_a_client_that_sends_nothing_any_more_still_gets_its_answers() -> None:
    setup = Setup()
    stream = setup.stream()
    stream.on_frame(frame_of(CODEC, (1, fetch(0)), (2, fetch(0))))
    stream.half_close()
    for number in (1, 2):
        assert not stream.is_drained
        setup.answer(number, fetched(0))
        assert stream.next_frame() is not None
        setup.woken.clear()
        stream.on_written()
    assert stream.is_drained and setup.woken == ["a"]


def test_acks_0_takes_no_place_and_has_no_answer() -> None:
    setup = Setup()
    stream = setup.stream(path=methods.PRODUCE)
    stream.on_frame(frame_of(CODEC, (1, produce(5, acks=0))))
    assert len(setup.node.asked) == 1 and stream.is_idle


def test_c5_a_call_out_of_bounds_is_answered_and_the_stream_goes_on() -> None:
    setup = Setup()
    stream = setup.stream()
    stream.on_frame(frame_of(CODEC, (4, FetchRequest(replica_id=-7, partitions=())), (5, fetch(1))))
    frame = stream.next_frame()
    assert frame is not None
    ((call, body),) = CONSUMER_FETCH.answers_from_bytes(frame)
    assert call == 4 and isinstance(body, FetchResponse) and body.error is ErrorCode.INVALID_REQUEST
    assert len(setup.node.asked) == 1 and "replica_id" in setup.refused[0].detail


def test_bytes_that_are_no_frame_are_malformed() -> None:
    with pytest.raises(Malformed):
        Setup().stream().on_frame(b"\xff\xff garbage")


def test_c8_what_a_client_left_is_dropped_in_the_core_and_frees_its_places() -> None:
    setup = Setup()
    stream, other = setup.stream(), setup.stream()
    calls = [(call, fetch(0)) for call in range(MOST_CALLS + 1)]
    stream.on_frame(frame_of(CODEC, *calls))
    assert not other.on_frame(frame_of(CODEC, (1, fetch(0))))
    setup.answer(1, fetched(3))
    stream.end()
    assert setup.node.forgotten == list(range(2, MOST_CALLS + 1))
    assert other.is_ready and len(setup.node.asked) == MOST_CALLS + 1
    other.end()
    for _ in range(2):
        setup.rooms.leave("a", PATH)
    assert setup.rooms.items() == [] and setup.rooms.node(PATH).calls == 0


def unary(setup: Setup, written: list[bytes]) -> IncomingCall:
    return IncomingCall(
        CODEC,
        setup.rooms.enter("a", UNARY),
        setup.node,
        write=lambda _, frame: written.append(frame),
        on_refused=setup.refused.append,
    )


def test_a_unary_call_holds_its_place_until_it_ends() -> None:
    setup, written = Setup(), list[bytes]()
    call = unary(setup, written)
    call.on_frame(METADATA, CODEC.unary.request_to_bytes(MetadataRequest()))
    (room,) = [room for _, room in setup.rooms.items()]
    assert (room.own.calls, room.own.held_bytes) == (1, UNARY_BYTES)
    setup.answer(1, MetadataResponse(cluster_id="c"))
    assert CODEC.unary.response_from_bytes(METADATA, written[0]) == MetadataResponse(cluster_id="c")
    # It counts by its answer from now on, at the node too, where it held nothing while it waited in the core.
    setup.rooms.end_turn()
    assert room.own.calls == 1 and room.own.held_bytes == room.node.held_bytes == len(written[0])
    call.end()
    assert room.own.calls == 0 and setup.node.forgotten == []


def test_unary_calls_above_the_limit_wait_and_one_that_left_is_not_asked() -> None:
    setup, written = Setup(), list[bytes]()
    calls = [unary(setup, written) for _ in range(66)]
    for call in calls:
        call.on_frame(METADATA, CODEC.unary.request_to_bytes(MetadataRequest()))
    assert len(setup.node.asked) == MOST_BYTES // UNARY_BYTES == 64
    calls[64].end()
    calls[0].end()
    assert setup.node.forgotten == [1] and len(setup.node.asked) == 65
    calls[65].end()
    assert setup.node.forgotten == [1, 65]


def test_c6_a_large_unary_request_holds_its_size_while_it_waits_in_the_core() -> None:
    setup, written = Setup(), list[bytes]()
    frame = CODEC.unary.request_to_bytes(MetadataRequest(topics=("t" * 249,) * 90_000))
    calls = [unary(setup, written) for _ in range(4)]
    for call in calls:
        call.on_frame(METADATA, frame)
    assert 20 << 20 < len(frame) < 24 << 20
    assert [call.is_waiting for call in calls] == [False, False, True, True]
    setup.rooms.end_turn()
    (room,) = [room for _, room in setup.rooms.items()]
    assert room.own.held_bytes == room.node.held_bytes == 2 * len(frame)
    setup.answer(1, MetadataResponse(cluster_id="c"))
    calls[0].end()
    assert [call.is_waiting for call in calls] == [False, False, False, True]
    for call in calls:
        call.end()
    assert room.own.calls == room.node.held_bytes == 0


def test_c5_the_answer_to_a_name_that_is_too_long_does_not_repeat_it() -> None:
    setup, written = Setup(), list[bytes]()
    request = ListOffsetsRequest(topic_partition=TopicPartition("t" * 300, 0), timestamp=-1)
    path = CODEC.unary.path_of(request)
    call = unary(setup, written)
    call.on_frame(path, CODEC.unary.request_to_bytes(request))
    body = CODEC.unary.response_from_bytes(path, written[0])
    assert isinstance(body, ListOffsetsResponse)
    assert body.error is ErrorCode.INVALID_TOPIC_EXCEPTION and body.topic_partition == TopicPartition("", 0)
    call.end()


def test_a_fetch_holds_no_more_than_its_answer_may_have() -> None:
    assert bytes_held_by(fetch(5)) == 5
    assert bytes_held_by(FetchRequest(replica_id=1, partitions=(), max_bytes=1 << 30)) == 0
    assert bytes_held_by(fetch((1 << 31) - 1)) == 10 << 20
    assert bytes_held_by(produce(70)) == 70
    one = fetch(5)
    assert bytes_held_by(replace(one, partitions=one.partitions * 3)) == 15 + 2 * PARTITION_BYTES
