"""Writes the page of a trace, or of two, into a file."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TextIO

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
    try:
        unfinished, output = _new_file(page.parent)
        try:
            with output:
                write_page(output, recordings, difference)
            os.replace(unfinished, page)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(page)) from error


def _new_file(folder: Path) -> tuple[Path, TextIO]:
    """Create a file of a name that nothing in the folder has, so that none is lost; returns its path and the file."""
    for number in itertools.count():
        path = folder / f".view-{number}.part"
        try:
            # What is no Unicode, such as half a pair of surrogates in a name, is escaped.
            return path, path.open("x", encoding="utf-8", errors="backslashreplace", newline="\n")
        except FileExistsError:
            continue
    raise AssertionError("unreachable")
