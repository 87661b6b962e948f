"""Frames that come in pieces: their place in the room, what is no piece, and how they end."""

from __future__ import annotations

import pytest

from cluster.core.connection.codec import Malformed
from cluster.core.connection.incoming import IncomingCall
from cluster.core.connection.pieces import MOST_FRAME_BYTES, Assembly, cut
from cluster.core.connection.rooms import MOST_BYTES, UNARY
from cluster.core.messages import MetadataRequest, MetadataResponse
from cluster.rpc import methods
from cluster.shell.streams import CODEC
from tests.cluster.connection.bodies import fetch, fetched, frame_of, produce, produced
from tests.cluster.connection.test_incoming import METADATA, Setup, answers_in

PRODUCE = methods.PRODUCE
LARGE = 10_000


def pieces_of(*sizes: int, acks: int = -1) -> list[bytes]:
    """The pieces of a frame with a batch of each size."""
    return cut(frame_of(CODEC, *[(call, produce(size, acks=acks)) for call, size in enumerate(sizes)]), 999)


def head(size_bytes: int) -> bytes:
    return b"\x07" + size_bytes.to_bytes(4, "big")


def test_the_calls_of_a_frame_are_with_the_core_once_its_last_piece_came() -> None:
    setup = Setup()
    stream = setup.stream(path=PRODUCE)
    *first, last = pieces_of(LARGE, 5)
    for piece in first:
        assert stream.on_frame(piece) and stream.is_ready
        assert stream.is_inside_frame and not stream.is_idle and not setup.node.asked
    assert stream.on_frame(last) and not stream.is_inside_frame
    assert setup.node.asked == [produce(LARGE), produce(5)]


def test_a_frame_in_pieces_holds_its_place_from_the_first_one_until_its_calls_have_theirs() -> None:
    setup = Setup()
    stream = setup.stream(path=PRODUCE)
    pieces = pieces_of(LARGE)
    room, node = stream._room, setup.rooms.node(PRODUCE)
    size_bytes = int.from_bytes(pieces[0][1:5], "big")
    for piece in pieces[:-1]:
        stream.on_frame(piece)
        setup.rooms.end_turn()
        assert room.own.held_bytes == node.held_bytes == size_bytes and room.own.calls == node.calls == 1
    stream.on_frame(pieces[-1])
    assert room.own.held_bytes == node.held_bytes == LARGE and room.own.calls == node.calls == 1


def test_a_first_piece_waits_for_the_room_of_the_whole_frame() -> None:
    setup = Setup()
    stream, other = setup.stream(path=PRODUCE), setup.stream(path=PRODUCE)
    assert stream.on_frame(frame_of(CODEC, (1, produce(MOST_BYTES - LARGE))))
    pieces = pieces_of(LARGE)
    assert not other.on_frame(pieces[0]) and not other.is_ready
    setup.answer(1, produced(0))
    assert stream.next_frame() is not None
    stream.on_written()
    assert other.is_ready and other.is_inside_frame
    for piece in pieces[1:]:
        assert other.on_frame(piece)
    assert len(setup.node.asked) == 2


def test_those_that_wait_go_on_when_a_frame_without_answers_is_whole() -> None:
    setup = Setup()
    stream, other = setup.stream(path=PRODUCE), setup.stream(path=PRODUCE)
    pieces = pieces_of(MOST_BYTES // 2, acks=0)
    stream.on_frame(pieces[0])
    assert not other.on_frame(frame_of(CODEC, (1, produce(MOST_BYTES // 2)), (2, produce(5))))
    for piece in pieces[1:]:
        stream.on_frame(piece)
    assert other.is_ready and len(setup.node.asked) == 3


@pytest.mark.parametrize("ending", ["end", "half_close"])
def test_an_incomplete_frame_frees_its_place_at_the_end_of_its_stream(ending: str) -> None:
    setup = Setup()
    stream = setup.stream(path=PRODUCE)
    stream.on_frame(pieces_of(LARGE)[0])
    room = stream._room
    getattr(stream, ending)()
    assert room.own.calls == room.own.held_bytes == 0 and not setup.node.asked
    assert stream.is_idle


def test_a_stream_that_ends_while_its_first_piece_waits_waits_no_more() -> None:
    setup = Setup()
    stream, other = setup.stream(path=PRODUCE), setup.stream(path=PRODUCE)
    stream.on_frame(frame_of(CODEC, (1, produce(MOST_BYTES))))
    assert not other.on_frame(pieces_of(LARGE)[0])
    other.end()
    setup.answer(1, produced(0))
    assert stream.next_frame() is not None
    stream.on_written()
    assert stream._room.own.calls == 0


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        ([b"\x07"], "has nothing of its frame"),
        ([head(9)], "has nothing of its frame"),
        ([head(9) + b"123456789"], "the first piece, 9 bytes, of a frame of 9 bytes"),
        ([head(0) + b"1"], "the first piece, 1 bytes, of a frame of 0 bytes"),
        ([head(MOST_FRAME_BYTES + 1) + b"1"], f"of a frame of {MOST_FRAME_BYTES + 1} bytes"),
        ([head(9) + b"1", head(9)], "has nothing of its frame"),
        ([head(9) + b"1", head(8) + b"2"], "after 1 of 9"),
        ([head(9) + b"12345", head(9) + b"12345"], "a piece, 5 bytes, of a frame of 9 bytes, after 5 of 9"),
        ([head(9) + b"1", frame_of(CODEC, (1, produce(5)))], "of another frame, before the last piece"),
        ([head(9) + b"\xff", head(9) + b"\xff" * 8], "9 bytes are no ProduceCalls"),
    ],
)
def test_what_is_no_piece_of_its_frame_ends_the_stream(messages: list[bytes], what: str) -> None:
    setup = Setup()
    stream = setup.stream(path=PRODUCE)
    for message in messages[:-1]:
        stream.on_frame(message)
    with pytest.raises(Malformed, match=what):
        stream.on_frame(messages[-1])
    room = stream._room
    stream.end()
    assert room.own.calls == room.own.held_bytes == 0


def test_the_largest_frame_there_is_comes_in_pieces_too() -> None:
    room = Setup().rooms.enter("a", PRODUCE)
    assembly = Assembly(room)
    frame = bytes(MOST_FRAME_BYTES)
    whole = [assembly.add(piece) for piece in cut(frame)]
    assert whole[-1] == frame and set(whole[:-1]) == {None} and room.own.calls == 0


def test_a_unary_request_in_pieces_is_asked_once_it_is_whole() -> None:
    setup = Setup()
    written: list[bytes] = []
    call = IncomingCall(
        CODEC, setup.rooms.enter("a", UNARY), setup.node,
        write=lambda _, frame: written.append(frame), on_refused=lambda _: None,
    )  # fmt: skip
    request = MetadataRequest(topics=tuple([f"topic-{number}" for number in range(100)]))
    for piece in cut(CODEC.unary.request_to_bytes(request), 100):
        assert not setup.node.asked and not call.is_waiting
        call.on_frame(METADATA, piece)
    assert setup.node.asked == [request] and not call.is_inside_frame
    setup.node.answers[1](MetadataResponse())
    call.end()
    assert len(written) == 1 and setup.rooms.node(UNARY).calls == 0


def test_a_unary_request_in_pieces_waits_for_room_and_then_for_its_rest() -> None:
    setup = Setup(node_calls=1)
    room = setup.rooms.enter("a", UNARY)
    taken = room.take(0, 5, 5)
    passed: list[bool] = []
    call = IncomingCall(
        CODEC, room, setup.node,
        write=lambda *_: None, on_refused=lambda _: None, on_passed=lambda: passed.append(True),
    )  # fmt: skip
    pieces = cut(CODEC.unary.request_to_bytes(MetadataRequest(topics=("t" * 200,))), 100)
    call.on_frame(METADATA, pieces[0])
    assert call.is_waiting and not call.is_inside_frame and not passed
    room.release(taken)
    room.wake()
    assert passed and not call.is_waiting and call.is_inside_frame and not setup.node.asked
    for piece in pieces[1:]:
        call.on_frame(METADATA, piece)
    assert len(setup.node.asked) == 1


def test_a_call_that_ends_inside_its_request_frees_its_place() -> None:
    setup = Setup()
    room = setup.rooms.enter("a", UNARY)
    call = IncomingCall(CODEC, room, setup.node, write=lambda *_: None, on_refused=lambda _: None)
    call.on_frame(METADATA, cut(CODEC.unary.request_to_bytes(MetadataRequest(topics=("t" * 200,))), 100)[0])
    assert room.own.calls == 1
    call.end()
    assert room.own.calls == 0 and not setup.node.forgotten


def test_an_answer_is_one_message_though_it_is_large() -> None:
    setup = Setup()
    stream = setup.stream()
    stream.on_frame(frame_of(CODEC, (1, fetch(3 << 20))))
    setup.answer(1, fetched(3 << 20))
    frame = stream.next_frame()
    assert frame is not None and len(frame) > 3 << 20 and answers_in(frame) == [1]
