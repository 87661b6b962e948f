"""The steps that let the disk of a node fail calls, forget what was synced, or hold something else."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, StrictInt, model_validator

from sim.scenario.base import DOWN, FOR_DISK, Named
from sim.scenario.values import Duration, Percent, Size, TargetField

Calls = Literal["reads", "writes", "syncs", "all"]
Extent = Literal["bit", "sector", "block"]
SyncedFile = Literal["cleaned", "checkpoint", "snapshot", "metadata", "partition"]
RotFile = Literal["log", "index", "epochs", "producers", "checkpoints"]
_LOG = r"^[a-zA-Z0-9._-]+/[0-9]+$"
_DOWN_AFTER = (
    "After how long its process starts again; without it, with `restart`, or when everything is healed."
)


class DiskStep(Named):
    """A step that strikes disks of brokers. `is_damage` says whether it takes what was synced."""

    is_damage: ClassVar[bool] = True

    @property
    def loses_synced(self) -> bool:
        """Whether this step may take from a broker what a sync has said to be durable."""
        return self.is_damage


class FailDisk(DiskStep):
    """Lets calls on the disk of a node fail for a while: with EIO, because it is full, or because it is read-only.

    The first failed call takes its log directory offline, and a broker without a directory ends, as the controller does
    unless it was a snapshot that could not be written. When the fault is
    over, the node starts again, because only a start brings a directory back. A full disk still lets files shrink
    and go away; a read-only one still writes what it took before. If a sync had failed, the machine restarts too.
    """

    verb = "fail_disk"
    fail_disk: TargetField = Field(description="The nodes whose disk fails.")
    error: Literal["io", "full", "read-only"] = Field(default="io", description="Why calls fail.")
    calls: Calls | None = Field(
        default=None, description="Which calls fail with `error: io`; without it, reads and writes do."
    )
    free: Size | None = Field(
        default=None, description="What a full disk still takes; the write after that is stored in part."
    )
    directory: StrictInt | None = Field(
        default=None, ge=1, le=9, description="The log directory that fails; without it, the whole disk does."
    )
    lasting: Duration | None = Field(default=None, alias="for", description=FOR_DISK)

    @model_validator(mode="after")
    def _check_detail(self) -> FailDisk:
        if self.calls is not None and self.error != "io":
            raise ValueError(f"`calls` needs `error: io`; with {self.error} the calls that write fail")
        if self.free is not None and self.error != "full":
            raise ValueError("`free` needs `error: full`")
        return self

    @property
    def loses_synced(self) -> bool:
        return self.calls in ("syncs", "all")


class FailSync(DiskStep):
    """Fails the next sync of a broker, once, with EIO, or that of a snapshot of the controller.

    The kernel counts the pages as clean although none was written.
    So later syncs succeed and write nothing of them: the bytes are in the page cache and not on the disk, which a power
    loss shows. A broker must never sync again and believe it: it takes the directory offline, or ends. It cannot tell
    whether its kernel is one that keeps the pages as dirty (`pages: dirty`), for which nothing is lost.
    """

    verb = "fail_sync"
    fail_sync: TargetField = Field(description="The brokers whose next sync fails, or the controller.")
    log: str | None = Field(
        default=None,
        pattern=_LOG,
        description="Waits for a sync of the active segment of this log, `topic/partition`; without it, of any file.",
    )
    file: SyncedFile | None = Field(
        default=None,
        description="Waits for a sync of a file that a job writes: a segment of the cleaner, a checkpoint of a log "
        "directory, a snapshot of producers, or one of the metadata, which the controller writes; or of the file with "
        "the topic id of a new log. Nobody was told of what it holds.",
    )
    page_cache: Literal["kept", "dropped"] = Field(
        default="kept",
        description="Whether the process starts over the page cache that shows the bytes, or the machine restarts.",
    )
    pages: Literal["clean", "dirty"] = Field(
        default="clean",
        description="What the kernel counts the pages as that were not written: no later sync writes clean ones.",
    )
    down: Duration | None = Field(default=None, description=_DOWN_AFTER)

    @model_validator(mode="after")
    def _check_file(self) -> FailSync:
        if self.log is not None and self.file is not None:
            raise ValueError("`file` names no segment of a `log`; give one of both")
        return self

    @property
    def loses_synced(self) -> bool:
        return self.file is None and self.pages == "clean"


class HangDisk(Named):
    """Lets no call on the disk of a node return for a while, as a controller does that resets its bus.

    A step or job of the node that needs its disk ends only then, and so does the start of a new process. What still
    hangs when everything is healed ends with a restart of the machine, whose page cache is written before.
    """

    verb = "hang_disk"

    hang_disk: TargetField = Field(description="The nodes whose disk hangs.")
    lasting: Duration = Field(alias="for", description="How long it hangs.")


class LieSyncs(DiskStep):
    """Lets the syncs of files say success and write nothing, as a drive does that keeps writes in a cache of its own.

    What was synced meanwhile is never written: the next power loss of the machine takes it.
    """

    verb = "lie_syncs"
    lie_syncs: TargetField = Field(description="The brokers whose disk lies.")
    lasting: Duration | None = Field(default=None, alias="for", description=FOR_DISK)


class WipeDisk(DiskStep):
    """Replaces the disk of a broker by an empty one: its machine loses power, and it comes back with nothing."""

    verb = "wipe_disk"
    wipe_disk: TargetField = Field(description="The brokers whose disk is replaced.")
    down: Duration | None = Field(default=None, description=DOWN)


class SaveDisk(DiskStep):
    """Keeps an image of what the disk of a broker holds for good now, for a later `restore_disk`; breaks nothing."""

    verb = "save_disk"
    is_damage = False
    save_disk: TargetField = Field(description="The brokers whose disk is saved.")


class RestoreDisk(DiskStep):
    """Sets the disk of a broker back to its last saved image: its machine loses power, and the past comes back."""

    verb = "restore_disk"
    restore_disk: TargetField = Field(description="The brokers whose disk is set back.")
    down: Duration | None = Field(default=None, description=DOWN)


class LoseWrites(DiskStep):
    """Lets writes be acknowledged, and synced, and never arrive: the page cache shows them until power is lost."""

    verb = "lose_writes"

    lose_writes: TargetField = Field(description="The brokers whose disk loses writes.")
    share: Percent = Field(description="Which share of the writes is lost.")
    lasting: Duration | None = Field(default=None, alias="for", description=FOR_DISK)


class MisdirectWrites(DiskStep):
    """Lets writes land in another place, over something that was synced; where they belong, nothing arrives.

    What they land on is damaged as by `rot`. Their own place is as after `lose_writes`.
    """

    verb = "misdirect_writes"

    misdirect_writes: TargetField = Field(description="The brokers whose disk misdirects writes.")
    share: Percent = Field(description="Which share of the writes is misdirected.")
    lasting: Duration | None = Field(default=None, alias="for", description=FOR_DISK)


class Rot(DiskStep):
    """Changes bytes of a file that were synced, as a disk does on which bits fade; every later read sees the same.

    No broker knows of it before it reads them: a start looks at nothing below the recovery point. So the partition is
    judged no further, except that nobody may return, copy or recover a batch whose checksum is wrong.
    """

    verb = "rot"

    rot: TargetField = Field(description="The brokers of whose disk a file is struck.")
    log: str | None = Field(
        default=None,
        pattern=_LOG,
        description="Strikes a file of this log, `topic/partition`; without it, of any log of the scenario's topics.",
    )
    file: RotFile = Field(
        default="log",
        description="The kind of the file: a segment, an index of one, the leader epochs, a snapshot of producers, or "
        "a checkpoint of all logs of a directory.",
    )
    extent: Extent = Field(
        default="bit",
        description="How much changes: one bit, a sector of 512 bytes (drawn bytes), or a block of 4 KiB (zeros).",
    )

    @model_validator(mode="after")
    def _check_log(self) -> Rot:
        if self.log is not None and self.file == "checkpoints":
            raise ValueError("`log` and `file: checkpoints` exclude each other: a checkpoint is of all logs")
        return self


DISK_VERBS: tuple[type[DiskStep], ...] = (
    FailDisk,
    FailSync,
    LieSyncs,
    WipeDisk,
    SaveDisk,
    RestoreDisk,
    Rot,
    LoseWrites,
    MisdirectWrites,
)
