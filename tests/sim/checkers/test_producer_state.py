"""What a broker remembers of producers is what its log says of them (R3)."""

from __future__ import annotations

from struct import Struct
from typing import Any

import pytest

from cluster.core.broker.broker import Broker
from replog.testing import SimCluster
from sim.bugs import Replacement, replaced
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.producer_state import (
    LastBatch,
    ends_by_epoch,
    entries_of,
    forgotten_findings,
    last_batches,
    producer_state_findings,
    recent_ends,
    recent_findings,
    strange_findings,
)
from sim.disk.life import Life
from sim.run import run_scenario
from sim.witness.log_reader import DiskEye, LogReader
from sim.witness.producers import ProducerStates
from storage.batch import Record, RecordBatch, build_batch
from storage.codec.crc32c import crc32c
from storage.disk.filesystem import read_file
from storage.producers.state import ProducerStateManager
from tests.sim.disk.disks import new_disk

FIVE = LastBatch(0, 5, 5)
ENTRY = Struct(">qhiqiqiq")


def findings(
    held: dict[int, LastBatch], logged: dict[int, LastBatch], *, log_start: int = 0, may_expire: bool = False
) -> list[str]:
    return list(producer_state_findings(held, logged, log_start, may_expire=may_expire))


def test_r3_a_producer_is_known_by_its_last_batch() -> None:
    assert findings({7: FIVE}, {7: FIVE}) == []
    for other in (LastBatch(1, 5, 5), LastBatch(0, 4, 5), LastBatch(0, 5, 4)):
        assert len(findings({7: other}, {7: FIVE})) == 1, other


def test_r3_a_producer_of_the_log_is_not_forgotten_unless_it_may_expire() -> None:
    assert findings({}, {7: FIVE}) == ["forgot producer 7, whose last batch is (0, 5, 5)"]
    assert findings({}, {7: FIVE}, may_expire=True) == []


def test_r3_what_a_cut_dropped_is_not_remembered() -> None:
    assert len(findings({7: FIVE}, {})) == 1
    # Its batch was deleted with the start of the log.
    assert findings({7: FIVE}, {}, log_start=6) == []


def test_the_last_batch_of_each_producer_counts_from_the_start_of_the_log_on() -> None:
    def batch(producer: int, offset: int) -> RecordBatch:
        data = build_batch(
            [Record(offset, 1, None, b"v")],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=offset,
            base_offset=offset,
        )
        return RecordBatch(data, 0, len(data))

    batches = [batch(7, 3), batch(8, 4), batch(7, 5)]
    assert last_batches(batches, 0) == {7: FIVE, 8: LastBatch(0, 4, 4)}
    assert last_batches(batches, 5) == {7: FIVE}


def batch_of(producer: int, offset: int, *, epoch: int = 0, sequence: int | None = None) -> RecordBatch:
    data = build_batch(
        [Record(offset, 1, None, b"v")],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=offset if sequence is None else sequence,
        base_offset=offset,
    )
    return RecordBatch(data, 0, len(data))


def test_ps5_no_batch_of_another_epoch_is_known_again() -> None:
    logged = ends_by_epoch([batch_of(7, 3), batch_of(7, 4, epoch=1, sequence=0), batch_of(8, 5)])
    assert list(strange_findings({(7, 1): [4], (8, 0): [5]}, logged, 0)) == []
    # What retention has deleted may be remembered.
    assert list(strange_findings({(7, 1): [3, 4]}, logged, 4)) == []
    assert list(strange_findings({(7, 1): [3, 4]}, logged, 0)) == [
        "remembers batches up to [3] in epoch 1 of producer 7; its log has none there"
    ]


def test_ps10_the_last_five_batches_of_a_producer_in_its_epoch_are_to_be_known_again() -> None:
    batches = [batch_of(7, offset) for offset in range(8)]
    assert recent_ends(batches, 0) == {7: (3, 4, 5, 6, 7)}
    assert recent_ends(batches, 5) == {7: (5, 6, 7)}
    # A gap, and a new epoch, begin again.
    assert recent_ends([*batches, batch_of(7, 8, sequence=9)], 0) == {7: (8,)}
    assert recent_ends([*batches, batch_of(7, 8, epoch=1, sequence=0)], 0) == {7: (8,)}
    # A start need not look back so far.
    assert recent_ends([batch_of(8, 0), *[batch_of(7, offset) for offset in range(1, 21)]], 0).keys() == {7}


@pytest.mark.parametrize(
    ("held", "is_wrong"),
    [
        ([3, 4, 5], False),
        ([1, 2, 3, 4, 5], False),
        ([4, 5], True),
        ([2, 4, 5], True),
        ([4], False),
        ([], False),
    ],
)
def test_ps10_a_retry_of_each_of_them_is_known(held: list[int], is_wrong: bool) -> None:
    assert bool(list(recent_findings({7: held}, {7: (3, 4, 5)}))) is is_wrong


@pytest.mark.slow
def test_a_run_shows_a_follower_that_remembers_what_it_has_cut() -> None:
    def keeps(original: object) -> Any:
        return lambda *arguments: None

    target = "storage.log.truncation:Truncation._rebuild_producers"
    with replaced(Replacement(target=target, make=keeps)):
        results = [run_scenario("divergence-truncation", seed, stops_early=True) for seed in range(3)]
    assert "producer-state" in {each.checker for result in results for each in result.violations}


def test_ps5_no_batch_of_an_epoch_that_has_ended_counts_for_duplicates() -> None:
    assert not list(forgotten_findings(7, 0, 1, [12], 12)) and not list(
        forgotten_findings(7, 1, 1, [9, 12], 12)
    )
    # Nobody knows of an epoch before.
    assert not list(forgotten_findings(7, None, 1, [9, 12], 12))
    assert list(forgotten_findings(7, 0, 1, [9, 12], 12)) == [
        "remembers batches of producer 7 that end at [9], from before its epoch 1"
    ]
    assert list(forgotten_findings(7, 2, 1, [9], 12))


def test_ps15_a_snapshot_is_read_as_kafka_writes_it() -> None:
    file_system = new_disk().file_system(Life())
    file_system.make_directory("d")
    state = ProducerStateManager(file_system, "d")
    data = build_batch(
        [Record(4, 1, None, b"v"), Record(5, 1, None, b"w")],
        producer_id=1 << 40, producer_epoch=3, base_sequence=7, base_offset=4,
    )  # fmt: skip
    state.replay(RecordBatch(data, 0, len(data)))
    state.reached(6)
    state.take_snapshot()
    content = read_file(file_system, f"d/{6:020}.snapshot")
    assert entries_of(content) == {1 << 40: LastBatch(3, 8, 5)}
    assert entries_of(content[:-1]) is entries_of(b"") is None
    assert entries_of(content[:-1] + b"x") is None


@pytest.mark.parametrize(
    ("damage", "is_wrong"),
    [("", False), ("forgets", True), ("knows what comes later", True), ("does not load", False)],
)
def test_ps16_a_snapshot_has_what_its_log_had_at_its_offset(damage: str, is_wrong: bool) -> None:
    cluster = SimCluster(seed=1)
    for _ in range(3):
        cluster.produce()
    cluster.advance(1_000)
    node = cluster._node(1)
    assert isinstance(node.core, Broker)
    log = next(iter(node.core.replicas().values())).log
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    reader = LogReader(DiskEye(node.disk), log.directory)
    reader.read_all()
    other = log.producers.empty_state(0, 0)
    end = 0 if damage in ("forgets", "does not load") else log.log_end_offset
    for _, data in reader.batches():
        batch = RecordBatch(data, 0, len(data))
        if batch.last_offset < end:
            other.replay(batch)
    entries = b"".join(
        ENTRY.pack(producer, each.producer_epoch, each.last_sequence, each.last_offset, 0, 0, 0, -1)
        for producer, each in other.producers.items()
    )
    offset = 1 if damage == "knows what comes later" else log.log_end_offset
    checksum = crc32c(Struct(">i").pack(len(entries) // ENTRY.size) + entries) + (damage == "does not load")
    snapshot = Struct(">hIi").pack(1, checksum, len(entries) // ENTRY.size) + entries
    ProducerStates(jury, may_expire=False).look(1, "t-0", log, reader, {offset: snapshot})
    assert [f"in its snapshot at {offset}" in each.what for each in jury.violations] == [True] * is_wrong
