"""Measures appends: a follower's over the bare loop of floors.py, a leader's over Kafka's and with a producer id."""

from __future__ import annotations

import functools
import shutil
import statistics
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import pairwise, repeat
from pathlib import Path

from bench import kafka_peer
from bench.floors import append_floor
from bench.storage_data import (
    BATCH_SIZES,
    FIRST_TIMESTAMP,
    ROUNDS,
    batch_of_records,
    batches_of_a_producer,
    blocks_of,
    label,
    open_log,
    ratio,
    scratch,
)
from bench.table import Line
from storage.codec.crc32c import crc32c

FOLLOWER_MARKS = {1 << 10: 0.4, 16 << 10: 0.6, 256 << 10: 0.7}
LEADER_MARK = 0.35
LEADER_MIB = 64
# After this many passes Kafka's just-in-time compiler has seen everything.
KAFKA_WARM_UPS = 3
IDEMPOTENT_BATCHES = {1 << 10: 4000, 16 << 10: 1000, 256 << 10: 100}
IDEMPOTENT_MARKS = {1 << 10: 2.0}
IDEMPOTENT_ROUNDS = 5


def lines() -> Iterator[Line]:
    """Measure each kind of append at each batch size."""
    for size_bytes in BATCH_SIZES:
        with scratch() as root:
            yield follower(size_bytes, root)
    with scratch() as root:
        yield from leader(root)
    for size_bytes in BATCH_SIZES:
        with scratch() as root:
            yield idempotent(size_bytes, root)


def follower(size_bytes: int, root: Path) -> Line:
    """Measure a follower's append of fetched blocks against checking every CRC and writing the blocks."""
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
    """Append the blocks to a new log, one a call; returns the seconds of the appends."""
    target.mkdir()
    log = open_log(target)
    start = time.perf_counter()
    for block in blocks:
        log.append_as_follower(block, leader_epoch=0, now_ms=FIRST_TIMESTAMP)
    seconds = time.perf_counter() - start
    log.close_handles()
    shutil.rmtree(target)
    return seconds


def append_as_leader(target: Path, batches: Iterable[bytes]) -> float:
    """Append the batches to a new log, one a call; returns the seconds of the appends.

    Each batch is as a client sends it: with base offset 0.
    """
    target.mkdir()
    log = open_log(target)
    start = time.perf_counter()
    for batch in batches:
        log.append_as_leader(batch, leader_epoch=0, now_ms=FIRST_TIMESTAMP)
    seconds = time.perf_counter() - start
    log.close_handles()
    shutil.rmtree(target)
    return seconds


def leader(root: Path) -> Iterator[Line]:
    """Measure a leader's append at each batch size, beside Kafka's if that can run here."""
    is_alone = kafka_peer.absence() is not None
    with nullcontext() if is_alone else kafka_peer.LeaderAppends(LEADER_MIB, root) as kafka:
        for size_bytes in BATCH_SIZES:
            yield leader_line(size_bytes, root, kafka)


def leader_line(size_bytes: int, root: Path, kafka: kafka_peer.LeaderAppends | None) -> Line:
    """Compare each pass of ours with the faster of Kafka's passes before and after it; the median counts."""
    batch, records = batch_of_records(size_bytes)
    count = (LEADER_MIB << 20) // len(batch)
    kafkas: list[float] = []

    def ask_kafka() -> None:
        if kafka is not None:
            mb_s, kafka_records = kafka.pass_mb_s(size_bytes)
            assert kafka_records == records, (kafka_records, records)
            kafkas.append(mb_s)

    for _ in range(KAFKA_WARM_UPS):
        ask_kafka()
    kafkas.clear()
    ask_kafka()
    ours = []
    for _ in range(ROUNDS):
        ours.append(count * len(batch) / append_as_leader(root / "led-0", repeat(batch, count)) / 1e6)
        ask_kafka()
    mb_s = statistics.median(ours)
    ratios = [each / max(beside) for each, beside in zip(ours, pairwise(kafkas), strict=False)]
    return Line(
        what=f"leader append, {label(size_bytes)} of {records} records",
        value=statistics.median(ratios) if ratios else mb_s,
        unit="of Kafka's leader append" if ratios else "MB/s",
        target=LEADER_MARK if ratios else None,
        peer=f"Kafka {statistics.median(kafkas):,.0f} MB/s" if kafkas else "",
        detail=f"{mb_s:,.0f} MB/s, {mb_s * 1e6 / len(batch):,.0f} batches/s",
    )


def idempotent(size_bytes: int, root: Path) -> Line:
    """Measure, in turns, the batches that clients send by default and the same batches without a producer id."""
    count = IDEMPOTENT_BATCHES[size_bytes]
    batch, _ = batch_of_records(size_bytes)
    produced = batches_of_a_producer(size_bytes, count)
    assert len(produced[0]) == len(batch), (len(produced[0]), len(batch))

    def one_round() -> tuple[float, float]:
        without_id = append_as_leader(root / "led-0", repeat(batch, count))
        return without_id, append_as_leader(root / "led-0", produced)

    one_round()
    rounds = [one_round() for _ in range(IDEMPOTENT_ROUNDS)]
    micros_without, micros = (statistics.median(each) / count * 1e6 for each in zip(*rounds, strict=True))
    return Line(
        what=f"idempotent leader append, {label(size_bytes)}",
        value=statistics.median(with_id / without_id for without_id, with_id in rounds),
        unit="of one without a producer id",
        target=IDEMPOTENT_MARKS.get(size_bytes),
        lower_is_better=True,
        detail=f"{micros:,.1f} over {micros_without:,.1f} µs",
    )
