"""What all steps of a scenario file have in common: a trigger, a target and perhaps a name for it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sim.scenario.values import ConditionsField, Duration, LinkPair, Target, When, parse_duration

DOWN = "After how long it starts again; without it, with `restart`, or when everything is healed."
FOR = "How long this lasts; without it, until a `heal`, or until everything is healed."
ONLY = (
    "Strikes only requests of this method of the wire protocol, such as `AlterPartition`, or on a link back only their "
    "answers; a list names several methods. Without it, everything."
)
FOR_DISK = "How long this lasts; without it, until everything is healed."


class Strict(BaseModel):
    """The base of all parts of a scenario file: unknown keys are refused, and values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Step(Strict):
    """A step strikes `at` a time, or `when` its conditions have held in turn, or else right after the step before.

    If the conditions have not held `within` that time, the step never strikes, and the run proves nothing. If the
    target of a step that is due does not exist, the step looks for it again, also `within` that time: then it counts
    as one that found nothing to strike. Steps with a time of their own do not wait for it.
    """

    verb: ClassVar[str]

    at: When | None = Field(
        default=None,
        description="When it strikes: after the start of the run, or with `+` after the step before.",
    )
    when: ConditionsField = Field(
        default=(), description="What it waits for: each condition has to hold after the one before."
    )
    within: Duration = Field(
        default=parse_duration("30s"),
        description="How long it waits for its conditions, and how long for a target that does not exist yet.",
    )

    @model_validator(mode="after")
    def _check_one_trigger(self) -> Step:
        if self.at is not None and self.when:
            raise ValueError("a step may have `at` or `when`, not both")
        return self

    @property
    def target(self) -> Target | LinkPair | None:
        """What the step strikes: a target or links; None for a topic."""
        target: Target | LinkPair | str = getattr(self, self.verb)
        return None if isinstance(target, str) else target

    @property
    def target_text(self) -> str:
        """What the step strikes, as the scenario file has it: a target, a link or a topic."""
        target: Target | LinkPair | str = getattr(self, self.verb)
        return target if isinstance(target, str) else target.text


class Named(Step):
    """A step whose target later steps may name."""

    name: str | None = Field(
        default=None,
        alias="as",
        pattern=r"^[A-Z][A-Za-z0-9_]*$",
        description="A name for the nodes that this step meant, for later steps; it begins with a capital letter.",
    )
