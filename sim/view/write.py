"""Writes the page of a trace, or of two, into a file."""

from __future__ import annotations

from pathlib import Path

from sim.view.compare import first_difference
from sim.view.page_file import write_page
from sim.view.recording import Window, read_recording
from sim.whole_file import whole_file


def page_beside(trace: Path) -> Path:
    """Returns the path of a trace's page: the same name with the suffix .html."""
    return trace.with_name(f"{trace.stem}.html")


def write_view(page: Path, trace: Path, other: Path | None = None, window: Window | None = None) -> None:
    """Write the page of a trace, or of two. A page appears whole or not at all, except in a device or a pipe.

    Raises TraceFileError, TooManyEvents or OSError.
    """
    recordings = [read_recording(path, window) for path in (trace, other) if path is not None]
    difference = first_difference(trace, other) if other is not None else None
    with whole_file(page) as output:
        write_page(output, recordings, difference)
