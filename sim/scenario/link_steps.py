"""More steps that strike links and processes: clogs, narrow links, half-open connections, slow steps, restarts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, StrictBool, StrictInt

from sim.scenario.base import FOR, FOR_DISK, ONLY, Named, Step
from sim.scenario.values import Duration, LinkField, MethodsField, Percent, Size, TargetField, parse_duration


class Clog(Step):
    """Keeps every message of a link back, or those of some kinds, and delivers all of them at once when it is over."""

    verb = "clog"
    clog: LinkField = Field(description="The links that are clogged.")
    # The draws of a step are keyed by its own words, and older steps have no such word.
    only: MethodsField = Field(default=(), repr=False, description=ONLY)
    lasting: Duration | None = Field(default=None, alias="for", description=FOR)


class Narrow(Step):
    """Limits what a link carries in a second: messages queue behind each other."""

    verb = "narrow"
    narrow: LinkField = Field(description="The links that are narrow.")
    to: Size = Field(description="What each carries in a second: at least `1 B`.")
    lasting: Duration | None = Field(default=None, alias="for", description=FOR)


class FlipBits(Step):
    """Flips a bit of some messages on a link, past the checksum of TCP, as a bad network card does.

    In `records`, brokers, followers and consumers check each batch, refuse it, and it is sent again. Without the
    `structure` of a message nobody can read it: its stream or call ends, and what was in flight is sent again.

    What else is in a message has no checksum, here as in Kafka: a bit that flips `anywhere` may change an offset, an
    epoch or an error, and is believed. From the first such bit on, nothing is promised and nothing judged but that no
    node fails. TLS would find every such bit.
    """

    verb = "flip_bits"

    flip_bits: LinkField = Field(description="The links that flip bits.")
    share: Percent = Field(description="In which share of their messages.")
    where: Literal["records", "structure", "anywhere"] = Field(
        default="records", repr=False, description="Which bits of a message may flip."
    )
    lasting: Duration | None = Field(default=None, alias="for", description=FOR)


class HangUp(Step):
    """Lets each node on the left forget its connections with those on the right, which do not hear of it.

    The other side believes that they are open until it sends something: the answer to that ends them.
    """

    verb = "hang_up"
    hang_up: LinkField = Field(description="Who forgets (`A`) whom (`B`), as in `A -> B`.")


class SlowCpu(Named):
    """Makes a process slow: each of its steps takes `by` longer."""

    verb = "slow_cpu"
    slow_cpu: TargetField = Field(description="The nodes and clients that are slow.")
    by: Duration = Field(description="The time that is added to each step.")
    lasting: Duration | None = Field(default=None, alias="for", description=FOR_DISK)


class FreezeClock(Named):
    """Lets the clock of a machine stand still: messages come and go, but no timer fires and no time seems to pass."""

    verb = "freeze_clock"

    freeze_clock: TargetField = Field(description="The nodes and clients whose clock stands still.")
    lasting: Duration | None = Field(default=None, alias="for", description=FOR_DISK)
    catches_up: StrictBool = Field(
        default=True,
        description="Whether it goes on with the right time; with `false` it is behind by the time that it stood.",
    )


class KillStart(Named):
    """Kills a process, and its next one too, inside its start: in the `change`-th change that it makes on the disk."""

    verb = "kill_start"
    kill_start: TargetField = Field(description="The nodes that are killed, at once and in their next start.")
    change: StrictInt = Field(
        default=1, ge=1, le=1000, description="The change on the disk, 1 for the first of the start."
    )
    down: Duration = Field(description="After how long the process starts, each time.")


class RollingRestart(Named):
    """Restarts brokers in order, one after the other, as an upgrade does; steps after it do not wait for its end.

    Each is stopped in order and starts again. The next one is stopped once this one is back in all in-sync sets in
    which it was before.
    """

    verb = "rolling_restart"

    rolling_restart: TargetField = Field(description="The brokers, in their order.")
    down: Duration = Field(default=parse_duration("1s"), description="How long each is down.")
    patience: Duration = Field(
        default=parse_duration("15s"),
        description="How long the next one waits, from the stop of this one on; then it is stopped nevertheless.",
    )
