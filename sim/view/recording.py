"""Reads a whole trace into what a page shows of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from sim.story import in_words
from sim.told import is_fault
from sim.view.columns import Columns, Flag
from sim.view.spans import Spans
from sim.view.trace_file import Event, Header, TraceFile, TraceFileError
from sim.view.tracks import Tracks

# A page of more events than this is slow to open; it holds all their lines.
MOST_EVENTS = 1_000_000
_VIOLATED = "VIOLATED "


@final
class TooManyEvents(Exception):
    """A trace of more events than a page can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The part of a run that a page shows, in microseconds of virtual time; `until_us` is exclusive."""

    from_us: int = 0
    until_us: int | None = None

    def is_after(self, at_us: int) -> bool:
        return self.until_us is not None and at_us >= self.until_us


@dataclass(slots=True)
class Recording:
    """A trace as a page shows it: its events inside the window, and the state that the events before it left."""

    header: Header
    # The name of the trace's file, without its folder.
    file: str
    columns: Columns = field(default_factory=Columns)
    tracks: Tracks = field(default_factory=Tracks)
    spans: Spans = field(default_factory=Spans)
    # The row of each event that the story tells, and its words.
    story: list[tuple[int, str]] = field(default_factory=list)
    # The number of events before the window.
    skipped: int = 0
    # Whether the trace has events after the window.
    is_cut_short: bool = False

    @property
    def is_part(self) -> bool:
        """Whether the trace has events that the page leaves out."""
        return self.skipped > 0 or self.is_cut_short

    def add(self, event: Event, *, is_shown: bool) -> None:
        """Take in an event. Raises KeyError, TypeError or the like if it lacks a member that its kind has."""
        row = len(self.columns)
        words = _words_of(event)
        self.tracks.on_event(row, event.node, event.kind, event.members)
        if event.kind in ("start", "end"):
            self.spans.on_life(row, event.node, event.kind, event.members)
        elif event.kind == "tell":
            self.spans.on_told(row, str(event.members["what"]))
        if not is_shown:
            self.skipped += 1
            self.columns.skip(event)
            return
        if words is not None:
            self.story.append((row, words))
        self.columns.add(event, _flags_of(event, is_told=words is not None))


def read_recording(path: Path, window: Window | None = None) -> Recording:
    """Read a trace file. Raises TraceFileError, TooManyEvents or OSError."""
    window = window or Window()
    with path.open("rb") as file:
        trace = TraceFile(path, file)
        recording = Recording(trace.header, path.name)
        for event in trace.events():
            if window.is_after(event.at_us):
                recording.is_cut_short = True
                break
            try:
                recording.add(event, is_shown=event.at_us >= window.from_us)
            except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
                reason = f"a {event.kind} event of another form: {type(error).__name__}: {error}"
                raise TraceFileError(path, trace.line, reason) from error
            if len(recording.columns) > MOST_EVENTS:
                raise TooManyEvents(
                    f"{path}: more than {MOST_EVENTS:,} events: choose a part with --from and --until"
                )
    return recording


def _words_of(event: Event) -> str | None:
    """Returns an event in the words of the story; None for one that the story leaves out."""
    if event.kind == "tell":
        return str(event.members["what"])
    if event.kind == "start":
        return f"starts, life {event.members['life']}"
    if event.kind == "end":
        return f"ends: {event.members['how']}"
    return in_words(event.kind, event.members)


def _flags_of(event: Event, *, is_told: bool) -> Flag:
    flags = Flag.TOLD if is_told else Flag(0)
    if event.kind == "tell":
        return flags | _flags_of_told(str(event.members["what"]))
    if event.kind == "response" and (b'"error":"' in event.text or b'"is":"TransportError"' in event.text):
        return flags | Flag.FAILED
    if event.kind == "delivered" and event.members["outcome"] != "ok":
        return flags | Flag.FAILED
    return flags


def _flags_of_told(what: str) -> Flag:
    if what.startswith(_VIOLATED):
        return Flag.VIOLATION
    return Flag.FAULT if is_fault(what) else Flag(0)
