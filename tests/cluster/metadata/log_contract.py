"""The contract of every `MetadataLog`. `test_log.py` runs it over the log on a disk and over one in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.metadata.changes import Change, ChangeReader
from cluster.core.metadata.log import MetadataLog, committed_changes
from cluster.core.metadata.records import (
    AbortTransactionRecord,
    ClusterRecord,
    MetadataRecord,
    ProducerIdsRecord,
)
from cluster.core.metadata.snapshots import Snapshot
from storage.errors import OffsetOutOfRange

# The most that a batch of the log under test may take.
BATCH_BYTES = 4 << 10
# Makes a log over what an earlier one of the same test has left.
Reopen = Callable[[], MetadataLog]


def ids(first: int, count: int = 1) -> list[MetadataRecord]:
    return [
        ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=number)
        for number in range(first, first + count)
    ]


def commit(log: MetadataLog) -> None:
    log.prepare_flush()()
    log.flushed(log.end_offset)


def committed(log: MetadataLog, *, start: int = 0) -> list[Change]:
    return list(committed_changes(log, ChangeReader(start)))


def contents(changes: Sequence[Change]) -> list[list[MetadataRecord]]:
    return [[record for _, record in change.records] for change in changes]


class MetadataLogContract:
    """Each test gets an empty log, and a way to open it again after its process was killed."""

    def test_an_empty_log_begins_and_ends_at_0(self, log: MetadataLog) -> None:
        assert (log.start_offset, log.committed_offset, log.end_offset) == (0, 0, 0)
        assert log.read(0, 1000) == b""

    def test_append_returns_the_offset_of_the_first_record_and_numbers_without_a_gap(
        self, log: MetadataLog
    ) -> None:
        assert [log.append(ids(1, 3), 1), log.append(ids(4), 2)] == [0, 3]
        assert log.end_offset == 4
        commit(log)
        offsets = [offset for change in committed(log) for offset, _ in change.records]
        assert offsets == [0, 1, 2, 3]

    def test_what_is_not_committed_is_not_read(self, log: MetadataLog) -> None:
        log.append(ids(1), 1)
        commit(log)
        log.append(ids(2), 1)
        assert (log.committed_offset, log.end_offset) == (1, 2)
        assert contents(committed(log)) == [ids(1)]
        with pytest.raises(OffsetOutOfRange):
            log.read(2, 1000)

    def test_flushed_commits_up_to_its_offset_only(self, log: MetadataLog) -> None:
        log.append(ids(1), 1)
        job, end_offset = log.prepare_flush(), log.end_offset
        log.append(ids(2), 1)
        job()
        log.flushed(end_offset)
        assert (log.committed_offset, log.end_offset) == (1, 2)

    def test_read_returns_whole_batches_within_its_limit_and_at_least_one(self, log: MetadataLog) -> None:
        for number in range(5):
            log.append(ids(number, 2), 1)
        commit(log)
        whole = log.read(0, 1 << 20)
        one = log.read(0, 1)
        assert whole.startswith(one) and len(one) < len(whole)
        assert log.read(0, len(one) + 1) == one
        assert contents(list(ChangeReader().read(one))) == [ids(0, 2)]

    def test_read_begins_with_the_batch_that_holds_the_offset(self, log: MetadataLog) -> None:
        log.append(ids(1, 3), 1)
        log.append(ids(4), 1)
        commit(log)
        assert log.read(1, 1 << 20) == log.read(0, 1 << 20)
        assert contents(committed(log, start=3)) == [ids(4)]
        assert log.read(4, 1 << 20) == b""

    @pytest.mark.parametrize("offset", [-1, 2])
    def test_read_outside_of_the_committed_log_raises(self, log: MetadataLog, offset: int) -> None:
        log.append(ids(1), 1)
        commit(log)
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 1000)

    def test_krlog8_a_change_larger_than_a_batch_is_one_change(self, log: MetadataLog) -> None:
        count = 3 * BATCH_BYTES // 60
        assert log.append(ids(0, count), 1) == 0
        assert log.append(ids(7), 1) == count
        commit(log)
        first = log.read(0, 1)
        assert len(first) <= BATCH_BYTES and not list(ChangeReader().read(first))
        assert contents(committed(log)) == [ids(0, count), ids(7)]

    def test_a_record_larger_than_a_batch_is_refused_and_nothing_is_changed(self, log: MetadataLog) -> None:
        log.append(ids(1), 1)
        large = ClusterRecord(cluster_id="c" * BATCH_BYTES)
        with pytest.raises(ClusterError) as refused:
            log.append([*ids(2, 200), large], 1)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert log.end_offset == 1
        log.append(ids(3), 1)
        commit(log)
        assert contents(committed(log)) == [ids(1), ids(3)]

    def test_truncate_drops_the_end_and_what_follows_takes_its_offsets(self, log: MetadataLog) -> None:
        log.append(ids(1), 1)
        commit(log)
        log.append(ids(2, 3), 1)
        log.append(ids(5), 1)
        log.truncate_to(4, 2)
        assert (log.committed_offset, log.end_offset) == (1, 4)
        log.truncate_to(1, 2)
        assert (log.committed_offset, log.end_offset) == (1, 1)
        assert log.append(ids(9), 3) == 1
        commit(log)
        assert contents(committed(log)) == [ids(1), ids(9)]

    def test_krlog6_truncate_never_drops_what_is_committed(self, log: MetadataLog) -> None:
        log.append(ids(1, 2), 1)
        commit(log)
        with pytest.raises(AssertionError):
            log.truncate_to(0, 2)
        assert log.end_offset == 2

    def test_a_truncated_end_does_not_come_back(self, log: MetadataLog, reopen: Reopen) -> None:
        log.append(ids(1), 1)
        commit(log)
        log.append(ids(2), 1)
        log.truncate_to(1, 2)
        assert contents(committed(reopen())) == [ids(1)]

    def test_a_new_writer_has_a_greater_epoch_and_finds_what_is_committed(
        self, log: MetadataLog, reopen: Reopen
    ) -> None:
        log.append(ids(1), 1)
        commit(log)
        other = reopen()
        assert other.leader_epoch > log.leader_epoch
        assert contents(committed(other)) == [ids(1)]
        other.append(ids(2), 2)
        commit(other)
        third = reopen()
        assert third.leader_epoch > other.leader_epoch
        assert contents(committed(third)) == [ids(1), ids(2)]

    def test_a_closed_log_keeps_what_was_appended(self, log: MetadataLog, reopen: Reopen) -> None:
        log.append(ids(1), 1)
        log.close(2)
        assert contents(committed(reopen())) == [ids(1)]

    # Snapshots

    def test_a_log_without_a_snapshot_has_none(self, log: MetadataLog) -> None:
        assert log.newest_snapshot(pytest.fail) is None
        log.append(ids(1), 1)
        assert log.bytes_since_snapshot > 0

    def test_krsnp1_a_snapshot_has_the_exclusive_end_and_the_epoch_of_the_record_below_it(
        self, log: MetadataLog, reopen: Reopen
    ) -> None:
        log.append(ids(1, 2), 1)
        commit(log)
        other = reopen()
        other.append(ids(3), 1)
        commit(other)
        for end_offset, epoch in ((2, log.leader_epoch), (3, other.leader_epoch)):
            other.prepare_snapshot(ids(end_offset), end_offset, 1)()
            expected = Snapshot(end_offset=end_offset, epoch=epoch, records=tuple(ids(end_offset)))
            assert other.newest_snapshot(pytest.fail) == expected
        assert reopen().newest_snapshot(pytest.fail) == expected

    def test_krsnp1_a_snapshot_never_ends_above_what_is_committed(self, log: MetadataLog) -> None:
        log.append(ids(1), 1)
        with pytest.raises(AssertionError):
            log.prepare_snapshot(ids(1), 1, 1)

    def test_bytes_since_the_snapshot_begin_again_with_each_snapshot(
        self, log: MetadataLog, reopen: Reopen
    ) -> None:
        log.append(ids(1, 9), 1)
        commit(log)
        before = log.bytes_since_snapshot
        log.prepare_snapshot(ids(1), 9, 1)()
        assert log.bytes_since_snapshot == 0
        log.append(ids(1, 9), 1)
        commit(log)
        assert before - 5 < log.bytes_since_snapshot < before + 5
        other = reopen()
        assert other.newest_snapshot(pytest.fail) is not None
        assert other.bytes_since_snapshot == log.bytes_since_snapshot

    def test_a_snapshot_may_be_larger_than_a_batch(self, log: MetadataLog, reopen: Reopen) -> None:
        log.append(ids(1), 1)
        commit(log)
        records = ids(0, BATCH_BYTES // 10)
        log.prepare_snapshot(iter(records), 1, 1)()
        found = reopen().newest_snapshot(pytest.fail)
        assert found is not None and found.records == tuple(records)

    def test_an_abort_is_a_change_of_its_own(self, log: MetadataLog) -> None:
        abort = AbortTransactionRecord(reason="cut")
        log.append(ids(1), 1)
        log.append([abort], 1)
        commit(log)
        assert contents(committed(log)) == [ids(1), [abort]]
