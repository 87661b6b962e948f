"""The controller's log: a torn tail heals, but damage of committed records is refused and nothing is cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.core.controller.metadata_damage import DamagedMetadataLog
from cluster.core.controller.metadata_log import METADATA_DIRECTORY, StoredMetadataLog
from cluster.core.metadata.records import RemoveTopicRecord
from storage.disk.filesystem import OpenMode
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from storage.recovery.cut import RecoveryCut

DECISIONS = 6


def opened(directory: Path, cuts: list[RecoveryCut] | None = None) -> StoredMetadataLog:
    report = (cuts if cuts is not None else []).append
    return StoredMetadataLog.open(OsFileSystem(), str(directory), now_ms=1, draws=Draws(1), report=report)


def decide(log: StoredMetadataLog, number: int, *, is_flushed: bool = True) -> None:
    log.append([RemoveTopicRecord(name=f"topic-{number}", topic_id="0" * 32)], now_ms=1)
    if is_flushed:
        log.prepare_flush()()
        log.flushed(log.end_offset)


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    log = opened(tmp_path)
    for number in range(DECISIONS):
        decide(log, number)
    log.close(1)
    return tmp_path / METADATA_DIRECTORY / f"{0:020d}.log"


def batch_positions(log_file: Path) -> list[int]:
    from storage.segment.file_records import FileRecords

    return [
        batch.position or 0 for batch in FileRecords(OsFileSystem(), str(log_file), read_only=True).batches()
    ]


def flip(log_file: Path, position: int) -> bytes:
    data = bytearray(log_file.read_bytes())
    data[position] ^= 0x10
    log_file.write_bytes(data)
    return bytes(data)


@pytest.mark.parametrize("place", [9, 17, 70], ids=["size", "checksum", "record"])
@pytest.mark.parametrize("decision", range(DECISIONS - 1))
def test_damage_of_a_committed_decision_is_refused_and_nothing_is_cut(
    log_file: Path, decision: int, place: int
) -> None:
    position = batch_positions(log_file)[decision]
    damaged = flip(log_file, position + place)
    with pytest.raises(DamagedMetadataLog, match=f"at byte {position}") as refused:
        opened(log_file.parent.parent)
    assert str(log_file) in str(refused.value) and "\n" not in str(refused.value)
    assert log_file.read_bytes() == damaged


@pytest.mark.parametrize("kept", [1, 30, 61])
def test_a_torn_last_decision_is_cut(log_file: Path, kept: int) -> None:
    last = batch_positions(log_file)[-1]
    file = OsFileSystem().open(str(log_file), OpenMode.WRITE)
    file.truncate(last + kept)
    file.close()
    cuts: list[RecoveryCut] = []
    assert opened(log_file.parent.parent, cuts).end_offset == DECISIONS - 1
    assert [cut.position for cut in cuts] == [last]


def test_the_first_of_several_unflushed_decisions_may_be_lost_alone(log_file: Path) -> None:
    log = opened(log_file.parent.parent)
    for number in range(3):
        # A power loss may keep the block of the last batch and not that of the first.
        decide(log, number, is_flushed=False)
    flip(log_file, batch_positions(log_file)[DECISIONS] + 70)
    assert opened(log_file.parent.parent).end_offset == DECISIONS
