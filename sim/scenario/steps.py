"""The fault vocabulary as a scenario writes it: a step is a time or a condition, one verb, and the verb's details."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from sim.scenario.values import (
    ConditionsField,
    Duration,
    LinkField,
    Percent,
    Size,
    TargetField,
    When,
    parse_duration,
)

Keep = Literal["none", "prefix", "subset", "torn", "all"]


class Strict(BaseModel):
    """Unknown keys are refused; a scenario never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Step(Strict):
    """`at` a time, or `when` a condition holds, or several in turn, `within` a time; neither: after the step before."""

    verb: ClassVar[str]

    at: When | None = None
    when: ConditionsField = ()
    within: Duration = parse_duration("30s")

    @model_validator(mode="after")
    def _check_one_trigger(self) -> Step:
        if self.at is not None and self.when:
            raise ValueError("a step has `at` or `when`, not both")
        if not self.when and "within" in self.model_fields_set:
            raise ValueError("`within` bounds a `when`")
        return self


class Named(Step):
    """A step whose target later steps may name."""

    name: str | None = Field(default=None, alias="as", pattern=r"^[A-Z][A-Za-z0-9_]*$")


class Kill(Named):
    """The process ends at once; its page cache survives. It starts again after `down`, else with `restart` or at the
    end. `point`: not now but before or after the next job of a kind, e.g. `before flush`."""

    verb = "kill"
    kill: TargetField
    down: Duration | None = None
    point: str | None = Field(default=None, pattern=r"^(before|after) [a-z-]+$")


class Power(Named):
    """The machine loses power. `keep`: what survives of the writes that were not synced."""

    verb = "power"
    power: TargetField
    keep: Keep = "subset"
    down: Duration | None = None


class Pause(Named):
    """The process is stopped for a while; sockets stay open."""

    verb = "pause"
    pause: TargetField
    lasting: Duration = Field(alias="for")


class Stop(Named):
    """An orderly stop."""

    verb = "stop"
    stop: TargetField
    down: Duration | None = None


class Pick(Named):
    """Breaks nothing: names whom the target means now."""

    verb = "pick"
    pick: TargetField


class Restart(Step):
    verb = "restart"
    restart: TargetField


class Cut(Step):
    """The link drops everything, until `for` is over or a `heal`."""

    verb = "cut"
    cut: LinkField
    lasting: Duration | None = Field(default=None, alias="for")


class Heal(Step):
    """Ends cuts, delays and losses of one link, of all links of a node, or of `all`."""

    verb = "heal"
    heal: TargetField | LinkField


class Isolate(Named):
    """Cuts a node from every other, but for those in `except`."""

    verb = "isolate"
    isolate: TargetField
    sparing: TargetField | None = Field(default=None, alias="except")
    lasting: Duration | None = Field(default=None, alias="for")


class Slow(Step):
    """Adds `by` to every message of a link."""

    verb = "slow"
    slow: LinkField
    by: Duration
    lasting: Duration | None = Field(default=None, alias="for")


class Lose(Step):
    """A share of the messages of a link is lost (on a stream: sent again, later)."""

    verb = "lose"
    lose: LinkField
    share: Percent
    lasting: Duration | None = Field(default=None, alias="for")


class PartialWrite(Named):
    """The node's next append to the partition's log writes only the bytes below `byte` of its batch; then it dies.
    With `keep` it loses power at that moment, else its page cache survives."""

    verb = "partial_write"
    partial_write: TargetField
    log: str = Field(pattern=r"^[a-zA-Z0-9._-]+/[0-9]+$")
    byte: Size
    keep: Keep | None = None
    down: Duration | None = None


class BreakDisk(Named):
    """From now on one log directory of the broker answers every call with EIO; 1 is the first. The end of all faults
    mends it and starts the broker again, which is what brings a directory back."""

    verb = "break_disk"
    break_disk: TargetField
    directory: int = Field(ge=1, le=9)


VERBS: tuple[type[Step], ...] = (
    Kill, Power, Pause, Stop, Pick, Restart, Cut, Heal, Isolate, Slow, Lose, PartialWrite, BreakDisk,
)  # fmt: skip
VERB_NAMES = tuple(kind.verb for kind in VERBS)


def _verb_of(step: object) -> str | None:
    if isinstance(step, Step):
        return step.verb
    found = [key for key in step if key in VERB_NAMES] if isinstance(step, dict) else []
    return found[0] if len(found) == 1 else None


AnyStep = Annotated[
    Annotated[Kill, Tag("kill")]
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
    | Annotated[BreakDisk, Tag("break_disk")],
    Discriminator(_verb_of, custom_error_type="verb", custom_error_message="verb"),
]
