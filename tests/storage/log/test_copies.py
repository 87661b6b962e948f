"""How often the store copies the bytes of a set, counted by the memory that it takes for a large one."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.batch import Record, build_batch
from storage.config import LogConfig
from storage.disk.os_filesystem import OsFileSystem
from storage.log import PartitionLog
from tests.storage.log.appends import follow, lead
from tests.storage.logs import NOW_MS

SIZE_BYTES = 1 << 20
CONFIG = LogConfig(max_message_bytes=4 << 20)
# What indexes, marks and the objects of an append may take.
AROUND_BYTES = 64 << 10
SET = build_batch([Record(0, NOW_MS, b"k", bytes(SIZE_BYTES))])


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    directory = str(tmp_path / "topic-0")
    file_system = OsFileSystem()
    file_system.make_directory(directory)
    return PartitionLog.open(
        file_system, directory, CONFIG, clean=True, recovery_point=0, log_start_offset=0, now_ms=NOW_MS
    )


def taken_bytes(work: Callable[[], object]) -> int:
    """The most memory that Python held at one time for `work`."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_leader_copies_a_set_once_to_stamp_it(log: PartitionLog) -> None:
    lead(log, SET)
    taken = taken_bytes(lambda: lead(log, SET))
    assert len(SET) <= taken < len(SET) + AROUND_BYTES


def test_a_leader_stamps_a_bytearray_in_place(log: PartitionLog) -> None:
    lead(log, SET)
    own = bytearray(SET)
    assert taken_bytes(lambda: log.append_as_leader(own, leader_epoch=0, now_ms=NOW_MS)) < AROUND_BYTES


def test_a_follower_writes_what_it_received(log: PartitionLog) -> None:
    numbered = build_batch([Record(0, NOW_MS, b"k", bytes(SIZE_BYTES))], partition_leader_epoch=0)
    assert taken_bytes(lambda: follow(log, numbered)) < AROUND_BYTES


def test_a_read_takes_the_memory_of_what_it_returns(log: PartitionLog) -> None:
    lead(log, SET)
    taken = taken_bytes(lambda: log.read(0, max_size=4 << 20))
    assert len(SET) <= taken < len(SET) + AROUND_BYTES
