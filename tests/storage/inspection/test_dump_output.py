"""An error of a dump's output is no error of the file that is dumped."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from storage.disk.os_filesystem import OsFileSystem
from storage.inspection.dump.dump import DumpOptions, dump_files
from storage.inspection.dump.output import OutputFailed, pieces_told_apart
from tests.places import GOLDEN

LOG = GOLDEN / "kafka-4.1" / "clean" / "shapes-none-0" / f"{0:020d}.log"
COMMAND = [sys.executable, "-m", "replog", "dump", "--print-data-log", "--files", ",".join([str(LOG)] * 20)]


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC])
def test_an_error_of_the_output_ends_the_dump_and_names_no_file(number: int) -> None:
    """Before, it was reported as one of the log, and the dump went on with the next file."""
    told: list[str] = []
    refused = OSError(number, "refused")

    def write(line: str) -> None:
        told.append(line)
        if len(told) == 3:
            raise refused

    with pytest.raises(OSError) as raised:
        dump_files(OsFileSystem(), [str(LOG)] * 2, DumpOptions(), write=write, report=told.append)
    assert raised.value is refused and len(told) == 3


def test_an_error_of_the_report_ends_the_dump() -> None:
    def report(line: str) -> None:
        raise BrokenPipeError(errno.EPIPE, "refused")

    with pytest.raises(BrokenPipeError):
        dump_files(OsFileSystem(), ["/nowhere/x.log"], DumpOptions(), write=lambda line: None, report=report)


def test_an_error_of_a_file_that_is_read_while_a_line_is_written_is_one_of_the_file() -> None:
    def pieces() -> Iterator[str]:
        yield "a"
        raise OSError(errno.EIO, "unreadable")

    def write_pieces(pieces: Iterable[str]) -> None:
        for _ in pieces:
            pass

    with pytest.raises(OSError, match="unreadable"):
        pieces_told_apart(write_pieces)(pieces())

    def full(pieces: Iterable[str]) -> None:
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OutputFailed, match="full"):
        pieces_told_apart(full)(pieces())


def test_a_dump_whose_reader_leaves_ends_in_silence_with_3() -> None:
    """Before, `replog dump … | head` blamed the file, with status 2."""
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert (process.wait(), process.stderr.read()) == (3, b"")


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="/dev/full is absent, a device of Linux that is always full"
)
def test_a_dump_to_a_full_disk_names_standard_output() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(COMMAND, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (2, b"error: standard output: No space left on device\n")
