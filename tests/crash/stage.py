"""One log directory on a simulated disk, worked on step by step while every call of the disk is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import final

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.config import LogConfig
from storage.directory.manager import LogManager
from storage.disk.filesystem import FileSystem
from storage.draws import Draws
from storage.errors import StorageError
from storage.log import PartitionLog
from tests.crash.model import Expectation, Log, Logs, stored

ROOT = "data"
NOW_MS = 1_700_000_000_000
WRITTEN_MS = NOW_MS + 3_600_000  # of every file: a record is made before it is written
# Small enough that a few batches fill a segment, and a few entries an index.
CONFIG = LogConfig(segment_bytes=700, segment_index_bytes=240, index_interval_bytes=120)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashPoint:
    """The disk just before `call`, of the operation number `operation`."""

    disk: SimDisk
    call: str
    operation: int


@dataclass(slots=True, kw_only=True)
class Recording:
    config: LogConfig
    points: list[CrashPoint] = field(default_factory=list)
    expectations: list[Expectation] = field(default_factory=list)

    def expectation_of(self, point: CrashPoint) -> Expectation:
        return self.expectations[point.operation]


def start_manager(file_system: FileSystem, config: LogConfig, now_ms: int = NOW_MS) -> LogManager:
    """What a broker does at its start, and what recovery after a crash is. Nothing stays open when it raises."""
    manager = LogManager(file_system, ROOT, config, now_ms, Draws(0))
    manager.load(now_ms)
    return manager


@final
class Stage:
    """`step` runs one operation. The model of each log is what its files hold between operations, and what was synced.

    `wrap` makes the file system that the logs work on; `on_record` runs when the preparation is over.
    """

    def __init__(
        self,
        config: LogConfig = CONFIG,
        *,
        wrap: Callable[[SimDisk, FileSystem], FileSystem] = lambda disk, file_system: file_system,
        on_record: Callable[[], None] = lambda: None,
    ) -> None:
        self.config = config
        self._wrap, self._on_record = wrap, on_record
        self.disk = SimDisk(Draws(0), lambda: WRITTEN_MS)
        self.recording = Recording(config=config)
        self.models: Logs = {}
        self.now_ms = NOW_MS
        self.manager = start_manager(self.file_system(), config)
        self.is_alive = True

    def file_system(self) -> FileSystem:
        return self._wrap(self.disk, self.disk.file_system(Life()))

    def log(self, name: str = "t-0") -> PartitionLog:
        return self.manager.logs[name]

    def record(self, sound_to: int | None = None) -> None:
        """From here on, on a disk that owes nothing; of each log what lies below `sound_to` is promised."""
        self.disk.sync_all()
        self.recording.expectations.clear()
        for name, model in self.models.items():
            end = max((each.next_offset for each in model.batches), default=0)
            self.models[name] = replace(model.shortened(end if sound_to is None else sound_to), synced_to=end)
        self.disk.observer = self.note_call
        self._on_record()

    def note_call(self, verb: str, path: str) -> None:
        point = CrashPoint(
            disk=self.disk.snapshot(), call=f"{verb} {path}", operation=len(self.recording.expectations)
        )
        self.recording.points.append(point)

    def step(
        self, operation: str, run: Callable[[], object], *, synced: bool = False, keeps_some: bool = False
    ) -> None:
        """`synced` says that the operation promises all that is in its logs when it returns.

        With `keeps_some` it removes batches from the middle, and promises those that it leaves.
        """
        before = {name: replace(model, keeps_some=keeps_some) for name, model in self.models.items()}
        run()
        if self.is_alive:
            self.models = {
                name: self._model(name, log, synced, keeps_some) for name, log in self.manager.logs.items()
            }
        elif synced:
            ends = {name: log.log_end_offset for name, log in self.manager.logs.items()}
            self.models = {name: replace(model, synced_to=ends[name]) for name, model in self.models.items()}
        after = dict(self.models)
        self.recording.expectations.append(Expectation(operation=operation, before=before, after=after))

    def _model(self, name: str, log: PartitionLog, synced: bool, keeps_some: bool) -> Log:
        before = self.models.get(name, Log())
        end = log.log_end_offset
        synced_to = end if synced else max(min(before.synced_to, end), log.local.recovery_point)
        return Log(
            batches=stored(self.disk.file_system(Life()), log.directory),
            synced_to=synced_to,
            start_from=min(before.start_from, log.log_start_offset),
            start_to=log.log_start_offset,
            topic_id=self.manager.topic_ids.get(name),
            keeps_some=keeps_some,
        )

    def note_durable_start(self, name: str = "t-0") -> None:
        self.models[name] = replace(self.models[name], start_from=self.log(name).log_start_offset)

    def finish(self) -> Recording:
        """The last crash point is behind the last operation."""
        models = dict(self.models)
        self.note_call("end of", ROOT)
        self.recording.expectations.append(Expectation(operation="done", before=models, after=models))
        self.disk.observer = None
        return self.recording

    # Operations that every workload uses.

    def crash(self) -> None:
        """The process dies and the page cache stays; what was not synced is still not synced."""
        self.is_alive = False
        self.disk.crash_process()

    def start(self) -> None:
        self.manager = start_manager(self.file_system(), self.config, self.now_ms)
        self.is_alive = True

    def stop(self) -> None:
        is_clean = self.manager.shutdown(now_ms=self.now_ms)
        self.is_alive = False
        if not is_clean:
            raise StorageError(f"{self.manager.directory}: the stop was not clean")
