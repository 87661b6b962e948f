"""The next start of a log that retention emptied: the same with and without the log start that a crash may lose.

From the same directories Kafka 4.1.0 gets the same log start, end and epochs. Rules LL22 to LL24, RT3, EP6.
"""

from __future__ import annotations

import pytest

from sim.disk import SimFileSystem
from storage.config import LogConfig
from storage.log import PartitionLog
from storage.segment.fetch_data import Isolation
from tests.storage.logs import NOW_MS, epochs, new_file_system, open_log, produced, read_offsets

SHORT = LogConfig(segment_index_bytes=1200, retention_ms=1000)


def emptied(file_system: SimFileSystem) -> PartitionLog:
    """Return a log that retention emptied: it had nine records of three epochs, all too old."""
    log = open_log(file_system, SHORT)
    for epoch in (1, 2, 3):
        log.append_as_leader(produced(3), leader_epoch=epoch, now_ms=NOW_MS)
    log.marks.update_high_watermark(9)
    assert log.retention.delete_old(NOW_MS + 3_600_000) == 1
    assert (log.local.segments.base_offsets, log.log_start_offset, epochs(log)) == ([9], 9, [(3, 9)])
    return log


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("log_start_offset", [0, 9])
def test_ll22_an_epoch_whose_records_are_all_deleted_is_dropped_at_the_next_start(
    log_start_offset: int, clean: bool
) -> None:
    """The epoch starts at the log end, like one that crashed before its first record (KAFKA-10706)."""
    file_system = new_file_system()
    log = emptied(file_system)
    if clean:
        log.close()
    else:
        log.close_handles()
    log = open_log(file_system, SHORT, clean=clean, log_start_offset=log_start_offset)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (9, 9, 9)
    assert epochs(log) == []


@pytest.mark.parametrize("log_start_offset", [0, 9])
def test_ll22_a_log_whose_epoch_was_dropped_continues_where_it_ended(log_start_offset: int) -> None:
    """No record needs an epoch: a replica without one cuts at its high watermark, which is the log end."""
    file_system = new_file_system()
    emptied(file_system).close_handles()
    log = open_log(file_system, SHORT, log_start_offset=log_start_offset)
    assert not log.truncate_to(log.high_watermark, now_ms=NOW_MS)
    log.append_as_leader(produced(2), leader_epoch=4, now_ms=NOW_MS)
    assert epochs(log) == [(4, 9)] and read_offsets(log) == [9, 10]
    assert log.read(9, max_size=1 << 20, isolation=Isolation.LOG_END).records
