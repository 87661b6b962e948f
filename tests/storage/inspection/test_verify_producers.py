"""What `log verify` says of producers and transactions that contradict the log, its indexes or its snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from sim.disk import SimFileSystem
from sim.disk.life import Life
from storage.disk.checkpoints import LOG_START_OFFSET_CHECKPOINT
from storage.disk.filesystem import OpenMode, join
from storage.index.transaction_index import ENTRY
from storage.inspection.verify.directory import verify_log_directory
from storage.inspection.verify.partition import LogStarts, verify_partition
from storage.producers.entry import ProducerStateEntry
from storage.producers.rows import encode_snapshot
from storage.producers.snapshot import snapshot_name
from tests.storage.cleaner.compacted_logs import COMPACTED, CleanedLog
from tests.storage.logs import DIRECTORY, SIZE, batch, marker, new_file_system

PID = 7
RULES = {"PS4", "PS15", "PS16", "LS10", "IX26", "IX27", "IX30", "1.9", "1.10"}
# File, byte, rule.
Found = tuple[str, int | None, str]


def put(file_system: SimFileSystem, name: str, content: bytes) -> None:
    file = file_system.open(join(DIRECTORY, name), OpenMode.CREATE)
    file.append(content)
    file.close()


def found(segments: Mapping[int, Sequence[bytes]], files: Mapping[str, bytes] | None = None) -> list[Found]:
    """Verify a log of these segments with these files beside them. Return what concerns its producers."""
    file_system = new_file_system()
    for base_offset, batches in segments.items():
        put(file_system, f"{base_offset:020d}.log", b"".join(batches))
    for name, content in (files or {}).items():
        put(file_system, name, content)
    problems = verify_partition(file_system, DIRECTORY, deep=True).problems
    return [
        (each.path.rpartition("/")[2], each.position, each.rule) for each in problems if each.rule in RULES
    ]


def data(offset: int, sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False) -> bytes:
    return batch(
        offset,
        count,
        producer_id=PID,
        producer_epoch=epoch,
        sequence=sequence,
        is_transactional=transactional,
    )


def at(place: int, rule: str) -> list[Found]:
    """Return the finding in the batch at `place`, each of which is as large as the first."""
    return [(f"{0:020d}.log", place * SIZE, rule)]


def test_ps4_a_sequence_that_does_not_follow_is_named() -> None:
    assert found({0: [data(0, 0), data(1, 1), data(2, 2)]}) == []
    assert found({0: [data(0, 0), data(1, 2)]}) == at(1, "PS4")
    assert found({0: [data(0, 5), data(1, 5)]}) == at(1, "PS4")
    assert found({0: [data(0, 2**31 - 1), data(1, 0)]}) == []
    assert found({0: [data(0, 2**31 - 1), data(1, 1)]}) == at(1, "PS4")


@pytest.mark.parametrize(
    ("checkpoint", "is_found"),
    [
        ("0\n1\n{} 0\n", True),
        ("0\n1\n{} 1\n", False),
        ("0\n1\nu 0 1\n", True),
        ("0\n5\n", True),
        (None, True),
    ],
)
def test_ps4_what_is_below_the_log_start_says_nothing(checkpoint: str | None, *, is_found: bool) -> None:
    """A follower keeps there what it had, where the log of its leader begins later."""
    file_system = new_file_system()
    put(file_system, f"{0:020d}.log", data(0, 0) + data(1, 7) + data(2, 8))
    directory, _, name = DIRECTORY.rpartition("/")
    if checkpoint is not None:
        topic, _, number = name.rpartition("-")
        file = file_system.open(join(directory, LOG_START_OFFSET_CHECKPOINT), OpenMode.CREATE)
        file.append(checkpoint.format(f"{topic} {number}").encode())
        file.close()
    assert names_ps4(file_system) is is_found
    # A node knows better than its checkpoint.
    assert names_ps4(file_system, 0) and not names_ps4(file_system, 1)


def names_ps4(file_system: SimFileSystem, log_start_offset: int | None = None) -> bool:
    log_start = None if log_start_offset is None else lambda: log_start_offset
    report = verify_partition(file_system, DIRECTORY, log_start=log_start)
    return "PS4" in [each.rule for each in report.problems]


def test_ps4_a_new_epoch_begins_its_own_sequences_and_an_older_one_is_named() -> None:
    assert found({0: [data(0, 5), data(1, 0, epoch=1)]}) == []
    assert found({0: [data(0, 5, epoch=1), data(1, 6)]}) == at(1, "PS4")


def test_ps4_after_missing_offsets_a_sequence_may_be_ahead_but_not_go_back() -> None:
    assert found({0: [data(0, 0), data(5, 3)]}) == []
    assert found({0: [data(0, 3), data(5, 3)]}) == at(1, "PS4")
    assert found({0: [data(0, 3), batch(9), data(10, 9)]}) == []


def test_ps4_after_the_missing_offsets_a_sequence_may_not_be_ahead_again() -> None:
    assert found({0: [batch(0), data(5, 0), data(6, 2)]}) == at(2, "PS4")


def entry(first: int, last: int, stable: int, *, producer_id: int = PID) -> bytes:
    return ENTRY.pack(0, producer_id, first, last, stable)


INDEX = f"{0:020d}.txnindex"
# A transaction from 0 on that is aborted at 1, and one from 2 on that is aborted at 3.
TWO_ABORTED = [
    data(0, 0, transactional=True),
    marker(PID, is_commit=False, offset=1),
    data(2, 1, transactional=True),
    marker(PID, is_commit=False, offset=3),
]
FIRST, SECOND = entry(0, 1, 2), entry(2, 3, 4)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (FIRST + SECOND, []),
        # A rebuilt index may say that a transaction began earlier.
        (FIRST + entry(1, 3, 4), []),
        (FIRST + entry(3, 3, 4), [(34, "LS10")]),
        (FIRST, [(None, "LS10")]),
        (FIRST + SECOND + b"abc", [(68, "IX26")]),
        (FIRST + SECOND + entry(2, 3, 4), [(68, "IX27")]),
        (FIRST + entry(2, 3, 4, producer_id=8), [(34, "LS10")]),
        (entry(0, 1, 3) + SECOND, [(0, "1.9")]),
        (entry(2, 1, 2) + SECOND, [(0, "1.9"), (0, "LS10")]),
        (b"\x01" + FIRST[1:] + SECOND, [(None, "IX30"), (None, "LS10"), (None, "LS10")]),
    ],
)
def test_ls10_a_transaction_index_has_the_aborted_transactions_of_its_segment(
    content: bytes, expected: list[tuple[int | None, str]]
) -> None:
    problems = found({0: TWO_ABORTED}, {INDEX: content})
    # A second entry for one marker has no transaction left, and no finding but its own.
    assert problems == [(INDEX, position, rule) for position, rule in expected]


def test_ls10_a_committed_transaction_and_a_marker_without_data_need_no_entry() -> None:
    batches = [data(0, 0, transactional=True), marker(PID, is_commit=True, offset=1)]
    assert found({0: batches}) == []
    assert found({0: [*batches, marker(PID, is_commit=False, offset=2)]}) == []
    assert found({0: batches}, {INDEX: FIRST}) == [(INDEX, 0, "LS10")]


def test_ls10_a_transaction_that_ended_below_the_log_start_needs_no_entry() -> None:
    """A compaction looks at none there (CL22)."""
    log = CleanedLog(COMPACTED)
    log.in_transaction(7, (1, "x"))
    log.abort(7)
    log.put(2)
    log.put(3)
    log.roll()
    log.put(4)
    log.log.marks.maybe_increment_log_start_offset(3)
    log.clean(3)
    log.log.close()
    file_system = log.disk.file_system(Life())
    assert verify_partition(file_system, DIRECTORY, log_start=lambda: 3).problems == []
    (problem,) = verify_partition(file_system, DIRECTORY, log_start=lambda: 0).problems
    assert problem.rule == "LS10"


def test_ls10_an_entry_belongs_to_the_segment_of_its_marker() -> None:
    first, second = TWO_ABORTED[:2], TWO_ABORTED[2:]
    later = f"{2:020d}.txnindex"
    assert found({0: first, 2: second}, {INDEX: FIRST, later: SECOND}) == []
    # The segment of an entry has the marker that the entry names.
    assert found({0: first, 2: second}, {INDEX: FIRST, later: FIRST + SECOND}) == [
        (later, 0, "IX30"),
        (later, 0, "LS10"),
    ]


def snapshot(
    offset: int, *, epoch: int = 0, last_sequence: int = 1, last_offset: int = 1
) -> dict[str, bytes]:
    remembered = ProducerStateEntry(PID, producer_epoch=epoch)
    remembered.batches = ((last_sequence, last_offset, 0, -1),)
    return {snapshot_name(offset): encode_snapshot([remembered])}


def test_ps15_a_snapshot_has_the_last_batches_below_its_offset() -> None:
    segments = {0: [data(0, 0), data(1, 1), data(2, 2)]}
    assert found(segments, snapshot(2)) == []
    expected = [(snapshot_name(2), None, "PS15")]
    assert found(segments, snapshot(2, last_offset=2, last_sequence=2)) == expected
    assert found(segments, snapshot(2, last_sequence=0)) == expected
    assert found(segments, snapshot(2, epoch=1)) == expected


def test_ps16_a_snapshot_may_be_at_the_log_end_and_not_above_it() -> None:
    segments = {0: [data(0, 0), data(1, 1)]}
    assert found(segments, snapshot(2)) == []
    assert found(segments, snapshot(3)) == [(snapshot_name(3), None, "PS16")]


@pytest.mark.parametrize(("sequence", "reads"), [(1, 0), (7, 1)])
def test_the_log_starts_of_a_directory_are_read_once_and_for_a_contradiction_only(
    monkeypatch: pytest.MonkeyPatch, sequence: int, reads: int
) -> None:
    file_system, counted = new_file_system(), []
    directory = DIRECTORY.rpartition("/")[0]
    for number in range(1, 6):
        file_system.make_directory(f"{directory}/u-{number}")
        file = file_system.open(f"{directory}/u-{number}/{0:020d}.log", OpenMode.CREATE)
        file.append(data(0, 0) + data(1, sequence))
        file.close()
    file = file_system.open(join(directory, LOG_START_OFFSET_CHECKPOINT), OpenMode.CREATE)
    file.append(b"0\n1\nu 3 1\n")
    file.close()
    read = LogStarts._read

    def counting(starts: LogStarts) -> Mapping[tuple[str, int], int]:
        counted.append(starts)
        return read(starts)

    monkeypatch.setattr(LogStarts, "_read", counting)
    reports, _ = verify_log_directory(file_system, directory)
    assert len(counted) == reads
    named = [report.directory for report in reports if "PS4" in [each.rule for each in report.problems]]
    assert named == ([f"{directory}/u-{number}" for number in (1, 2, 4, 5)] if reads else [])
