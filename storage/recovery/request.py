"""What a start-up of one partition is asked to load, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass

from storage.config import LogConfig
from storage.disk.filesystem import FileSystem
from storage.draws import Draws
from storage.leader_epochs import LeaderEpochCache
from storage.producers.state import ProducerStateManager
from storage.recovery.cut import ReportCut, ignore_cut
from storage.segment.segments import LogSegments

NO_DRAWS = Draws(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What to load: the log in `directory`, which `is_clean` after an orderly stop.

    `log_start_offset` and `recovery_point` are those of the checkpoints, 0 where a checkpoint has no entry (LL4). With
    `recalls_batches` a producer's last five batches are known after the load, not only the one in its snapshot.
    """

    file_system: FileSystem
    directory: str
    config: LogConfig
    now_ms: int
    is_clean: bool
    log_start_offset: int = 0
    recovery_point: int = 0
    draws: Draws = NO_DRAWS
    report: ReportCut = ignore_cut
    recalls_batches: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """A sound log, ready for appends. `removed_bytes` counts the bytes that all cuts together removed."""

    segments: LogSegments
    leader_epochs: LeaderEpochCache
    producers: ProducerStateManager
    log_start_offset: int
    recovery_point: int
    log_end_offset: int
    removed_bytes: int
