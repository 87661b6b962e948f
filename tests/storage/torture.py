"""Readers beside everything that changes a log: `python -m tests.storage.torture --seconds N`.

One thread changes a log on the real disk: appends, flushes, rolls, truncations, retention, rounds of compaction, the
deletion of whole logs. Other threads sync, compact, and read segments, those that have left the log too. A second
process verifies, dumps and counts the same directory. A reader may be refused; the bytes that it gets must be sound.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import final

from storage.batch import Record, build_batch, iterate_batches
from storage.cleaner.compaction import Compaction
from storage.cleaner.offset_map import SLOT_BYTES
from storage.cleaner.plan import CleanerConfig
from storage.config import LogConfig
from storage.disk.os_filesystem import OsFileSystem
from storage.draws import Draws
from storage.errors import StorageError, TruncatedWhileRead
from storage.inspection.dump.dump import DumpOptions, dump_files
from storage.inspection.verify.partition import verify_partition
from storage.log import PartitionLog
from storage.segment import LogSegment
from storage.segment.lookups import find_offset_by_timestamp
from tests.places import ROOT

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(
    segment_bytes=12_000,
    segment_index_bytes=2048,
    index_interval_bytes=200,
    cleanup_policy="compact,delete",
    retention_bytes=90_000,
    delete_retention_ms=0,
)
READERS = 3
# Segments that have left the log stay readable for so many later ones, as they do for file.delete.delay.ms.
KEPT_SEGMENTS = 4
INSPECTOR = """
import os, sys
from tests.storage.torture import inspect
while os.path.exists(sys.argv[2]):
    if inspect(sys.argv[1]):
        print("round", flush=True)
"""


class Torn(AssertionError):
    """A reader got bytes that no writer has written so."""


def inspect(directory: str) -> bool:
    """Look at a live directory once, as the tools do. Returns whether all files were there until the end.

    Files may vanish meanwhile; nothing else may fail.
    """
    file_system = OsFileSystem()
    lines: list[str] = []
    options = DumpOptions(print_data_log=True, deep_iteration=True)
    with contextlib.suppress(FileNotFoundError):
        for name in file_system.list(directory):
            if name.endswith(("log", "index", ".snapshot")):
                dump_files(
                    file_system, [f"{directory}/{name}"], options, write=lines.append, report=lines.append
                )
        return verify_partition(file_system, directory, deep=True).segments > 0
    return False


def check_bytes(data: bytes, path: str) -> int:
    """Check each whole batch of a read: its checksum, and that offsets rise. Returns the number of batches."""
    last, count = -1, 0
    for batch in iterate_batches(data):
        if not batch.is_valid():
            raise Torn(f"{path}: the batch at offset {batch.base_offset} does not match its checksum")
        if batch.base_offset <= last:
            raise Torn(f"{path}: offset {batch.base_offset} follows {last}")
        last, count = batch.last_offset, count + 1
    return count


def is_clean(error: Exception) -> bool:
    """Whether a reader of a segment that is cut or deleted may meet `error`."""
    if isinstance(error, OSError):
        return error.errno in (errno.EBADF, errno.ENOENT)
    return isinstance(error, TruncatedWhileRead) or "is closed" in str(error)


@final
class Torture:
    """One writer and its readers. `counts` says how often each thing was done."""

    def __init__(self, root: Path, seed: int) -> None:
        self.directory = f"{root}/topic-0"
        self.file_system, self.draws = OsFileSystem(), Draws(seed)
        self.counts: Counter[str] = Counter()
        self.failures: list[BaseException] = []
        self.is_over = threading.Event()
        self.left: deque[LogSegment] = deque()
        self.epoch = self.rounds = 0
        self.flush: threading.Thread | None = None
        self.compaction: tuple[Compaction, threading.Thread] | None = None
        self.log = self._open()

    def _open(self) -> PartitionLog:
        log = PartitionLog.open(self.file_system, self.directory, CONFIG, clean=True, now_ms=NOW_MS)
        log.retention.delete_files_with(self._leave)
        return log

    def _leave(self, segment: LogSegment) -> None:
        self.left.append(segment)
        if len(self.left) > KEPT_SEGMENTS:
            self.left.popleft().delete()

    # What the writer does, one at a time

    def append(self) -> None:
        for _ in range(self.below(12) + 1):
            offset = self.log.log_end_offset
            records = [
                Record(
                    offset=offset + each, timestamp=NOW_MS + offset, key=b"%d" % (offset % 97), value=value
                )
                for each, value in enumerate(
                    [b"%d" % self.epoch * (20 + self.below(60))] * (1 + self.below(4))
                )
            ]
            data = build_batch(records, base_offset=offset, partition_leader_epoch=self.epoch)
            self.log.append_as_follower(data, leader_epoch=self.epoch, now_ms=NOW_MS)
        self.log.marks.update_high_watermark(self.log.log_end_offset)

    def truncate(self) -> None:
        self._stop_compaction(is_kept=False)
        end = self.log.log_end_offset
        self.epoch += 1
        if self.below(8) == 0:
            self.log.truncation.truncate_fully_and_start_at(end + self.below(3), now_ms=NOW_MS)
        else:
            self.log.truncate_to(max(self.log.log_start_offset, end - 1 - self.below(150), 0), now_ms=NOW_MS)

    def roll(self) -> None:
        if self.log.local.segments.active.size_bytes:
            self.log.flushes.roll(now_ms=NOW_MS)

    def retain(self) -> None:
        self._stop_compaction(is_kept=False)
        self.log.retention.delete_old(NOW_MS)

    def sync(self) -> None:
        """Sync on another thread, while appends and truncations go on."""
        if self.flush is not None:
            self.flush.join()
        prepared = self.log.flushes.prepare()
        self.flush = self._start("flush", prepared)

    def compact(self) -> None:
        """Begin a round, or take its next step; the work of a round runs on another thread."""
        if self.compaction is not None:
            self._stop_compaction(is_kept=True)
            return
        offsets = self.log.compactions.cleanable_offsets(None, NOW_MS)
        if offsets.first_dirty_offset == offsets.first_uncleanable_offset:
            return
        config = CleanerConfig(dedupe_buffer_bytes=4000 * SLOT_BYTES, io_buffer_bytes=4096)
        compaction = self.log.compactions.prepare(offsets, config, NOW_MS)
        work = next(iter(compaction), None)
        if work is not None:
            self.compaction = compaction, self._start("compaction", work)

    def _stop_compaction(self, *, is_kept: bool) -> None:
        running, self.compaction = self.compaction, None
        if running is None:
            return
        compaction, thread = running
        thread.join()
        work = next(iter(compaction), None) if is_kept else None
        if work is not None:
            self.compaction = compaction, self._start("compaction", work)
        elif not is_kept:
            compaction.abort()

    def delete(self) -> None:
        """Delete the whole log and begin another under its name."""
        self._stop_compaction(is_kept=False)
        before = self.log
        before.rename_directory(f"topic-0.{self.rounds}-delete")
        self.log = self._open()
        # Readers have seen the old log under its new name for a moment; so does the flush.
        self.append()
        while self.left:
            self.left.popleft().close_handlers()
        before.delete()

    # The threads

    def below(self, bound: int) -> int:
        self.rounds += 1
        return self.draws.below(bound, "torture", self.rounds)

    def _start(self, name: str, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=self._guarded, args=(name, work))
        thread.start()
        return thread

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
            self.counts[name] += 1
        # Whatever it is, the end of the run reports it.
        except BaseException as error:
            self.failures.append(error)
            self.is_over.set()

    def write(self) -> None:
        steps = [(self.append, 60), (self.sync, 8), (self.roll, 4), (self.truncate, 10), (self.retain, 6)]
        steps += [(self.compact, 20), (self.delete, 1)]
        choices = [step for step, weight in steps for _ in range(weight)]
        try:
            while not self.is_over.is_set():
                step = choices[self.below(len(choices))]
                step()
                self.counts[step.__name__] += 1
        finally:
            self._stop_compaction(is_kept=False)
            if self.flush is not None:
                self.flush.join()

    def read(self) -> None:
        number = 0
        while not self.is_over.is_set():
            # One call each, so that the writer cannot come between: the map of segments belongs to its thread.
            for segment in [*list(self.log.local.segments._by_base.values()), *list(self.left)]:
                number += 1
                try:
                    self._read(segment, number)
                except (OSError, ValueError, StorageError) as error:
                    if not is_clean(error):
                        raise
                    self.counts["refused"] += 1
            # Otherwise the writer would hardly run.
            time.sleep(0.001)

    def _read(self, segment: LogSegment, number: int) -> None:
        end = segment.size_bytes
        found = segment.read(segment.base_offset + number % 60, 3000, end)
        if found is not None and found.records:
            self.counts["batches read"] += check_bytes(found.records, segment.path)
        self.counts["reads"] += 1
        if number % 7 == 0:
            found_record = find_offset_by_timestamp(segment, NOW_MS + number % 3000, segment.base_offset)
            if found_record is not None and found_record.offset < segment.base_offset:
                raise Torn(f"{segment.path}: a search by timestamp found offset {found_record.offset}")


def run(root: Path, seconds: float, seed: int) -> str:
    """Torture a log in `root` for so long. Returns the closing line. Raises what failed first."""
    torture = Torture(root, seed)
    alive = root / "alive"
    alive.touch()
    command = [sys.executable, "-c", INSPECTOR, torture.directory, str(alive)]
    inspector = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [torture._start("writer", torture.write)]
    threads += [torture._start("reader", torture.read) for _ in range(READERS)]
    try:
        torture.is_over.wait(seconds)
    finally:
        torture.is_over.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
        alive.unlink()
        output, errors = inspector.communicate()
    if torture.failures:
        raise torture.failures[0]
    assert inspector.returncode == 0, errors
    # After a truncation into a batch the log ends above its last record; the files alone cannot show that.
    torture.append()
    while torture.left:
        torture.left.popleft().delete()
    torture.log.close()
    report = verify_partition(OsFileSystem(), torture.directory, deep=True)
    assert report.problems == [], report.problems
    counts = torture.counts
    assert min(counts["reads"], counts["truncate"], counts["compaction"], counts["delete"]) > 0, counts
    done = ", ".join(f"{counts[name]} {name}" for name in ("append", "truncate", "roll", "retain", "delete"))
    return (
        f"torture: {seconds:g} s, seed {seed}: {counts['reads']} reads of {counts['batches read']} batches, "
        f"{counts['refused']} refused, 0 torn; {done}, {counts['flush']} flushes, "
        f"{counts['compaction']} slices of compaction; {output.count('round')} rounds of the second process"
    )


def main(arguments: list[str]) -> int:
    """Run the torture for the seconds that the command line says, and print the closing line."""
    parser = argparse.ArgumentParser(prog="python -m tests.storage.torture", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 10_000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="replog-torture-") as root:
        print(run(Path(root), options.seconds, options.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
