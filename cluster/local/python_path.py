"""Chooses where the Python processes that a command starts look for modules: nodes, runs of a campaign, a read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).parent.parent.parent
# What is installed there is found in any case, and there is more than our packages.
_INSTALLED = ("site-packages", "dist-packages")


def python_path(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables to set in `environment` so that a process with `python -m` runs the code of this one.

    Without them it would import first from the current directory, where a user may have a `storage.py` or `queue.py`.
    """
    added = {"PYTHONSAFEPATH": "1"}
    if _ROOT.name not in _INSTALLED:
        named = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
        added["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *(each for each in named if each != str(_ROOT))])
    return added


@contextmanager
def own_python_path() -> Iterator[None]:
    """Sets these variables for the processes that this one starts within the block; takes them back at its end."""
    added = python_path(os.environ)
    before = {name: os.environ.get(name) for name in added}
    os.environ |= added
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
