"""Takes the modules of a compiled build from their sources, if REPLOG_INTERPRETED is set: a planted bug needs that."""

from __future__ import annotations

import os
import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader

SWITCH = "REPLOG_INTERPRETED"
_PACKAGES = ("cluster", "sim", "storage")


def use_sources() -> None:
    """Have the packages beside this one imported from sources alone, if the switch is set; none is imported yet."""
    if not os.environ.get(SWITCH):
        return
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folders = tuple(os.path.join(root, name) for name in _PACKAGES)

    def finder(path: str) -> FileFinder:
        if not any(path == folder or path.startswith(folder + os.sep) for folder in folders):
            raise ImportError
        return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, finder)
