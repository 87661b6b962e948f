"""Cuts a large frame of a client into pieces, and puts it together again at the node, within the room that it has.

A node takes messages of up to PIECE_BYTES: so much of each stream and call may be in its memory before a room counts
it. A larger frame, such as one batch of many megabytes, comes in pieces. Each is one message on the wire:

    1 byte     7, with which no message of protobuf begins (its tag would be 0)
    4 bytes    the size of the whole frame, big-endian, the same in each piece of a frame
    the rest   the next bytes of the frame, at least one, and in the first piece not all of them

The first piece takes the room of the whole frame, and none is read without it. Answers are not cut: a client has few
connections, and has chosen with whom.
"""

from __future__ import annotations

from typing import final

from cluster.core.connection.codec import Malformed
from cluster.core.connection.rooms import Room, Slot

# The most bytes of a message to a node, a piece with its head included.
PIECE_BYTES = 1 << 20
# The most bytes of a frame. gRPC's default of 4 MiB, overhead included, is too little for one large batch.
MOST_FRAME_BYTES = 64 << 20

_MARK = b"\x07"
_HEAD_BYTES = 5


def is_piece(message: bytes) -> bool:
    """Whether a message is a piece of a frame, and no frame of its own."""
    return message.startswith(_MARK)


def cut(frame: bytes, piece_bytes: int = PIECE_BYTES) -> list[bytes]:
    """Returns the messages of at most `piece_bytes` in which a frame is sent: itself, where it is small enough.

    One that is larger than any frame is left whole: it is not sent.
    """
    assert piece_bytes > _HEAD_BYTES, piece_bytes
    if len(frame) <= piece_bytes or len(frame) > MOST_FRAME_BYTES:
        return [frame]
    step_bytes = piece_bytes - _HEAD_BYTES
    head = _MARK + len(frame).to_bytes(4, "big")
    return [head + frame[at : at + step_bytes] for at in range(0, len(frame), step_bytes)]


@final
class Assembly:
    """The frame of a stream or call that comes in pieces, one at a time, and its place in the room."""

    __slots__ = ("_bytes", "_first", "_frame_bytes", "_room", "_slot")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._slot: Slot | None = None
        # What has come of the frame, and how large it will be.
        self._bytes = bytearray()
        self._frame_bytes = 0
        # The first piece, while it waits for room.
        self._first = b""

    @property
    def is_waiting(self) -> bool:
        """Whether a first piece waits for room: nothing more is read."""
        return bool(self._first)

    @property
    def is_begun(self) -> bool:
        """Whether a frame has its place, and pieces of it are missing."""
        return self._slot is not None

    def add(self, message: bytes) -> bytes | None:
        """Takes a piece and returns the frame that is whole with it; None while pieces are missing. Raises Malformed.

        The place of a whole frame is free: the calls in it take their own.
        """
        assert not self.is_waiting, self._frame_bytes
        size_bytes = self._checked_size(message)
        if self._slot is None:
            self._frame_bytes, self._first = size_bytes, message
            self.proceed()
            return None
        self._bytes += memoryview(message)[_HEAD_BYTES:]
        if len(self._bytes) < size_bytes:
            return None
        frame = bytes(self._bytes)
        self.end()
        return frame

    def _checked_size(self, message: bytes) -> int:
        """Returns the size of the frame of which this is the next piece. Raises Malformed."""
        if not is_piece(message):
            raise Malformed(f"{len(message)} bytes of another frame, before the last piece of one")
        size_bytes = int.from_bytes(message[1:_HEAD_BYTES], "big")
        added = len(message) - _HEAD_BYTES
        if added <= 0:
            raise Malformed(f"a piece of {len(message)} bytes has nothing of its frame")
        if self._slot is None:
            # One that is whole would be no piece.
            if not added < size_bytes <= MOST_FRAME_BYTES:
                raise Malformed(f"the first piece, {added} bytes, of a frame of {size_bytes} bytes")
        elif size_bytes != self._frame_bytes or len(self._bytes) + added > size_bytes:
            what = f"after {len(self._bytes)} of {self._frame_bytes}"
            raise Malformed(f"a piece, {added} bytes, of a frame of {size_bytes} bytes, {what}")
        return size_bytes

    def proceed(self) -> bool:
        """Takes the place of the frame whose first piece waits, if there is room. Returns whether there was."""
        assert self._slot is None and self._first, self._frame_bytes
        if not self._room.has_room_for(self._frame_bytes):
            return False
        self._slot = self._room.take(0, self._frame_bytes, self._frame_bytes)
        self._bytes += memoryview(self._first)[_HEAD_BYTES:]
        self._first = b""
        return True

    def end(self) -> None:
        """Drops what has come, and frees the place."""
        slot, self._slot = self._slot, None
        if slot is not None:
            self._room.release(slot)
        self._bytes = bytearray()
        self._first, self._frame_bytes = b"", 0
