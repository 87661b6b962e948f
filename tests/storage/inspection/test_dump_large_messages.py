"""Large records of Kafka's own topics: decoded as a whole up to a size and a number of values, whatever unpacks."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path

import pytest

from storage.batch import Compression, Record, build_batch
from storage.batch.legacy.builder import build_message_set
from storage.batch.pieces import LARGE_RECORD_BYTES, MOST_MESSAGE_BYTES
from storage.codec.varint import encode_varint
from storage.disk.os_filesystem import OsFileSystem
from storage.inspection.dump.decoders import ClusterMetadataDecoder, RecordDecoder, offsets_decoder
from storage.inspection.dump.dump import DumpOptions, dump_files
from storage.inspection.messages.decode import MOST_VALUES

SEGMENT = f"{0:020d}.log"
# The key of a group's metadata: its version 2, then the name.
KEY = b"\x00\x02\x00\x01g"
MOST_BYTES = 64 << 20


def dumped(directory: Path, data: bytes, decoder: RecordDecoder, *, json: bool = False) -> list[str]:
    (directory / SEGMENT).write_bytes(data)
    lines: list[str] = []
    options = DumpOptions(print_data_log=True, decoder=decoder, json=json)
    dump_files(OsFileSystem(), [str(directory / SEGMENT)], options, write=lines.append, report=lines.append)
    return lines


def group(member_count: int, subscription: bytes = b"") -> bytes:
    """Returns the value of a consumer group's metadata, version 3."""
    text = struct.pack(">h", 1) + b"m"
    member = text + b"\xff\xff" + text + text + bytes(8)
    member += struct.pack(">i", len(subscription)) + subscription + bytes(4)
    head = (
        struct.pack(">hh", 3, len(b"consumer"))
        + b"consumer"
        + struct.pack(">i", 1)
        + b"\xff\xff" * 2
        + bytes(8)
    )
    return head + struct.pack(">i", member_count) + member * member_count


def quota(entity_count: int) -> bytes:
    """Returns a metadata record whose structures have three bytes each."""
    entities = encode_unsigned(entity_count + 1) + b"\x01\x00\x00" * entity_count
    return b"\x01\x0e\x00" + entities + b"\x01" + bytes(8) + b"\0\0"


def encode_unsigned(number: int) -> bytes:
    # The zigzag of an even number is twice it.
    return encode_varint(number // 2 if number % 2 == 0 else -(number + 1) // 2)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("magic", [1, 2])
def test_a_large_message_of_kafkas_topics_is_decoded_as_a_small_one(
    magic: int, codec: Compression, tmp_path: Path
) -> None:
    value = group(5_000)
    assert len(value) > LARGE_RECORD_BYTES
    record = Record(0, 7, KEY, value, ((b"h".decode(), b"v"),) if magic == 2 else ())
    data = (
        build_batch([record], compression=codec)
        if magic == 2
        else build_message_set([record], magic=1, compression=codec)
    )
    key, shown = offsets_decoder().show(record)
    assert shown is not None and shown.count('"memberId"') == 5_000
    line = dumped(tmp_path, data, offsets_decoder())[-1]
    assert line.endswith(f"{'headerKeys: [h]' if magic == 2 else ''} key: {key} payload: {shown}")
    assert f"valueSize: {len(value)} " in line
    as_json = json.loads(dumped(tmp_path, data, offsets_decoder(), json=True)[-1])
    assert (as_json["key"], as_json["value"]) == (key, shown)


def test_a_large_tombstone_and_a_large_key_are_decoded_too(tmp_path: Path) -> None:
    # A group's name has 32,767 bytes at most; what follows it in a key is not read.
    record = Record(0, 7, KEY + bytes(LARGE_RECORD_BYTES), None)
    line = dumped(tmp_path, build_batch([record]), offsets_decoder())[-1]
    assert line.endswith('key: {"type":"2","data":{"group":"g"}} payload: <DELETE>')


@pytest.mark.parametrize("decoder", [offsets_decoder(), ClusterMetadataDecoder()])
@pytest.mark.parametrize("field", ["key", "value"])
def test_a_message_beyond_the_most_bytes_is_named_and_the_dump_goes_on(
    decoder: RecordDecoder, field: str, tmp_path: Path
) -> None:
    large, small = bytes(MOST_MESSAGE_BYTES + 1), b"\x00"
    key, value = (large, small) if field == "key" else (KEY, large)
    records = [Record(0, 7, key, value), Record(1, 7, KEY, small)]
    batches = [build_batch([record], base_offset=record.offset) for record in records]
    lines = dumped(tmp_path, b"".join(batches), decoder)
    (told,) = (line for line in lines if "is decoded here" in line)
    assert told.endswith(
        f"skipping. It has {MOST_MESSAGE_BYTES + 1} bytes, and is decoded here up to {MOST_MESSAGE_BYTES}."
    )
    assert "offset: 1 " in lines[-1]


def test_a_message_of_very_many_values_takes_little_memory(tmp_path: Path) -> None:
    data = build_batch([Record(0, 7, None, quota(MOST_VALUES))], compression=Compression.ZSTD)
    tracemalloc.start()
    try:
        line = dumped(tmp_path, data, ClusterMetadataDecoder())[-1]
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    assert line.endswith(
        f"Error at 0, skipping. it has more than {MOST_VALUES} values, which are not decoded here"
    )
    assert ClusterMetadataDecoder().show(Record(0, 7, None, quota(1_000)))[1].count("entityType") == 1_000  # type: ignore[union-attr]


def test_what_members_of_a_group_say_has_no_more_values_than_the_rest_leaves() -> None:
    # Version 0 of a subscription: topics of one empty name each.
    count = 30_000
    inner = struct.pack(">hi", 0, count) + b"\x00\x00" * count + b"\xff\xff\xff\xff"
    shown = offsets_decoder().show(Record(0, 7, KEY, group(10, inner)))[1]
    assert shown is not None
    members = json.loads(shown)["data"]["members"]
    decoded = [isinstance(member["subscription"], dict) for member in members]
    assert decoded == [True] * 6 + [False] * 4, decoded


@pytest.mark.slow
@pytest.mark.parametrize("decoder", [offsets_decoder(), ClusterMetadataDecoder()])
def test_a_value_of_120_mib_is_not_held(decoder: RecordDecoder, tmp_path: Path) -> None:
    record = Record(0, 7, KEY, bytes(120 << 20))
    data = build_batch([record], compression=Compression.ZSTD)
    tracemalloc.start()
    try:
        lines = dumped(tmp_path, data, decoder)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    assert "is decoded here up to" in lines[-1]
