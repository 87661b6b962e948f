"""The story of a run: what happened, in order, in virtual time and in words. The trace has every message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

from cluster.core.effects import Observe
from sim.world.time import World
from sim.world.trace import Trace

Values = Mapping[str, int | str]


def _leader_elected(values: Values) -> str:
    how = "" if values["clean"] else " UNCLEANLY"
    return (
        f"{values['topic_partition']}: broker {values['leader']} is elected leader{how} of epoch "
        f"{values['leader_epoch']}, in sync are {values['isr']}"
    )


def _recovered_cut(values: Values) -> str:
    return (
        f"{values['topic_partition']}: recovery cuts {values['removed_bytes']} bytes off {values['segment']} at byte "
        f"{values['position']}: {values['reason']}"
    )


_WORDS: dict[str, Callable[[Values], str]] = {
    "controller.leader_elected": _leader_elected,
    "controller.leader_lost": lambda v: (
        f"{v['topic_partition']}: no leader in epoch {v['leader_epoch']}, in sync are {v['isr']}"
    ),
    "controller.isr_changed": lambda v: f"{v['topic_partition']}: in sync are {v['isr']}",
    "controller.broker_fenced": lambda v: f"broker {v['broker']} is fenced",
    "controller.broker_unfenced": lambda v: f"broker {v['broker']} is unfenced",
    "controller.broker_registered": lambda v: (
        f"broker {v['broker']} registers with epoch {v['broker_epoch']}"
    ),
    "log.recovered_cut": _recovered_cut,
    "log.compacted": lambda v: (
        f"{v['topic_partition']}: compacted up to {v['end_offset']}, {v['bytes_before']} bytes are "
        f"{v['bytes_after']} now"
    ),
    "log.segments_deleted": lambda v: (
        f"{v['topic_partition']}: {v['segments']} old segments are deleted, the log starts at {v['log_start_offset']}"
    ),
    "log_directory.offline": lambda v: f"log directory {v['directory']} is offline: {v['reason']}",
    "replica.offline": lambda v: f"{v['topic_partition']}: offline here",
    "replica.truncated": lambda v: (
        f"{v['topic_partition']}: truncates from {v['from_log_end_offset']} to {v['to_offset']} by epoch "
        f"{v['leader_epoch']}"
    ),
    "replica.became_leader": lambda v: (
        f"{v['topic_partition']}: leads epoch {v['leader_epoch']} from offset {v['log_end_offset']}"
    ),
    "replica.became_follower": lambda v: (
        f"{v['topic_partition']}: follows broker {v['leader']} in epoch {v['leader_epoch']} from offset "
        f"{v['log_end_offset']}"
    ),
}


def in_words(kind: str, values: Values) -> str | None:
    """Returns an observation as the story tells it; None for one that it leaves out."""
    words = _WORDS.get(kind)
    return None if words is None else words(values)


@final
class Story:
    """The lines of the story, each with its time and the name of its node or client."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def tell(self, at_us: int, who: str, what: str) -> None:
        self.lines.append(f"{at_us / 1e6:10.3f} s  {who:<12} {what}")

    def observe(self, at_us: int, who: str, kind: str, fields: tuple[tuple[str, int | str], ...]) -> None:
        if kind in _WORDS:
            self.tell(at_us, who, _WORDS[kind](dict(fields)))


@final
class Chronicle:
    """Writes a run down: every event into its trace, the events that a reader wants to know into its story."""

    def __init__(self, world: World, trace: Trace, story: Story) -> None:
        self._world, self._trace, self._story = world, trace, story

    def tell(self, what: str) -> None:
        """Add a line about the world to the story and the trace."""
        self._story.tell(self._world.now_us, "", what)
        self._trace.fields(self._world.now_us, "world", "tell", (("what", what),))

    def note(self, who: str, what: str) -> None:
        """Add a line about a node or client to the story; the trace has it already, in another form."""
        self._story.tell(self._world.now_us, who, what)

    def observe(self, who: str, observe: Observe) -> None:
        """Add an observation of a node or client to the trace and, if there are words for it, to the story."""
        self._trace.fields(self._world.now_us, who, observe.kind, observe.fields)
        self._story.observe(self._world.now_us, who, observe.kind, observe.fields)
