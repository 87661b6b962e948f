"""Bugs in the log and its files: each removes one rule of recovery, epochs, retention, compaction or failed disks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from sim.bugs.planting import Bug, Make, Replacement
from storage.disk.checkpoints import CleanShutdownFile, LeaderEpochCheckpoint
from storage.disk.filesystem import OpenMode
from storage.errors import StorageError
from storage.leader_epochs import LeaderEpochCache
from storage.log.compaction import CleanableOffsets, Compactions
from storage.log.flushes import Flushes
from storage.log.online import Online
from storage.log.retention import IsDeletable, Retention
from storage.log.truncation import Truncation
from storage.segment import LogSegment

Original = Callable[..., Any]


def _says(answer: object) -> Make:
    return lambda original: lambda *arguments, **named: answer


def _without_floor(original: Original) -> Original:
    def end_offset_for(cache: LeaderEpochCache, epoch: int, log_end_offset: int) -> tuple[int, int]:
        found, end_offset = original(cache, epoch, log_end_offset)
        return (found if found < 0 else epoch), end_offset

    return end_offset_for


def _keeps_empty_epochs(original: Original) -> Original:
    def truncate_to(truncation: Truncation, offset: int, *, now_ms: int) -> bool:
        if offset >= truncation._local.log_end_offset:
            return False
        return bool(original(truncation, offset, now_ms=now_ms))

    return truncate_to


def _only_drops_the_snapshot(original: Original) -> Original:
    def truncated_to(flushes: Flushes, offset: int) -> None:
        flushes.drop_snapshot()

    return truncated_to


def _whether_committed_or_not(original: Original) -> Original:
    def deletable(
        retention: Retention, is_deletable: IsDeletable, at_most: int | None = None
    ) -> list[LogSegment]:
        found: list[LogSegment] = []
        for segment, following in retention._local.segments.oldest():
            if following is None or len(found) == at_most or not is_deletable(segment, following):
                break
            found.append(segment)
        return found

    return deletable


def _up_to_active_segment(original: Original) -> Original:
    def cleanable_offsets(compactions: Compactions, checkpoint: int | None, now_ms: int) -> CleanableOffsets:
        found: CleanableOffsets = original(compactions, checkpoint, now_ms)
        end_offset = max(found.first_dirty_offset, compactions._local.segments.active.base_offset)
        return replace(found, first_uncleanable_offset=end_offset)

    return cleanable_offsets


def _leaves_the_file(original: Original) -> Original:
    def delete(mark: CleanShutdownFile) -> bool:
        return mark.exists()

    return delete


def _never_synced(original: Original) -> Original:
    def write_snapshot(*arguments: object, sync: bool) -> str:
        return str(original(*arguments, sync=False))

    return write_snapshot


def _renames_before_sync(original: Original) -> Original:
    def write(checkpoint: LeaderEpochCheckpoint, entries: Iterable[tuple[int, int]]) -> None:
        lines = [f"{epoch} {offset}" for epoch, offset in entries]
        content = "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()
        beside = f"{checkpoint.path}.tmp"
        file = checkpoint._file_system.open(beside, OpenMode.CREATE)
        file.set_length(0)
        file.write_at(0, content)
        file.close()
        checkpoint._file_system.rename(beside, checkpoint.path)

    return write


def _stays_online(original: Original) -> Original:
    def failed(online: Online, action: str, error: Exception) -> StorageError:
        return StorageError(f"{action} failed: {error}")

    return failed


def _bug(name: str, story: str, target: str, make: Make, found_by: str = "") -> Bug:
    return Bug(
        name=name,
        story=story,
        replacements=(Replacement(target=f"storage.{target}", make=make),),
        found_by=found_by,
    )


STORAGE_BUGS: tuple[Bug, ...] = (
    _bug(
        "recovery-skipped",
        "After a crash no segment is recovered (KAFKA-673).",
        "recovery.loader:_Loader._recover_unflushed",
        _says(None),
        found_by="torn-tail-power-loss",
    ),
    _bug(
        "clean-mark-survives",
        "The mark of a clean stop stays when logs are loaded, and a later crash passes for a clean stop (KAFKA-10471).",
        "disk.checkpoints:CleanShutdownFile.delete",
        _leaves_the_file,
        found_by="clean-mark-survives",
    ),
    _bug(
        "epoch-lookup-without-floor",
        "A leader names the end of the next larger epoch for an epoch that it does not know (KIP-279).",
        "leader_epochs:LeaderEpochCache.end_offset_for",
        _without_floor,
        found_by="kip-279-fast-fail-over",
    ),
    _bug(
        "epochs-without-records-stay",
        "A truncation at the log end leaves epochs that have no records (KAFKA-10706).",
        "log.truncation:Truncation.truncate_to",
        _keeps_empty_epochs,
    ),
    _bug(
        "truncation-keeps-checkpoint",
        "After a truncation the log is appended to while its checkpoint has the recovery point of before (RT16).",
        "log.appends:Appends._lower_checkpoints",
        _says(None),
        found_by="truncation-keeps-checkpoint",
    ),
    _bug(
        "flush-forgets-cut",
        "The end of a flush counts for records that have taken the place of those that were cut while it ran.",
        "log.flushes:Flushes.truncated_to",
        _only_drops_the_snapshot,
        found_by="flush-forgets-cut",
    ),
    _bug(
        "epoch-file-not-synced",
        "The file of leader epochs is renamed before it is synced, so that a power loss tears it (KAFKA-16541).",
        "disk.checkpoints:LeaderEpochCheckpoint.write",
        _renames_before_sync,
    ),
    Bug(
        name="producer-snapshot-not-synced",
        story="Snapshots of the producers are never synced, so that a power loss tears them (KAFKA-9892).",
        replacements=(
            Replacement(target="storage.producers.snapshot_files:write_snapshot", make=_never_synced),
        ),
    ),
    _bug(
        "retention-takes-uncommitted",
        "Retention deletes segments that are not committed (KAFKA-5634).",
        "log.retention:Retention.deletable",
        _whether_committed_or_not,
        found_by="retention-takes-uncommitted",
    ),
    _bug(
        "compaction-takes-uncommitted",
        "Compaction lets records that are not committed replace committed ones (KAFKA-13194).",
        "log.compaction:Compactions.cleanable_offsets",
        _up_to_active_segment,
        found_by="compaction-takes-uncommitted",
    ),
    _bug(
        "compaction-forgets-producers",
        "Compaction drops a producer's last batch, and its sequence with it (KAFKA-5490).",
        "cleaner.filter:RecordFilter._is_last_of_producer",
        _says(False),
    ),
    _bug(
        "log-goes-on-after-disk-error",
        "A log takes more appends after its disk has failed (KAFKA-10778).",
        "log.online:Online.failed",
        _stays_online,
    ),
)
