"""Logs of one directory, more or less dirty, and the manager that chooses among them."""

from __future__ import annotations

from dataclasses import replace

from sim.disk import SimFileSystem
from storage.batch import Record, build_batch
from storage.directory.cleaners import CLEANER_CHECKPOINT, CleanerManager, Key
from storage.disk.checkpoints import OffsetCheckpoint
from storage.disk.filesystem import join
from storage.log import PartitionLog
from tests.storage.cleaner.compacted_logs import COMPACTED
from tests.storage.logs import NOW_MS, new_disk, new_file_system, open_log

LOGS = "logs"
DIRTY = replace(COMPACTED, segment_bytes=400, min_cleanable_dirty_ratio=0.05)


def append_keyed(log: PartitionLog, batches: int) -> None:
    """Append batches. Five of them fill a segment."""
    for number in range(batches):
        data = build_batch([Record(0, NOW_MS, b"%d" % (number % 3), bytes(10))])
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)


class Directory:
    """Logs of one directory by name, and the manager over them."""

    def __init__(self) -> None:
        self.disk = new_disk()
        self.file_system: SimFileSystem = new_file_system(self.disk)
        self.logs: dict[str, PartitionLog] = {}
        self.manager = self.restart()

    def restart(self) -> CleanerManager:
        self.manager = CleanerManager(self.file_system, LOGS, self.logs)
        return self.manager

    def add(
        self, topic: str, batches: int, checkpoint: int | None = None, policy: str = "compact"
    ) -> PartitionLog:
        """Add a log of committed batches, cleaned up to `checkpoint` if that is given."""
        name = f"{topic}-0"
        self.file_system.make_directory(join(LOGS, name))
        config = replace(DIRTY, cleanup_policy=policy)
        log = open_log(self.file_system, config, directory=join(LOGS, name))
        append_keyed(log, batches)
        log.marks.update_high_watermark(batches)
        self.logs[name] = log
        if checkpoint is not None:
            self.manager._update((topic, 0), checkpoint)
        return log

    def grab(self) -> str | None:
        found = self.manager.grab_filthiest(NOW_MS)
        return None if found is None else found.log.topic

    def stored(self) -> dict[Key, int]:
        return OffsetCheckpoint(self.file_system, join(LOGS, CLEANER_CHECKPOINT)).read()


def three_logs() -> Directory:
    directory = Directory()
    for topic, batches in (("tp0", 21), ("tp1", 26), ("tp2", 31)):
        directory.add(topic, batches, checkpoint=15)
    return directory


def filled(batches: int, **config: object) -> PartitionLog:
    log = open_log(new_file_system(), replace(DIRTY, **config))  # type: ignore[arg-type]
    append_keyed(log, batches)
    return log
