"""What a deep verification says of records that contradict the header of their batch."""

from __future__ import annotations

import struct

import pytest

from storage.batch import Compression, Record, build_batch
from storage.batch.format import CRC_AT, CRC_COVERS_FROM, MAX_TIMESTAMP_AT
from storage.codec.crc32c import crc32c
from storage.disk.filesystem import OpenMode, join
from storage.inspection.verify.partition import verify_partition
from tests.storage.logs import DIRECTORY, NOW_MS, new_file_system

LAST_DELTA_AT = 23
RULES = {"1.5", "LS1", "FR11"}


def found(at: int, layout: str, value: int, codec: Compression, *, deep: bool = True) -> list[str]:
    """Verify a batch of three records, with another value in its header. Return the rules that it breaks."""
    records = [Record(offset, NOW_MS + offset, b"k", b"v") for offset in range(3)]
    content = bytearray(build_batch(records, compression=codec))
    struct.pack_into(layout, content, at, value)
    struct.pack_into(">I", content, CRC_AT, crc32c(content[CRC_COVERS_FROM:]))
    file_system = new_file_system()
    file = file_system.open(join(DIRECTORY, f"{0:020d}.log"), OpenMode.CREATE)
    file.append(bytes(content))
    file.close()
    problems = verify_partition(file_system, DIRECTORY, deep=deep).problems
    return [each.rule for each in problems if each.rule in RULES]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_a_record_later_than_the_greatest_timestamp_of_its_batch_is_named(codec: Compression) -> None:
    assert found(MAX_TIMESTAMP_AT, ">q", NOW_MS + 2, codec) == []
    # A header may have a later one than all of its records.
    assert found(MAX_TIMESTAMP_AT, ">q", NOW_MS + 3, codec) == []
    assert found(MAX_TIMESTAMP_AT, ">q", NOW_MS + 1, codec) == ["1.5"]
    assert found(MAX_TIMESTAMP_AT, ">q", NOW_MS + 1, codec, deep=False) == []


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_a_record_beyond_the_last_offset_of_its_batch_is_named(codec: Compression) -> None:
    assert found(LAST_DELTA_AT, ">i", 3, codec) == []
    assert found(LAST_DELTA_AT, ">i", 1, codec) == ["1.5"]
