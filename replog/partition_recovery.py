"""Recovers one partition for `replog log`, and tells what that did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

from cluster.core.controller.metadata_damage import check_nothing_committed_is_damaged
from replog.log_command_options import fail, quiet_logging
from replog.log_places import Key, key_of
from replog.recovery_backup import overlay
from storage.config import LogConfig
from storage.disk.checkpoints import LOG_START_OFFSET_CHECKPOINT, OffsetCheckpoint
from storage.disk.filesystem import FileSystem, dirname, join
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import CorruptCheckpoint, OutOfHandles, StorageError, reason_of
from storage.inspection.verify.partition import LEFT_OVER, Problem, verify_partition
from storage.log import PartitionLog
from storage.recovery.cut import RecoveryCut
from storage.topics import METADATA_TOPIC


@dataclass(slots=True, kw_only=True)
class Cut:
    """A cut that recovery made: `removed_bytes` from byte `position` of the file `segment` on."""

    segment: str
    position: int
    reason: str
    removed_bytes: int


@dataclass(slots=True, kw_only=True)
class Recovery:
    """The result of one partition's recovery; `error` if it failed. The end offset is exclusive."""

    directory: str
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    cuts: list[Cut] = field(default_factory=list)
    removed_bytes: int = 0
    error: str | None = None
    # What is still wrong after it: a start recovers as Kafka does, and leaves what Kafka leaves.
    problems: list[Problem] = field(default_factory=list)
    # Whether the system refused a call, on a full disk for example: then nobody knows what is wrong with the log.
    is_stopped_by_system: bool = False
    # In a dry run, what would happen to which files, by path; empty if the system stopped it.
    changes: dict[str, str] = field(default_factory=dict)

    def note(self, cut: RecoveryCut) -> None:
        """Add a cut."""
        assert cut.removed_bytes >= 0, (cut.path, cut.position, cut.removed_bytes)
        assert self.error is None, (cut.path, self.error)
        self.removed_bytes += cut.removed_bytes
        self.cuts.append(
            Cut(segment=cut.path, position=cut.position, reason=cut.reason, removed_bytes=cut.removed_bytes)
        )


def is_still_wrong(result: Recovery) -> bool:
    """Whether anything is wrong with the log after its recovery; files that a crash has left over do no harm (LL6)."""
    return any(problem.rule != LEFT_OVER for problem in result.problems)


def fields_of(result: Recovery) -> dict[str, object]:
    fields = asdict(result)
    del fields["changes"], fields["is_stopped_by_system"]
    return fields


def recover_one(
    path: str,
    *,
    properties: tuple[str, ...],
    now_ms: int,
    scratch: str | None = None,
    looks_again: bool = True,
) -> Recovery:
    """Recover one partition, or with `scratch`, a directory for copies, only find out what that would do.

    `looks_again` says whether to find what is still wrong after it, which reads all batches once more. It may run in
    its own process, so it creates everything that it needs.
    """
    quiet_logging()
    result = Recovery(directory=path)
    try:
        if scratch is not None:
            with overlay(scratch) as unchanged:
                try:
                    _recover_in(unchanged, result, properties, now_ms)
                    if looks_again:
                        _look_again(unchanged, result)
                finally:
                    found = unchanged.changes()
                    result.changes = {name: change.value for name, change in found.items()}
        else:
            _recover_in(OsFileSystem(), result, properties, now_ms)
            if looks_again:
                _look_again(OsFileSystem(), result)
    except (StorageError, OSError) as error:
        result.error = reason_of(error) if isinstance(error, OSError) else " ".join(str(error).split())
        result.is_stopped_by_system = _is_of_the_system(error)
    # Half a recovery has files that a whole one does not leave.
    if result.is_stopped_by_system:
        result.changes = {}
    assert scratch is not None or not result.changes, (path, result.changes)
    assert result.error is not None or result.log_end_offset is not None, path
    return result


def _is_of_the_system(error: Exception) -> bool:
    return isinstance(error, OSError | OutOfHandles) or isinstance(error.__cause__, OSError)


def _recover_in(file_system: FileSystem, result: Recovery, properties: tuple[str, ...], now_ms: int) -> None:
    config = topic_config(properties)
    log = open_log(file_system, result.directory, config, report=result.note, now_ms=now_ms)
    try:
        log.close()
    except BaseException:
        log.close_handles()
        raise
    result.log_start_offset, result.log_end_offset = log.log_start_offset, log.log_end_offset


def _look_again(file_system: FileSystem, result: Recovery) -> None:
    """Find what is still wrong with a log that was recovered; what cannot be looked at is wrong, and undoes nothing."""
    try:
        result.problems = verify_partition(file_system, result.directory).problems
    except OSError as error:
        path = error.filename if isinstance(error.filename, str) else result.directory
        result.problems = [Problem(path=path, position=None, rule="1.1", message=reason_of(error))]


def plan_lines(result: Recovery) -> Iterator[str]:
    """Yield the lines that tell what a recovery would do."""
    for line in recover_lines(result):
        yield line.replace(" bytes cut: ", " bytes would be cut: ").replace(
            " bytes removed", " bytes would be removed"
        )


def cut_lines(result: Recovery) -> Iterator[str]:
    for cut in result.cuts:
        yield f"{cut.segment} at byte {cut.position}: {cut.removed_bytes} bytes cut: {cut.reason}"


def recover_lines(result: Recovery) -> Iterator[str]:
    """Yield the lines that tell what a recovery did."""
    yield from cut_lines(result)
    for problem in result.problems:
        place = problem.path if problem.position is None else f"{problem.path} at byte {problem.position}"
        what = "still there" if problem.rule == LEFT_OVER else "not healed"
        yield f"{place}: {what}: {problem.message} [{problem.rule}]"
    if result.error is not None:
        yield f"{result.directory}: {result.error}"
    else:
        span = f"offsets {result.log_start_offset} to {result.log_end_offset} (exclusive)"
        yield f"{result.directory}: {span}, {result.removed_bytes} bytes removed"


def topic_config(properties: tuple[str, ...]) -> LogConfig:
    """Returns the configuration of a topic with these properties. Ends the command if one is wrong."""
    pairs = [each.partition("=") for each in properties]
    try:
        return LogConfig.from_properties({name: value for name, _, value in pairs})
    except StorageError as error:
        fail(f"--config {error}")


def open_log(
    file_system: FileSystem,
    path: str,
    config: LogConfig,
    *,
    report: Callable[[RecoveryCut], None],
    now_ms: int,
) -> PartitionLog:
    """Open the log of a partition as after a crash, which recovers it. Raises StorageError and OSError.

    Raises DamagedMetadataLog, with nothing changed, if committed decisions of a controller would be cut.
    """
    key = key_of(path)
    check_metadata(file_system, path)
    starts = read_offsets(file_system, join(dirname(path), LOG_START_OFFSET_CHECKPOINT))
    return PartitionLog.open(
        file_system,
        path,
        config,
        log_start_offset=0 if key is None else starts.get(key, 0),
        clean=False,
        now_ms=now_ms,
        report=report,
    )


def check_metadata(file_system: FileSystem, path: str) -> None:
    """Do to the log of a controller what the controller does before a recovery: after a cut it would start, without the
    decisions that its brokers have acted on. Raises DamagedMetadataLog. Writes nothing.
    """
    key = key_of(path)
    if key is not None and key[0] == METADATA_TOPIC:
        check_nothing_committed_is_damaged(file_system, path)


def read_offsets(file_system: FileSystem, path: str) -> dict[Key, int]:
    """Returns the offsets of a checkpoint; none of one that is missing or damaged. Raises OSError."""
    try:
        return OffsetCheckpoint(file_system, path).read() if file_system.exists(path) else {}
    # `_warn_of_damaged_checkpoints` has reported it already.
    except CorruptCheckpoint:
        return {}
