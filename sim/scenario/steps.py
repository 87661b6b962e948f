"""The steps of a scenario file: a step has a time or a condition, one verb, and the verb's details."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, StrictBool, StrictInt, Tag, model_validator

from sim.scenario.base import DOWN, FOR, FOR_DISK, ONLY, Named, Step
from sim.scenario.disk_steps import (
    DISK_VERBS,
    FailDisk,
    FailSync,
    HangDisk,
    LieSyncs,
    LoseWrites,
    MisdirectWrites,
    RestoreDisk,
    Rot,
    SaveDisk,
    WipeDisk,
)
from sim.scenario.link_steps import (
    Clog,
    FlipBits,
    FreezeClock,
    HangUp,
    KillStart,
    Narrow,
    RollingRestart,
    SlowCpu,
)
from sim.scenario.values import Duration, LinkField, MethodsField, Percent, Shift, Size, TargetField
from storage.topics import METADATA_TOPIC

Keep = Literal["none", "prefix", "subset", "torn", "all"]

# The jobs of nodes, which a step may name; a test holds the list to the core.
BROKER_JOBS = (
    "checkpoint",
    "close",
    "compact",
    "delete",
    "flush",
    "search",
    "shutdown",
    "snapshot",
    "validate",
)
CONTROLLER_JOBS = ("flush", "snapshot")

_KEEP = "Which changes that were not synced survive."


class Kill(Named):
    """Kills a process at once; the page cache survives. It starts again after `down`, or with `restart`, or at the end.

    With `point` it is killed not now but before or after the next job of a kind, for example `before flush`.
    """

    verb = "kill"
    kill: TargetField = Field(description="The nodes whose process is killed.")
    down: Duration | None = Field(default=None, description=DOWN)
    point: str | None = Field(
        default=None,
        description="Kills it then: `before` or `after`, and a job of the node: one of "
        f"{', '.join(f'`{kind}`' for kind in BROKER_JOBS)}; the controller has "
        f"{' and '.join(f'`{kind}`' for kind in CONTROLLER_JOBS)}.",
    )

    @property
    def points(self) -> list[str]:
        """The points that the target may have."""
        kinds = CONTROLLER_JOBS if self.kill.kind == "controller" else BROKER_JOBS
        return [f"{side} {kind}" for kind in kinds for side in ("before", "after")]


class KillInside(Named):
    """Kills a process inside a change on its disk: a file is written, renamed or synced in part.

    With `keep` it is the power that goes then. A job such as `compact` makes many changes, and one after the other must
    leave what a start can read.
    """

    verb = "kill_inside"
    kill_inside: TargetField = Field(description="The nodes that are killed.")
    change: StrictInt = Field(
        default=1, ge=1, le=1000, description="The change on the disk, 1 for the next one of the process."
    )
    job: str | None = Field(
        default=None,
        description="Counts only changes that jobs of this kind make: one of "
        f"{', '.join(f'`{kind}`' for kind in BROKER_JOBS)}; the controller has `flush` and `snapshot` only.",
    )
    log: str | None = Field(
        default=None,
        pattern=r"^[a-zA-Z0-9._-]+/[0-9]+$",
        description="Counts only changes in the directory of this log, `topic/partition`.",
    )
    renames: StrictBool = Field(
        default=False,
        description="Counts only renames: by them a compaction puts segments in place, and files are replaced.",
    )
    suffix: str | None = Field(
        default=None,
        pattern=r"^\.[a-z]+$",
        description="Counts only changes of files whose names end so, such as `.swap`: of a rename, the old name.",
    )
    keep: Keep | None = Field(
        default=None, description="Cuts the power too: which changes that were not synced survive."
    )
    down: Duration | None = Field(default=None, description=DOWN)

    @property
    def jobs(self) -> tuple[str, ...]:
        """The kinds of jobs that the target may have."""
        return CONTROLLER_JOBS if self.kill_inside.kind == "controller" else BROKER_JOBS


class Power(Named):
    """Cuts the power of a machine; `keep` says which un-synced changes survive."""

    verb = "power"
    power: TargetField = Field(description="The nodes whose machine loses power.")
    keep: Keep = Field(default="subset", description=_KEEP)
    down: Duration | None = Field(default=None, description=DOWN)


class Pause(Named):
    """Suspends a process for a while; its sockets stay open."""

    verb = "pause"
    pause: TargetField = Field(description="The nodes that are suspended.")
    lasting: Duration = Field(alias="for", description="How long they are suspended.")


class Stop(Named):
    """Stops a process in order."""

    verb = "stop"
    stop: TargetField = Field(description="The nodes that are stopped.")
    down: Duration | None = Field(default=None, description=DOWN)


class Pick(Named):
    """Breaks nothing: names the nodes that the target means now, for later steps."""

    verb = "pick"
    pick: TargetField = Field(description="The nodes that are named.")


class Restart(Step):
    """Starts the target's nodes that are down."""

    verb = "restart"
    restart: TargetField = Field(description="The nodes that start, where they are down.")


class Cut(Step):
    """Cuts a link, which then drops everything, or all of some methods, until `for` is over or until a `heal`."""

    verb = "cut"
    cut: LinkField = Field(description="The links that are cut.")
    # The draws of a step are keyed by its own words, and older steps have no such word.
    only: MethodsField = Field(default=(), repr=False, description=ONLY)
    lasting: Duration | None = Field(default=None, alias="for", description=FOR)


class Heal(Step):
    """Ends cuts, delays and losses of one link, of all links of a node, or of `all`."""

    verb = "heal"
    heal: TargetField | LinkField = Field(
        description="The links that are healed, or the nodes whose links are."
    )


class Isolate(Named):
    """Cuts the links of a node to all others, except those in `except`."""

    verb = "isolate"
    isolate: TargetField = Field(description="The nodes that are cut off.")
    sparing: TargetField | None = Field(
        default=None, alias="except", description="The nodes to which the links stay."
    )
    lasting: Duration | None = Field(default=None, alias="for", description=FOR)


class Slow(Step):
    """Delays every message of a link by `by`."""

    verb = "slow"
    slow: LinkField = Field(description="The links that are slow.")
    by: Duration = Field(description="The delay that is added to each message.")
    # The draws of a step are keyed by its own words, and older steps have no such word.
    only: MethodsField = Field(default=(), repr=False, description=ONLY)
    lasting: Duration | None = Field(default=None, alias="for", description=FOR)


class Lose(Step):
    """Loses a share of the messages of a link; a stream sends them again, later."""

    verb = "lose"
    lose: LinkField = Field(description="The links that lose messages.")
    share: Percent = Field(description="The share of the messages that are lost.")
    # The draws of a step are keyed by its own words, and older steps have no such word.
    only: MethodsField = Field(default=(), repr=False, description=ONLY)
    lasting: Duration | None = Field(default=None, alias="for", description=FOR)


class PartialWrite(Named):
    """Ends a node inside its next append to a log, of which only the first `byte` bytes are written.

    With `keep` the machine loses power at that moment; without it the page cache survives. After a power loss the file
    may be as long as if all had been written: `rest` says what it has then in place of the bytes that were not.
    """

    verb = "partial_write"
    partial_write: TargetField = Field(description="The node that ends.")
    log: str = Field(
        pattern=r"^[a-zA-Z0-9._-]+/[0-9]+$",
        description=f"The log, as `topic/partition`, such as `t/0`; the controller's is `{METADATA_TOPIC}/0`.",
    )
    byte: Size = Field(description="How much of the append is written.")
    keep: Keep | None = Field(default=None, description=f"The machine loses power too. {_KEEP}")
    # The draws of a step are keyed by its own words, and older steps have no such word.
    rest: Literal["missing", "zeros", "garbage"] = Field(
        default="missing",
        repr=False,
        description="What a power loss leaves in place of the rest of the append.",
    )
    down: Duration | None = Field(default=None, description=DOWN)

    @model_validator(mode="after")
    def _check_rest(self) -> Self:
        if self.rest != "missing" and self.keep is None:
            raise ValueError("`rest` needs a power loss: write `keep` too")
        return self


class BreakDisk(Named):
    """Lets every call on one log directory of a broker fail with EIO; `directory` 1 is the first.

    When everything is healed, the directory is mended and the broker restarts: only a start brings a directory back.
    If a sync had failed, the machine restarts too, because the page cache shows what the disk does not have.
    """

    verb = "break_disk"
    break_disk: TargetField = Field(description="The broker whose disk fails.")
    directory: StrictInt = Field(
        default=1, ge=1, le=9, description="The log directory that fails; 1 is the first."
    )
    log: str | None = Field(
        default=None,
        pattern=r"^[a-zA-Z0-9._-]+/[0-9]+$",
        description="Instead of a number: the directory that holds the log of this partition fails, such as `t/0`.",
    )
    # The draws of a step are keyed by its own words, and older steps have no such word.
    job: str | None = Field(
        default=None,
        repr=False,
        description="The directory fails when the next job of this kind begins its work: one of "
        f"{', '.join(f'`{kind}`' for kind in BROKER_JOBS)}.",
    )


class SlowDisk(Named):
    """Makes a node's disk slow: each read, write, sync and change of a name takes `by` longer.

    What a step of the node does on its disk holds up its answers and all that comes after it.
    """

    verb = "slow_disk"
    slow_disk: TargetField = Field(description="The nodes whose disk is slow.")
    by: Duration = Field(description="The time that is added to each call.")
    lasting: Duration | None = Field(default=None, alias="for", description=FOR_DISK)


class LackDescriptors(Named):
    """Leaves the process of a broker no file descriptor for a while, or single ones only, as after a leak.

    What it has open it keeps. A call that finds none has changed nothing, and no log or directory goes offline because
    of it: what was to be done is done later. A process that starts has what it needs.
    """

    verb = "lack_descriptors"
    lack_descriptors: TargetField = Field(description="The brokers.")
    left: Literal["few", "none"] = Field(
        default="few",
        description="With a `few` left single files are opened, and no change begins that needs several of them.",
    )
    lasting: Duration | None = Field(default=None, alias="for", description=FOR_DISK)


class StepClock(Named):
    """Sets the clock of a machine ahead or back. A running process sees only the step ahead: its time never falls."""

    verb = "step_clock"
    step_clock: TargetField = Field(description="The nodes and clients whose clock is set.")
    by: Shift = Field(description="How far: `5s` is ahead, `-5s` is back.")


class CreateTopic(Step):
    """Creates a topic as `topics` describes it: again after a `delete_topic`, or for the first time (`exists: false`).

    The request is repeated until the controller has answered it, and waits for the topic requests before it.
    """

    verb = "create_topic"
    create_topic: str = Field(description="The topic, one of `topics`.")
    leader: TargetField | None = Field(
        default=None,
        description="The broker that leads every partition; without it the controller places them.",
    )


class DeleteTopic(Step):
    """Deletes a topic. Promises about its records end with it; those of the next topic of its name begin."""

    verb = "delete_topic"
    delete_topic: str = Field(description="The topic, one of `topics`.")


class AlterTopic(Step):
    """Changes properties of a topic, those left out stay."""

    verb = "alter_topic"
    alter_topic: str = Field(description="The topic, one of `topics`.")
    config: dict[str, int | float | str | bool] = Field(
        min_length=1,
        description="Properties under Kafka's names; an empty text restores the default. What checkers rely on "
        "(cleanup.policy; flush.messages where it is 1) cannot change.",
    )


class LagMetadata(Named):
    """Lets a broker replay no metadata for a while. Its heartbeats go on, so it stays in the cluster."""

    verb = "lag_metadata"
    lag_metadata: TargetField = Field(description="The broker.")
    lasting: Duration = Field(alias="for", description="How long; then all that waited is replayed in order.")


# The steps that may strike some methods only, by `only`.
OF_METHODS = (Cut, Slow, Lose, Clog)

VERBS: tuple[type[Step], ...] = (
    Kill, KillInside, Power, Pause, Stop, Pick, Restart, Cut, Heal, Isolate, Slow, Lose, PartialWrite, BreakDisk,
    SlowDisk, StepClock, CreateTopic, DeleteTopic, AlterTopic, LagMetadata, *DISK_VERBS,
    Clog, Narrow, HangUp, SlowCpu, KillStart, RollingRestart, FreezeClock, HangDisk, FlipBits, LackDescriptors,
)  # fmt: skip
VERB_NAMES = tuple(kind.verb for kind in VERBS)


def _verb_of(step: object) -> str | None:
    if isinstance(step, Step):
        return step.verb
    found = [key for key in step if key in VERB_NAMES] if isinstance(step, dict) else []
    return found[0] if len(found) == 1 else None


AnyStep = Annotated[
    Annotated[Kill, Tag("kill")]
    | Annotated[KillInside, Tag("kill_inside")]
    | Annotated[Power, Tag("power")]
    | Annotated[Pause, Tag("pause")]
    | Annotated[Stop, Tag("stop")]
    | Annotated[Pick, Tag("pick")]
    | Annotated[Restart, Tag("restart")]
    | Annotated[Cut, Tag("cut")]
    | Annotated[Heal, Tag("heal")]
    | Annotated[Isolate, Tag("isolate")]
    | Annotated[Slow, Tag("slow")]
    | Annotated[Lose, Tag("lose")]
    | Annotated[PartialWrite, Tag("partial_write")]
    | Annotated[BreakDisk, Tag("break_disk")]
    | Annotated[SlowDisk, Tag("slow_disk")]
    | Annotated[StepClock, Tag("step_clock")]
    | Annotated[CreateTopic, Tag("create_topic")]
    | Annotated[DeleteTopic, Tag("delete_topic")]
    | Annotated[AlterTopic, Tag("alter_topic")]
    | Annotated[LagMetadata, Tag("lag_metadata")]
    | Annotated[Clog, Tag("clog")]
    | Annotated[Narrow, Tag("narrow")]
    | Annotated[HangUp, Tag("hang_up")]
    | Annotated[SlowCpu, Tag("slow_cpu")]
    | Annotated[KillStart, Tag("kill_start")]
    | Annotated[RollingRestart, Tag("rolling_restart")]
    | Annotated[FreezeClock, Tag("freeze_clock")]
    | Annotated[HangDisk, Tag("hang_disk")]
    | Annotated[FlipBits, Tag("flip_bits")]
    | Annotated[LackDescriptors, Tag("lack_descriptors")]
    | Annotated[FailDisk, Tag("fail_disk")]
    | Annotated[FailSync, Tag("fail_sync")]
    | Annotated[LieSyncs, Tag("lie_syncs")]
    | Annotated[WipeDisk, Tag("wipe_disk")]
    | Annotated[SaveDisk, Tag("save_disk")]
    | Annotated[RestoreDisk, Tag("restore_disk")]
    | Annotated[Rot, Tag("rot")]
    | Annotated[LoseWrites, Tag("lose_writes")]
    | Annotated[MisdirectWrites, Tag("misdirect_writes")],
    Discriminator(_verb_of, custom_error_type="verb", custom_error_message="verb"),
]
