"""Writes a text file that the user has named, whole or not at all."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """Opens a file to write, which takes its name when the block ends: what has the name stays until then.

    Behind a symbolic link the file is replaced, not the link. What exists and is no regular file, such as a device or a
    pipe, is never replaced: the text goes into it. Raises OSError, which names `path`.
    """
    try:
        if path.exists() and not path.is_file():
            # What is no Unicode, such as half a pair of surrogates in a name, is escaped.
            with path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as device:
                yield device
            return
        target = Path(os.path.realpath(path))
        unfinished, output = _new_file(target.parent)
        try:
            with output:
                yield output
            if target.exists():
                shutil.copymode(target, unfinished)
            os.replace(unfinished, target)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _new_file(folder: Path) -> tuple[Path, TextIO]:
    """Creates a file of a name that nothing in the folder has, so that none is lost; returns its path and the file."""
    for number in itertools.count():
        path = folder / f".replog-{number}.part"
        try:
            return path, path.open("x", encoding="utf-8", errors="backslashreplace", newline="\n")
        except FileExistsError:
            continue
    raise AssertionError("unreachable")
