"""The side of a connection that asks: correlation, deadlines, merging, calls without reply, and ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.core.connection.backoff import FIRST_BACKOFF_MS, MAX_BACKOFF_MS, Backoff
from cluster.core.connection.bootstrap import Bootstrap
from cluster.core.connection.codec import Malformed, StreamRequest
from cluster.core.connection.merging import MERGE_CALLS_BYTES, MERGE_PAIRS
from cluster.core.connection.outgoing import (
    MOST_OF_A_METHOD,
    NEVER_MS,
    Answer,
    Outgoing,
    OutgoingStream,
    UnaryCalls,
)
from cluster.core.connection.pieces import MOST_FRAME_BYTES, PIECE_BYTES, cut, is_piece
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import (
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    MetadataRequest,
    MetadataResponse,
    TopicPartition,
)
from cluster.rpc.methods import METHODS
from cluster.shell.server import MOST_CALLS_OF_A_CONNECTION
from cluster.shell.streams import CODEC, CONSUMER_FETCH, PRODUCE, REPLICA_FETCH
from tests.cluster.connection.bodies import fetch, produce, produced, send


def stream_with(*calls: int, timeout_ms: int = 1_000) -> OutgoingStream:
    """A stream with calls that were sent at time 0 and written."""
    stream = OutgoingStream(PRODUCE)
    for call in calls:
        stream.send(0, call, produce(call), timeout_ms=timeout_ms, expects_reply=True)
    while stream.next_frame() is not None:
        stream.on_written()
    return stream


def sizes_of(frame: bytes | None) -> list[int]:
    """The calls in a frame."""
    assert frame is not None
    return [call for call, _ in PRODUCE.calls_from_bytes(frame)]


def test_answers_find_their_calls_in_any_order_and_each_only_once() -> None:
    stream = stream_with(1, 2, 3)
    frame = PRODUCE.answers_to_bytes([(3, produced(30)), (1, produced(10))])
    assert stream.on_frame(frame) == [(3, produced(30)), (1, produced(10))]
    assert stream.on_frame(frame) == []
    assert stream.in_flight == 1


def test_the_calls_of_one_turn_are_one_frame() -> None:
    stream = OutgoingStream(PRODUCE)
    for call in (1, 2, 3):
        stream.send(0, call, produce(call), timeout_ms=9, expects_reply=True)
    assert sizes_of(stream.next_frame()) == [1, 2, 3]
    stream.on_written()
    assert stream.next_frame() is None


def test_a_frame_has_bounded_bytes_and_pairs_but_at_least_one_call() -> None:
    stream = OutgoingStream(PRODUCE)
    for call, size_bytes in ((1, MERGE_CALLS_BYTES + 1), (2, MERGE_CALLS_BYTES), (3, 1)):
        stream.send(0, call, produce(size_bytes), timeout_ms=9, expects_reply=True)
    for call in range(4, 4 + MERGE_PAIRS):
        stream.send(0, call, produce(0), timeout_ms=9, expects_reply=True)
    taken = []
    while (frame := stream.next_frame()) is not None:
        taken.append(sizes_of(frame))
        stream.on_written()
    assert taken == [[1], [2], list(range(3, 3 + MERGE_PAIRS)), [3 + MERGE_PAIRS]]


def test_a_frame_of_merged_calls_is_never_cut() -> None:
    stream = OutgoingStream(PRODUCE)
    for call in range(3 * MERGE_PAIRS):
        stream.send(0, call, produce(call % 7 << 13), timeout_ms=9, expects_reply=True)
    while (frame := stream.next_frame()) is not None:
        assert len(frame) <= PIECE_BYTES and not is_piece(frame)
        stream.on_written()


def test_a_large_frame_is_written_in_pieces_and_ends_its_silent_calls_with_the_last_one() -> None:
    stream = OutgoingStream(PRODUCE)
    stream.send(0, 1, produce(3 * PIECE_BYTES, acks=0), timeout_ms=9, expects_reply=False)
    stream.send(0, 2, produce(1), timeout_ms=9, expects_reply=True)
    in_flight = []
    for _ in range(4):
        frame = stream.next_frame()
        assert frame is not None and is_piece(frame) and len(frame) <= PIECE_BYTES and stream.has_frame
        in_flight.append(stream.in_flight)
        stream.on_written()
    assert in_flight == [2, 2, 2, 2] and stream.in_flight == 1
    assert sizes_of(stream.next_frame()) == [2]


def test_a_stream_that_ends_between_two_pieces_writes_none_of_the_rest() -> None:
    stream = OutgoingStream(PRODUCE)
    stream.send(0, 1, produce(3 * PIECE_BYTES), timeout_ms=9, expects_reply=True)
    assert stream.next_frame() is not None
    stream.on_written()
    assert [call for call, _ in stream.end("cut")] == [1]
    assert not stream.has_frame and stream.next_frame() is None


@given(st.binary(max_size=300), st.integers(6, 400))
def test_the_pieces_of_a_frame_are_no_larger_than_asked_and_have_it_in_order(
    frame: bytes, piece_bytes: int
) -> None:
    pieces = cut(frame, piece_bytes)
    if len(frame) <= piece_bytes:
        assert pieces == [frame]
        return
    assert len(pieces) > 1 and all(len(piece) <= piece_bytes for piece in pieces)
    assert b"".join(piece[5:] for piece in pieces) == frame
    assert {piece[:5] for piece in pieces} == {b"\x07" + len(frame).to_bytes(4, "big")}


def test_a_frame_that_is_too_large_to_be_sent_is_not_cut() -> None:
    frame = bytes(MOST_FRAME_BYTES + 1)
    assert cut(frame) == [frame]
    assert len(cut(frame[:-1])) > 1


def test_a_time_out_ends_the_stream_and_fails_every_call_in_flight() -> None:
    stream = stream_with(1, timeout_ms=500)
    stream.send(100, 2, produce(2), timeout_ms=5_000, expects_reply=True)
    assert stream.alarm_ms == 500
    assert stream.on_time(499) == [] and stream.is_open
    late = TransportError(reason="no answer in 500 ms")
    assert stream.on_time(500) == [(1, late), (2, late)]
    assert not stream.is_open and not stream.has_frame and stream.end("again") == []
    assert stream.on_frame(PRODUCE.answers_to_bytes([(2, produced(2))])) == []


def test_an_alarm_for_an_answered_call_moves_to_the_next_deadline() -> None:
    stream = stream_with(1, timeout_ms=500)
    stream.send(100, 2, produce(2), timeout_ms=5_000, expects_reply=True)
    stream.on_frame(PRODUCE.answers_to_bytes([(1, produced(0))]))
    assert stream.on_time(500) == []
    assert stream.is_open and stream.alarm_ms == 5_100
    stream.on_frame(PRODUCE.answers_to_bytes([(2, produced(0))]))
    assert stream.on_time(5_100) == [] and stream.alarm_ms == NEVER_MS


def test_a_call_without_reply_ends_once_it_is_written() -> None:
    stream = OutgoingStream(PRODUCE)
    stream.send(0, 1, produce(1, acks=0), timeout_ms=50, expects_reply=False)
    stream.send(0, 2, produce(2), timeout_ms=90, expects_reply=True)
    assert stream.next_frame() is not None and stream.in_flight == 2
    stream.on_written()
    assert stream.in_flight == 1
    assert stream.on_time(50) == [] and stream.is_open


def test_a_call_without_reply_that_is_not_written_in_time_fails() -> None:
    stream = OutgoingStream(PRODUCE)
    stream.send(0, 1, produce(1, acks=0), timeout_ms=50, expects_reply=False)
    assert stream.on_time(50) == [(1, TransportError(reason="no answer in 50 ms"))]


def test_an_answer_out_of_bounds_ends_its_own_call_and_others_go_on() -> None:
    stream = stream_with(1, 2)
    ((call, body),) = stream.on_frame(PRODUCE.answers_to_bytes([(1, produced(-7))]))
    assert call == 1 and isinstance(body, TransportError)
    assert "out of bounds" in body.reason and "base_offset" in body.reason
    assert stream.on_frame(PRODUCE.answers_to_bytes([(2, produced(2))])) == [(2, produced(2))]


def test_bytes_that_are_no_frame_are_malformed() -> None:
    with pytest.raises(Malformed):
        stream_with(1).on_frame(b"\xff\xff garbage")


def test_a_finishing_stream_writes_what_waits_and_is_then_done() -> None:
    stream = OutgoingStream(PRODUCE)
    stream.send(0, 1, produce(1, acks=0), timeout_ms=50, expects_reply=False)
    stream.finish()
    assert stream.is_finishing and stream.has_frame
    assert sizes_of(stream.next_frame()) == [1]
    assert not stream.has_frame


def test_each_kind_of_record_has_its_stream_and_a_new_one_after_its_end() -> None:
    outgoing = Outgoing(CODEC)
    bodies: tuple[StreamRequest, ...] = (produce(1), fetch(1), fetch(1, replica_id=2))
    opened = [outgoing.send_on_stream(0, send(call, body), body) for call, body in enumerate(bodies)]
    assert [stream.codec for stream in opened] == [PRODUCE, CONSUMER_FETCH, REPLICA_FETCH]
    opened[0].end("broken")
    assert outgoing.streams == opened[1:]
    again = outgoing.send_on_stream(0, send(9, bodies[0]), bodies[0])
    assert again is not opened[0] and again.is_open
    assert [call for call, _ in outgoing.end("closed")] == [9, 1, 2]
    assert outgoing.streams == []


def test_the_time_out_of_a_unary_call_ends_that_call_alone() -> None:
    calls = Outgoing(CODEC).unary
    calls.send(0, 1, MetadataRequest(), 100)
    call, path, frame = calls.next_call() or (0, "", b"")
    assert call == 1
    assert CODEC.unary.request_from_bytes(path, frame) == MetadataRequest()
    calls.send(0, 2, MetadataRequest(), 300)
    assert calls.alarm_ms == 100
    assert calls.on_time(100) == [(1, TransportError(reason="no answer in 100 ms"))]
    answer = CODEC.unary.response_to_bytes(MetadataResponse(cluster_id="c"))
    assert calls.on_frame(1, answer) is None
    assert calls.on_frame(2, answer) == MetadataResponse(cluster_id="c")
    assert calls.in_flight == 0 and calls.fail(2, "late") is None


def test_the_next_bootstrap_address_is_tried_after_a_failure_of_the_first() -> None:
    addresses = Bootstrap(["a", "b"])
    assert [addresses.choose(call) for call in (1, 2)] == ["a", "a"]
    addresses.on_answer(1, MetadataResponse())
    assert addresses.choose(3) == "a"
    addresses.on_answer(2, TransportError(reason="connection refused"))
    # The third call went to an address that has been left since.
    addresses.on_answer(3, TransportError(reason="connection refused"))
    assert addresses.choose(4) == "b"
    addresses.on_answer(4, MetadataResponse(error=ErrorCode.BROKER_NOT_AVAILABLE))
    assert addresses.choose(5) == "a"
    addresses.on_answer(99, TransportError(reason="of a call to a known node"))
    assert Bootstrap([]).choose(1) is None


def test_that_no_address_is_a_brokers_is_said_once_each_has_answered_so() -> None:
    addresses = Bootstrap(["a", "b"])
    wrong, dead = (
        TransportError(reason="no broker", is_unserved=True),
        TransportError(reason="connection refused"),
    )
    answers: list[tuple[Answer, Answer]] = [
        (wrong, TransportError(reason="no broker")),
        (dead, dead),
        (wrong, TransportError(reason="no broker")),
        (wrong, wrong),
        # One that has become a broker's is one, also when it dies.
        (MetadataResponse(), MetadataResponse()),
        (dead, dead),
        (wrong, TransportError(reason="no broker")),
    ]
    for call, (answer, wanted) in enumerate(answers):
        assert addresses.choose(call) is not None
        assert addresses.on_answer(call, answer) == wanted, call


def test_unary_answers_come_in_any_order() -> None:
    calls = Outgoing(CODEC).unary
    for call in (1, 2):
        calls.send(0, call, MetadataRequest(), 100)
    answers = {
        call: calls.on_frame(call, CODEC.unary.response_to_bytes(MetadataResponse(cluster_id=str(call))))
        for call in (2, 1)
    }
    assert answers == {call: MetadataResponse(cluster_id=str(call)) for call in (1, 2)}


def taken(calls: UnaryCalls) -> list[int]:
    """The calls that the shell may send now."""
    found = []
    while (asked := calls.next_call()) is not None:
        found.append(asked[0])
    return found


def test_a_heartbeat_does_not_wait_for_the_proposals_before_it() -> None:
    calls = Outgoing(CODEC).unary
    proposal = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=1,
        topic_partition=TopicPartition("t", 0),
        topic_id="0" * 32,
        leader_epoch=1,
        partition_epoch=1,
        new_isr=(),
    )
    for call in range(2_000):
        calls.send(0, call, proposal, 30_000)
    calls.send(0, 5_000, BrokerHeartbeatRequest(broker_id=1, broker_epoch=1, metadata_offset=0), 4_500)
    assert taken(calls) == [*range(MOST_OF_A_METHOD), 5_000]
    assert calls.in_flight == 2_001


def test_a_call_that_ends_in_any_way_leaves_its_place_to_the_oldest_that_waits() -> None:
    calls = Outgoing(CODEC).unary
    for call in range(MOST_OF_A_METHOD + 3):
        calls.send(0, call, MetadataRequest(), 100 if call == 2 else 500)
    assert taken(calls) == list(range(MOST_OF_A_METHOD))
    calls.on_frame(1, CODEC.unary.response_to_bytes(MetadataResponse()))
    assert taken(calls) == [MOST_OF_A_METHOD]
    calls.on_time(100)
    assert taken(calls) == [MOST_OF_A_METHOD + 1]
    calls.fail(3, "refused")
    assert taken(calls) == [MOST_OF_A_METHOD + 2] and not calls.has_next


def test_the_deadline_of_a_call_counts_while_it_waits_for_its_place() -> None:
    calls = Outgoing(CODEC).unary
    for call in range(MOST_OF_A_METHOD + 2):
        calls.send(0, call, MetadataRequest(), 100 if call > MOST_OF_A_METHOD else 500)
    taken(calls)
    late = TransportError(reason="no answer in 100 ms")
    assert calls.on_time(100) == [(MOST_OF_A_METHOD + 1, late)]
    assert taken(calls) == []
    calls.fail(0, "refused")
    assert taken(calls) == [MOST_OF_A_METHOD]


def test_the_calls_of_all_methods_and_streams_stay_below_the_limit_of_a_server() -> None:
    unary = [method for method in METHODS if not method.is_stream]
    # A stream may begin while the one before ends.
    assert len(unary) * MOST_OF_A_METHOD + 2 * (len(METHODS) - len(unary)) < MOST_CALLS_OF_A_CONNECTION


def test_calls_that_wait_fail_with_their_connection() -> None:
    outgoing = Outgoing(CODEC)
    for call in range(MOST_OF_A_METHOD + 2):
        outgoing.unary.send(0, call, MetadataRequest(), 100)
    assert [call for call, _ in outgoing.end("closed")] == list(range(MOST_OF_A_METHOD + 2))
    assert taken(outgoing.unary) == []


def test_a_peer_that_cannot_be_reached_is_tried_less_and_less_often() -> None:
    backoff = Backoff()
    assert backoff.may_connect(0)
    waits, now_ms = [], 0
    for _ in range(10):
        backoff.on_failure(now_ms, "refused")
        assert not backoff.may_connect(now_ms)
        began_ms = now_ms
        while not backoff.may_connect(now_ms):
            now_ms += 1
        waits.append(now_ms - began_ms)
    assert waits[:3] == [FIRST_BACKOFF_MS, 80, 128] and waits[-1] == MAX_BACKOFF_MS
    assert backoff.reason == "refused"
    backoff.on_success()
    assert backoff.may_connect(now_ms) and backoff.reason == ""
