"""A wrapper that unpacks to much is read from pieces, with the results of one that is held whole."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import pytest

from storage.batch import Compression, Record, RecordBatch
from storage.batch.cut_record import CutRecord
from storage.batch.format import TimestampType
from storage.batch.legacy.builder import build_message, build_message_set
from storage.batch.legacy.messages import CutMessage, read_messages
from storage.batch.pieces import HEADS_HELD
from storage.cleaner.rebuild import rebuild_batch
from storage.codec.compression import compress
from storage.errors import CorruptBatch, InvalidRecord

LARGE = bytes(range(256)) * 300
RECORDS = [
    *(Record(5 + number, 100 + number, b"k", bytes(700)) for number in range(120)),
    Record(125, 300, LARGE, LARGE),
    Record(126, 301, None, LARGE),
    Record(127, 302, LARGE, None),
    Record(128, 303, b"k", b"v"),
]
CODECS = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4)


def wrapped(content: bytes, codec: Compression = Compression.GZIP, *, offset: int = 9) -> bytes:
    value = compress(codec, content, magic=1)
    return build_message(offset, magic=1, timestamp=7, key=None, value=value, attributes=int(codec))


def inner(offset: int, value: bytes | None = b"v", attributes: int = 0) -> bytes:
    return build_message(offset, magic=1, timestamp=7, key=b"k", value=value, attributes=attributes)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("timestamp_type", [TimestampType.CREATE, TimestampType.LOG_APPEND])
def test_messages_from_pieces_are_those_of_the_whole(
    magic: int, codec: Compression, timestamp_type: TimestampType
) -> None:
    data = build_message_set(
        RECORDS,
        magic=magic,
        base_offset=5,
        compression=codec,
        timestamp_type=timestamp_type,
        log_append_time_ms=999,
    )
    expected = RECORDS
    if magic == 0:
        expected = [each._replace(timestamp=-1) for each in RECORDS]
    elif timestamp_type is TimestampType.LOG_APPEND:
        expected = [each._replace(timestamp=999) for each in RECORDS]
    found = list(read_messages(data))
    assert [each.record() for each in found] == [tuple(each) for each in expected]
    assert all(each.is_valid for each in found)
    assert sum(isinstance(each, CutMessage) for each in found) == 3


def test_of_a_large_message_only_the_beginnings_are_held() -> None:
    data = build_message_set(RECORDS, magic=1, base_offset=5, compression=Compression.GZIP)
    large = [each.record() for each in read_messages(data, held=HEADS_HELD)][120:123]
    assert all(isinstance(each, CutRecord) for each in large)
    assert [(each.key, each.value) for each in large] == [
        (LARGE[:64], LARGE[:64]),
        (None, LARGE[:64]),
        (LARGE[:64], None),
    ]
    assert [(each.key_size, each.value_size) for each in large if isinstance(each, CutRecord)] == [
        (len(LARGE), len(LARGE)),
        (-1, len(LARGE)),
        (len(LARGE), -1),
    ]


@pytest.mark.parametrize("missing", [1, 5, len(LARGE), len(inner(1, LARGE)) - 12])
def test_an_incomplete_last_message_is_dropped(missing: int) -> None:
    content = inner(0, LARGE) + inner(1, LARGE)
    (found,) = read_messages(wrapped(content[:-missing]))
    # The offset of the wrapper is that of the last whole message.
    assert found.record() == Record(9, 7, b"k", LARGE)


def test_a_wrapper_without_a_whole_message_is_refused_however_much_it_unpacks_to() -> None:
    with pytest.raises(InvalidRecord, match="contains no message"):
        read_messages(wrapped(inner(0, LARGE)[:-1]))


def test_a_size_field_below_the_least_is_damage_at_once() -> None:
    with pytest.raises(CorruptBatch, match="size field of 3"):
        read_messages(wrapped(inner(0, LARGE) + struct.pack(">qi", 1, 3)))


def test_a_wrong_checksum_and_a_wrong_size_of_a_large_message_are_found() -> None:
    sound = inner(0, LARGE)
    flipped = sound[:-1] + bytes([sound[-1] ^ 1])
    assert [each.is_valid for each in read_messages(wrapped(flipped + inner(1)))] == [False, True]
    for at, what in ((26, "key"), (31, "value")):
        damaged = bytearray(sound)
        struct.pack_into(">i", damaged, at, len(LARGE) + 100)
        struct.pack_into(">I", damaged, 12, zlib.crc32(damaged[16:]))
        with pytest.raises(InvalidRecord, match=f"a {what} states"):
            list(read_messages(wrapped(bytes(damaged))))


def test_a_large_message_that_is_compressed_itself_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="compressed itself"):
        list(read_messages(wrapped(inner(0, LARGE, attributes=1))))


def test_bytes_after_the_value_of_a_large_message_are_ignored() -> None:
    message = bytearray(inner(0, LARGE) + b"more")
    struct.pack_into(">i", message, 8, len(message) - 12)
    struct.pack_into(">I", message, 12, zlib.crc32(message[16:]))
    (found,) = read_messages(wrapped(bytes(message)))
    assert found.is_valid and found.record() == Record(9, 7, b"k", LARGE)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("kept", [range(6, 9), range(120, 129), (126,), (125, 127, 128), range(5, 129)])
def test_cl18_a_wrapper_is_rebuilt_from_pieces_as_from_the_whole(
    kept: Sequence[int], magic: int, codec: Compression
) -> None:
    for kind in (TimestampType.CREATE, TimestampType.LOG_APPEND) if magic else (TimestampType.NO,):
        properties: dict[str, Any] = {
            "magic": magic, "compression": codec, "timestamp_type": kind, "log_append_time_ms": 900,
        }  # fmt: skip
        data = build_message_set(RECORDS, base_offset=5, **properties)
        rebuilt = rebuild_batch(RecordBatch(data, 0, len(data)), kept, None)
        left = [each for each in RecordBatch(data, 0, len(data)).records() if each.offset in kept]
        assert rebuilt == build_message_set(left, base_offset=kept[0], **properties)
        assert list(RecordBatch(rebuilt, 0, len(rebuilt)).records()) == left
        assert all(message.is_valid for message in read_messages(rebuilt))


@pytest.mark.parametrize("magic", [0, 1])
def test_the_fields_of_a_large_message_come_in_pieces(magic: int) -> None:
    data = build_message_set(RECORDS, magic=magic, base_offset=5, compression=Compression.GZIP)
    found = [
        [None if pieces is None else b"".join(pieces) for pieces in fields]
        for fields in RecordBatch(data, 0, len(data)).large_fields()
    ]
    assert found == [[LARGE, LARGE], [None, LARGE], [LARGE, None]]
    # What is not read is skipped.
    assert sum(1 for _ in RecordBatch(data, 0, len(data)).large_fields()) == 3
