"""Files named by an offset past 2^63-1, or below 0, which no log has. Kafka does not start on the former
(NumberFormatException).
"""

from __future__ import annotations

import pytest

from storage.disk.filesystem import join, read_file
from storage.inspection.dump.dump import DumpOptions, DumpStatus, dump_files
from storage.inspection.verify.partition import verify_partition
from tests.storage.logs import DIRECTORY, batch, new_file_system
from tests.storage.recovery.stopped_logs import poke, reopen, stopped

_NAME = f"{2**63:020d}"


@pytest.mark.parametrize("offset", [2**63, -1, -2])
def test_ll10_a_log_named_by_an_offset_that_no_log_has_is_no_segment_and_stays(offset: int) -> None:
    file_system = new_file_system()
    stopped(file_system)
    foreign = join(DIRECTORY, f"{offset:020d}.log")
    poke(file_system, foreign, 0, batch(0))
    log, cuts = reopen(file_system)
    assert cuts == [] and log.log_end_offset == 12
    assert read_file(file_system, foreign) == batch(0)


def test_ll6_a_swap_file_named_past_the_last_offset_replaces_nothing() -> None:
    file_system = new_file_system()
    stopped(file_system)
    poke(file_system, join(DIRECTORY, f"{_NAME}.log.swap"), 0, batch(0))
    log, cuts = reopen(file_system)
    assert cuts == [] and log.log_end_offset == 12


def test_verify_names_a_log_past_the_last_offset() -> None:
    file_system = new_file_system()
    stopped(file_system, clean=True)
    poke(file_system, join(DIRECTORY, f"{_NAME}.log"), 0, batch(0))
    report = verify_partition(file_system, DIRECTORY)
    assert report.log_end_offset == 12
    assert [(each.path, each.rule) for each in report.problems] == [(join(DIRECTORY, f"{_NAME}.log"), "1.1")]


def test_dump_refuses_a_name_past_the_last_offset() -> None:
    file_system = new_file_system()
    path = join(DIRECTORY, f"{_NAME}.log")
    poke(file_system, path, 0, batch(0))
    written, told = list[str](), list[str]()
    status = dump_files(file_system, [path], DumpOptions(), write=written.append, report=told.append)
    assert status is DumpStatus.UNUSABLE
    assert told == [f"error: {path}: the name has no base offset"]
