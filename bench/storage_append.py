"""Append as follower over the bare loop of floors.py, and as leader beside Kafka's own."""

from __future__ import annotations

import functools
import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from bench import kafka_peer
from bench.floors import append_floor
from bench.storage_data import (
    BATCH_SIZES,
    FIRST_TIMESTAMP,
    ROUNDS,
    batch_of_records,
    blocks_of,
    label,
    open_log,
    ratio,
    scratch,
)
from bench.table import Line
from storage.crc32c import crc32c

FOLLOWER_MARKS = {1 << 10: 0.4, 16 << 10: 0.6, 256 << 10: 0.7}
LEADER_MARK = 0.35
LEADER_MIB = 64


def lines() -> Iterator[Line]:
    for size_bytes in BATCH_SIZES:
        with scratch() as root:
            yield follower(size_bytes, root)
    with scratch() as root:
        yield from leader(root)


def follower(size_bytes: int, root: Path) -> Line:
    blocks = blocks_of(size_bytes)
    over_floor, seconds = ratio(
        lambda: append_floor(blocks, str(root / "floor"), crc32c),
        functools.partial(append_as_follower, root / "appended-0", blocks),
    )
    return Line(
        what=f"follower append, {label(size_bytes)}",
        value=over_floor,
        unit="of the bare CRC and write",
        target=FOLLOWER_MARKS[size_bytes],
        detail=f"{sum(map(len, blocks)) / seconds / 1e6:,.0f} MB/s",
    )


def append_as_follower(target: Path, blocks: list[bytes]) -> float:
    target.mkdir()
    log = open_log(target)
    start = time.perf_counter()
    for block in blocks:
        log.append_as_follower(block, leader_epoch=0, now_ms=FIRST_TIMESTAMP)
    seconds = time.perf_counter() - start
    log.close_handles()
    shutil.rmtree(target)
    return seconds


def append_as_leader(target: Path, batch: bytes, count: int) -> float:
    """Every record looked at, a batch a call; each comes as off the network, with base offset 0."""
    target.mkdir()
    log = open_log(target)
    start = time.perf_counter()
    for _ in range(count):
        log.append_as_leader(batch, leader_epoch=0, now_ms=FIRST_TIMESTAMP)
    seconds = time.perf_counter() - start
    log.close_handles()
    shutil.rmtree(target)
    return seconds


def leader(root: Path) -> Iterator[Line]:
    is_there = kafka_peer.absence() is None
    peers = [line["leader_mb_s"] for line in kafka_peer.append_mb_s(LEADER_MIB, root)] if is_there else []
    for index, size_bytes in enumerate(BATCH_SIZES):
        batch, records = batch_of_records(size_bytes)
        count = (LEADER_MIB << 20) // len(batch)
        rounds = [append_as_leader(root / "led-0", batch, count) for _ in range(ROUNDS)]
        mb_s = count * len(batch) / statistics.median(rounds) / 1e6
        yield Line(
            what=f"leader append, {label(size_bytes)} of {records} records",
            value=mb_s / peers[index] if peers else mb_s,
            unit="of Kafka's leader append" if peers else "MB/s",
            target=LEADER_MARK if peers else None,
            peer=f"Kafka {peers[index]:,.0f} MB/s" if peers else "",
            detail=f"{mb_s:,.0f} MB/s, {count / statistics.median(rounds):,.0f} batches/s",
        )
