"""What a deep verification says of records that contradict the header of their batch."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from storage.batch import Compression, Record, build_batch
from storage.batch.format import CRC_AT, CRC_COVERS_FROM, MAX_TIMESTAMP_AT
from storage.codec.crc32c import crc32c
from storage.disk.filesystem import OpenMode, join
from storage.disk.os_filesystem import OsFileSystem
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


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b"\0" * 5, "the last 5 bytes are no whole batch"),
        (b"\0" * 30, "a size field of 0, below the least of 14"),
    ],
)
def test_fr8_the_end_of_each_torn_log_is_told_once(tmp_path: Path, tail: bytes, reason: str) -> None:
    for base_offset in (0, 1):
        content = build_batch([Record(base_offset, 5, b"k", b"v")], base_offset=base_offset)
        (tmp_path / f"{base_offset:020d}.log").write_bytes(content + tail)
    report = verify_partition(OsFileSystem(), str(tmp_path), deep=True)
    told = [each for each in report.problems if each.path.endswith(".log") and each.rule == "FR8"]
    assert [(each.position, each.message) for each in told] == [(len(content), reason)] * 2


def test_fr8_a_torn_end_is_told_beside_damage_before_it(tmp_path: Path) -> None:
    content = bytearray(build_batch([Record(0, 5, b"k", b"v")]))
    content[-1] ^= 1
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(bytes(content) + b"\0" * 5)
    report = verify_partition(OsFileSystem(), str(tmp_path), deep=True)
    assert [each.position for each in report.problems if each.path == str(path)] == [0, len(content)]
