"""Dump, verify and stats close each file that they open, of a sound log and of a damaged one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim.disk import SimFileSystem
from storage.disk.filesystem import File, OpenMode, join
from storage.inspection.dump.dump import DumpOptions, dump_files
from storage.inspection.stats import partition_stats
from storage.inspection.verify.directory import verify_log_directory
from tests.storage.disk.opened_files import still_open, watched
from tests.storage.log.appends import end_transaction, lead, sequenced
from tests.storage.logs import DIRECTORY, SMALL, append_each, new_file_system, open_log


def every_kind_of_file(file_system: SimFileSystem) -> None:
    """Write a log with segments, all three indexes, a snapshot and epochs, and a checkpoint beside it."""
    log = open_log(file_system, SMALL)
    lead(log, sequenced(0, is_transactional=True))
    end_transaction(log, is_commit=False)
    append_each(log, 60)
    log.close()
    poke(file_system, "logs/recovery-point-offset-checkpoint", 0, b"0\n1\ntopic 0 5\n")


def poke(file_system: SimFileSystem, path: str, position: int, data: bytes) -> None:
    file = file_system.open(path, OpenMode.CREATE)
    file.write_at(position, data)
    file.close()


def dump(file_system: SimFileSystem, options: DumpOptions) -> None:
    names = file_system.list(DIRECTORY)
    paths = [join(DIRECTORY, name) for name in names]
    dump_files(file_system, paths, options, write=lambda _: None, report=lambda _: None)


READERS: dict[str, Callable[[SimFileSystem], object]] = {
    "dump": lambda each: dump(each, DumpOptions(print_data_log=True)),
    "sanity": lambda each: dump(each, DumpOptions(index_sanity_check=True)),
    "verify": lambda each: verify_log_directory(each, "logs", deep=True),
    "stats": lambda each: partition_stats(each, DIRECTORY),
}


@pytest.mark.parametrize("is_damaged", [False, True])
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_of_a_log_closes_each_file(reader: str, is_damaged: bool) -> None:
    file_system = new_file_system()
    every_kind_of_file(file_system)
    names = file_system.list(DIRECTORY)
    assert {name.rpartition(".")[2] for name in names} >= {
        "log",
        "index",
        "timeindex",
        "txnindex",
        "snapshot",
    }
    if is_damaged:
        for name in names:
            # A size field, an index entry, a version or a count that is none.
            poke(file_system, join(DIRECTORY, name), 8, b"\xff\xff\xff\xff")
    opened: list[File] = []
    READERS[reader](watched(file_system, opened))
    assert len({file.path for file in opened}) >= len([name for name in names if name.endswith(".log")])
    assert still_open(opened) == []
