"""Writes the page of a trace, or of two, into a file."""

from __future__ import annotations

import os
from pathlib import Path

from sim.view.compare import first_difference
from sim.view.page_file import write_page
from sim.view.recording import Window, read_recording


def page_beside(trace: Path) -> Path:
    """Returns the path of a trace's page: the same name with the suffix .html."""
    return trace.with_name(f"{trace.stem}.html")


def write_view(page: Path, trace: Path, other: Path | None = None, window: Window | None = None) -> None:
    """Write the page of a trace, or of two. A page appears whole or not at all.

    Raises TraceFileError, TooManyEvents or OSError.
    """
    recordings = [read_recording(path, window) for path in (trace, other) if path is not None]
    difference = first_difference(trace, other) if other is not None else None
    unfinished = page.with_name(f"{page.name}.part")
    try:
        with unfinished.open("w", encoding="utf-8", newline="\n") as output:
            write_page(output, recordings, difference)
        os.replace(unfinished, page)
    finally:
        unfinished.unlink(missing_ok=True)
