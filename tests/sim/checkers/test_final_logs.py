"""The logs on the disks at the end of a run, held against what the clients saw."""

from __future__ import annotations

from cluster.core.messages import TopicPartition
from sim.checkers.base import Jury
from sim.checkers.chain import marks_of
from sim.checkers.ghost import ROTTEN, Ghost
from sim.disk import SimDisk
from sim.disk.life import Life
from sim.hosts.history import History, Outcome, SendOperation
from sim.judgement import FinalLogs
from sim.witness.disk_logs import DiskLogs
from storage.batch import Record, build_batch
from storage.disk.filesystem import OpenMode
from storage.draws import Draws

P = "t-0"
SENT = [
    SendOperation(
        producer="p", value=value, acks=-1, is_idempotent=True, invoked_us=0, outcome=Outcome.OK, partition=P,
        offset=offset,
    )
    for value, offset in (("first", 2), ("second", 3))
]  # fmt: skip


def log_of(first_offset: int) -> bytes:
    """Returns the two records that were sent, one key and one batch each, from that offset on."""
    return b"".join(
        build_batch([Record(offset, 5, b"k%d" % offset, send.value.encode())], base_offset=offset)
        for offset, send in enumerate(SENT, first_offset)
    )


def write(disk: SimDisk, data: bytes) -> None:
    file = disk.file_system(Life()).open(f"data/{P}/{0:020d}.log", OpenMode.CREATE)
    file.set_length(0)
    file.append(data)
    file.close()


def found(*, is_damaged: bool) -> list[str]:
    """Returns what is wrong with a compacted log that was written from offset 0 on, and is now from 2 on."""
    disk, ghost = SimDisk(Draws(1), lambda: 0), Ghost()
    jury = Jury(ghost, (), now_us=lambda: 0, on_violation=lambda violation: None)
    disk.file_system(Life()).make_directory(f"data/{P}")
    logs, partition = DiskLogs(jury, {1: disk}, ("data",)), ghost.partition(P)
    logs.expect_compaction(P)
    write(disk, log_of(0))
    reader = logs.reader(1, P)
    logs.remember(P, reader, reader.read_on())
    partition.leader = 1
    partition.image(1).chain.extend(marks_of(log_of(0)))
    if is_damaged:
        ghost.give_up_at_once(partition, 1, ROTTEN)
    write(disk, log_of(2))
    logs.lives.begin("t", "0a")
    names = [TopicPartition("t", 0)]
    FinalLogs(names, History(SENT), logs, jury, logs.lives, {P: ()}).judge()
    return [each.what for each in jury.violations]


def test_what_a_damaged_log_had_before_it_was_written_again_is_no_duplicate() -> None:
    assert [each.startswith("duplicate: 'first'") for each in found(is_damaged=False)][:1] == [True]
    assert found(is_damaged=True) == []
