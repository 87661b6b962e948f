"""Bugs in the core of a connection: each removes one promise of its streams, their calls or their places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.core.connection.incoming import IncomingStream
from cluster.core.connection.outgoing import Ended, OutgoingStream
from cluster.core.connection.pieces import Assembly
from cluster.core.connection.rooms import Room, Slot
from cluster.core.events import TransportError
from sim.bugs.planting import Bug, Make, Replacement

Original = Callable[..., Any]

_CONNECTION = "cluster.core.connection"
_OUTGOING = f"{_CONNECTION}.outgoing"
_STREAM = f"{_OUTGOING}:OutgoingStream"
_ROOM = f"{_CONNECTION}.rooms:Room"
# The node's number of a call, once its place is free.
_FREED = -1


def _does_nothing(original: Original) -> Original:
    return lambda *arguments: None


def _fails_alone(original: Original) -> Original:
    def on_time(stream: OutgoingStream, now_ms: int) -> Ended:
        late = stream._unanswered.overdue(now_ms) if stream.is_open else []
        for call, _ in late:
            stream._unanswered.remove(call)
            stream._silent.discard(call)
        return [(call, TransportError(reason=f"no answer in {timeout_ms} ms")) for call, timeout_ms in late]

    return on_time


def _takes_any(original: Original) -> Original:
    def on_frame(stream: OutgoingStream, data: bytes) -> Ended:
        answers: Ended = list(stream.codec.answers_from_bytes(data))  # type: ignore[arg-type]
        for call, _ in answers:
            stream._unanswered.remove(call)
        return answers

    return on_frame


def _stays_open(original: Original) -> Original:
    def on_time(stream: OutgoingStream, now_ms: int) -> Ended:
        late = stream._unanswered.overdue(now_ms) if stream.is_open else []
        if not late:
            return []
        stream._waiting.clear()
        return [(call, TransportError(reason="no answer")) for call in stream._unanswered.take_all()]

    return on_time


def _to_another_call(original: Original) -> Original:
    def on_frame(stream: OutgoingStream, data: bytes) -> Ended:
        answers: Ended = original(stream, data)
        bodies = [body for _, body in answers]
        return [(call, body) for (call, _), body in zip(answers, reversed(bodies), strict=True)]

    return on_frame


def _loses_last(original: Original) -> Original:
    def take_merged(waiting: Any, *limits: int) -> list[Any]:
        merged: list[Any] = original(waiting, *limits)
        return merged[:-1] if len(merged) > 1 else merged

    return take_merged


def _leaves_last_out(original: Original) -> Original:
    def answers_to_bytes(codec: object, answers: Any) -> bytes:
        return bytes(original(codec, answers[:-1] if len(answers) > 1 else answers))

    return answers_to_bytes


def _frees_at_once(original: Original) -> Original:
    def answered(room: Room, slot: Slot, size_bytes: int) -> None:
        original(room, slot, size_bytes)
        room.release(slot)
        slot.ours = _FREED

    return answered


def _keeps_its_place(original: Original) -> Original:
    def end(assembly: Assembly) -> None:
        assembly._slot = None
        original(assembly)

    return end


def _breaks(original: Original) -> Original:
    def half_close(stream: IncomingStream) -> None:
        original(stream)
        stream.end()

    return half_close


def _frees_once(original: Original) -> Original:
    def release(room: Room, slot: Slot) -> None:
        if slot.ours != _FREED:
            original(room, slot)

    return release


def _bug(name: str, story: str, target: str, make: Make, found_by: str = "") -> Bug:
    return Bug(
        name=name, story=story, replacements=(Replacement(target=target, make=make),), found_by=found_by
    )


CONNECTION_BUGS: tuple[Bug, ...] = (
    _bug(
        "connection-fails-late-call-alone",
        "A call on a stream that times out fails alone, and the stream goes on.",
        f"{_STREAM}.on_time",
        _fails_alone,
        found_by="bad-network",
    ),
    _bug(
        "connection-answers-again",
        "An answer to a call that has ended is passed on too.",
        f"{_STREAM}.on_frame",
        _takes_any,
        found_by="bad-network",
    ),
    Bug(
        name="connection-takes-answers-of-its-past",
        story="After a time-out the next calls use the same stream, and late answers on it are passed on too.",
        replacements=(
            Replacement(target=f"{_STREAM}.on_time", make=_stays_open),
            Replacement(target=f"{_STREAM}.on_frame", make=_takes_any),
        ),
        found_by="bad-network",
    ),
    _bug(
        "connection-mixes-up-calls",
        "Of a frame with several answers, each goes to the call of another one.",
        f"{_STREAM}.on_frame",
        _to_another_call,
        found_by="leader-crash",
    ),
    _bug(
        "connection-loses-last-call",
        "A frame with several calls is written without its last one.",
        f"{_OUTGOING}:take_merged",
        _loses_last,
        found_by="leader-crash",
    ),
    _bug(
        "connection-loses-last-answer",
        "A frame with several answers is written without its last one.",
        "cluster.shell.streams:StreamCodec.answers_to_bytes",
        _leaves_last_out,
        found_by="leader-crash",
    ),
    _bug(
        "connection-never-forgets-failures",
        "The wait before an attempt to connect goes on growing after the peer was reached.",
        f"{_CONNECTION}.backoff:Backoff.on_success",
        _does_nothing,
    ),
    _bug(
        "connection-breaks-at-half-close",
        "A client that has said all is taken for one that has left: its calls in flight are dropped.",
        f"{_CONNECTION}.incoming:IncomingStream.half_close",
        _breaks,
        found_by="connection-breaks-at-half-close",
    ),
    Bug(
        name="connection-frees-places-early",
        story="A call's place is free as soon as the core has answered it, before the answer is written (C6).",
        replacements=(
            Replacement(target=f"{_ROOM}.answered", make=_frees_at_once),
            Replacement(target=f"{_ROOM}.release", make=_frees_once),
        ),
        found_by="leader-crash",
    ),
    _bug(
        "connection-keeps-place-of-frame",
        "The place of a frame that came in pieces is never free again.",
        f"{_CONNECTION}.pieces:Assembly.end",
        _keeps_its_place,
    ),
)
