"""Notices a foreign package or module under a top-level name that replog's wheel takes.

Python imports the first of two packages of one name. If that is not ours, an import fails far away, about a name that
nobody knows; so it is said at once, with the place.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence

# `scenarios` has no package file: any foreign package of that name comes before it, even one that is found later.
TOP_LEVEL_NAMES = ("cluster", "pipeline", "scenarios", "sim", "storage")
_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class NameClash(ImportError):
    """A foreign package has the top-level name `name`; `path` is where it was found."""


def check_names(names: Sequence[str] = TOP_LEVEL_NAMES) -> None:
    """Raise NameClash for the first of `names` that Python would not import from beside the package `replog`.

    Nothing is imported. A folder without a package file counts only where no package of that name is found.
    """
    for name in names:
        found = _found(name)
        if found is None or _is_ours(name, found):
            continue
        raise NameClash(
            f"replog needs its own package {name!r} in {_HOME}, but Python finds another one first, {found}: rename "
            "that one, or use an environment or a working directory without it",
            name=name,
            path=found,
        )


def _found(name: str) -> str | None:
    """Returns the file or the folder that `import name` would use; None if there is none, or only a plain folder."""
    loaded = sys.modules.get(name)
    try:
        spec = loaded.__spec__ if loaded is not None else importlib.util.find_spec(name)
    except (AttributeError, ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    return os.path.abspath(spec.origin)


def _is_ours(name: str, path: str) -> bool:
    return os.path.realpath(os.path.dirname(path)) == os.path.realpath(os.path.join(_HOME, name))
