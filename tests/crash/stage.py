"""A log directory on a simulated disk, changed step by step while every call of the disk is recorded."""

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
# The time of every file: a record is made before it is written.
WRITTEN_MS = NOW_MS + 3_600_000
# The limits are so small that a few batches fill a segment, and a few entries an index.
CONFIG = LogConfig(segment_bytes=700, segment_index_bytes=240, index_interval_bytes=120)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashPoint:
    """The disk just before `call`, in the operation with the number `operation`."""

    disk: SimDisk
    call: str
    operation: int


@dataclass(slots=True, kw_only=True)
class Recording:
    """The crash points of a workload, and what may be found after a crash in each operation."""

    config: LogConfig
    points: list[CrashPoint] = field(default_factory=list)
    expectations: list[Expectation] = field(default_factory=list)

    def expectation_of(self, point: CrashPoint) -> Expectation:
        return self.expectations[point.operation]


def start_manager(file_system: FileSystem, config: LogConfig, now_ms: int = NOW_MS) -> LogManager:
    """Start a log manager, as a broker does and as recovery after a crash does. A raise leaves nothing open."""
    manager = LogManager(file_system, ROOT, config, now_ms, Draws(0))
    manager.load(now_ms)
    return manager


@final
class Stage:
    """A log directory with a model of each log: what its files hold between operations, and what was synced.

    `step` runs one operation. `wrap` makes the file system that the logs work on; `on_record` runs after the
    preparation.
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
        """Record from here on. All pending changes of the disk are synced first.

        Each log is promised up to `sound_to` (exclusive); None promises all of it.
        """
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
        """Run one operation and record what may be found after a crash in it.

        `synced` says that the operation promises all that is in its logs when it returns. `keeps_some` says that
        it removes
        batches from the middle and promises those that it leaves.
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
        """End the recording, with a last crash point after the last operation."""
        models = dict(self.models)
        self.note_call("end of", ROOT)
        self.recording.expectations.append(Expectation(operation="done", before=models, after=models))
        self.disk.observer = None
        return self.recording

    # Operations that every workload uses.

    def crash(self) -> None:
        """End the process. The page cache stays, and what was not synced is still not synced."""
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
