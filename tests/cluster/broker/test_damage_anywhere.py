"""Bytes that change anywhere on a running broker's disk, or while it is down: no step and no job ends the broker.

What damage a checksum covers is refused with an error. The rest, base offsets, epochs, indexes and checkpoints, may be
any number. A start may refuse the directories; a broker that is up may only take a directory offline.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

import pytest

from cluster.core.messages import ListOffsetsRequest, ProducePartition, ProduceRequest, TopicPartition
from sim.disk import SimDisk
from storage.batch import Record, build_batch
from storage.draws import Draws
from storage.errors import StorageError
from tests.cluster.broker.driven_broker import FOLLOWED, LED, TOPIC_ID, Driven, elected, fetched

Step = Callable[[Driven], object]
# Small segments that are flushed, compacted and deleted while the broker is driven.
CONFIGS: Final = {
    "flush.messages": "4",
    "cleanup.policy": "compact,delete",
    "segment.bytes": "400",
    "min.cleanable.dirty.ratio": "0.01",
    "retention.ms": "70000",
}
# What another write leaves behind: zeros, ones, a number, a part of a checkpoint.
WRITTEN: Final = (bytes(4), bytes(20), b"\xff" * 8, b"\x7f\xff\xff\xff", b"\0\0\0\1", b"0\n1\n")


def produce(partitions: Sequence[TopicPartition]) -> Step:
    """Return a step in which one producer sends two records to each partition; five keys in turn."""

    def step(driven: Driven) -> None:
        now_ms, sequence = driven.setup.now_ms, 2 * driven.produced
        driven.produced += 1
        records = [
            Record(place, now_ms, f"k{(sequence + place) % 5}".encode(), b"value " * 4) for place in (0, 1)
        ]
        data = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)
        asked = tuple(ProducePartition(topic_partition=each, records=data) for each in partitions)
        driven.ask(ProduceRequest(acks=1, timeout_ms=1_000, partitions=asked))

    return step


def look_up(partitions: Sequence[TopicPartition]) -> Step:
    def step(driven: Driven) -> None:
        for each in partitions:
            for timestamp in (0, -1, -2, -3, 1_000_001):
                driven.ask(ListOffsetsRequest(topic_partition=each, topic_id=TOPIC_ID, timestamp=timestamp))

    return step


def fetch(partitions: Sequence[TopicPartition], *offsets: int, by: int, epoch: int = 0) -> Step:
    def step(driven: Driven) -> None:
        for offset in offsets:
            driven.ask(fetched(partitions, offset, by=by, epoch=epoch))

    return step


def follow(driven: Driven) -> None:
    for _ in range(3):
        driven.answer_fetches(b"some")


def exchange(driven: Driven) -> None:
    driven.settle(driven.setup.metadata(*elected(2, LED), *elected(1, FOLLOWED)))


def advance(for_ms: int) -> Step:
    return lambda driven: driven.advance(for_ms)


STORY: Final[tuple[Step, ...]] = (
    produce(LED), produce(LED), fetch(LED, 0, by=2), fetch(LED, 0, by=-1), produce(LED), fetch(LED, 4, by=2), follow,
    advance(6_000), produce(LED), fetch(LED, 6, by=2), look_up(LED), advance(65_000), produce(LED), produce(LED),
    fetch(LED, 10, by=2), advance(20_000), fetch(LED, 0, 2, 3, 5, 9, by=-1), advance(61_000), exchange, follow,
    fetch(FOLLOWED, 3, by=2, epoch=1), produce(FOLLOWED), produce(FOLLOWED), fetch(FOLLOWED, 1, by=-1, epoch=1),
    advance(130_000), look_up(FOLLOWED),
)  # fmt: skip


def files_below(disk: SimDisk, folder: str) -> list[str]:
    found = []
    for name in disk.names_in(folder):
        path = f"{folder}/{name}"
        found += files_below(disk, path) if name.startswith("t-") else [path]
    return found


def damage(disk: SimDisk, draw: random.Random) -> None:
    """Overwrite some bytes of some file, wherever they are."""
    disk.sync_all()
    files = [path for each in ("one", "two") for path in files_below(disk, each) if disk.synced_bytes(path)]
    data = draw.choice([*WRITTEN, draw.randbytes(1), draw.randbytes(8)])
    disk.overwrite(draw.choice(files), data, Draws(draw.randrange(1 << 30)))


def tell(seed: int) -> bool:
    """Tell the story with drawn damage, some of it while the broker is down. Return whether it was up to the end."""
    draw, driven, life = random.Random(seed), Driven(configs=CONFIGS), 1
    damaged_at = set(draw.sample(range(len(STORY)), draw.choice([1, 2, 3])))
    for number, step in enumerate(STORY):
        if number in damaged_at:
            damage(driven.setup.disk, draw)
            if draw.random() < 0.3:
                life += 1
                driven.setup.disk.crash_process()
                try:
                    driven = Driven(driven.setup.disk, life=life, configs=CONFIGS)
                except StorageError:
                    return False
        if driven.has_stopped:
            return False
        step(driven)
    return True


def test_damage_anywhere_ends_no_broker() -> None:
    # In 0 and 5 a base offset leads the look-up of a high watermark out of the log.
    assert sum(tell(seed) for seed in range(12)) > 6


@pytest.mark.slow
def test_much_damage_anywhere_ends_no_broker() -> None:
    assert sum(tell(seed) for seed in range(1_000, 2_000)) > 500
