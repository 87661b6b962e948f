"""Bugs that a run can plant on purpose: what a bug is, how it is planted, and the catalogue by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from sim.bugs.catalogue import CATALOGUE
from sim.bugs.fencing import FENCING_BUGS
from sim.bugs.generations import GENERATIONS
from sim.bugs.metadata import METADATA_BUGS
from sim.bugs.planting import Bug, BugError, Make, Replacement, check_targets, planted, replaced
from sim.bugs.storage_bugs import STORAGE_BUGS
from sim.bugs.tickets import TICKETS

__all__ = [
    "Bug",
    "BugError",
    "Make",
    "Replacement",
    "bugs",
    "check_targets",
    "install",
    "planted",
    "replaced",
]


def bugs() -> dict[str, Bug]:
    """Returns every bug of the catalogue by its name."""
    known = (*CATALOGUE, *METADATA_BUGS, *FENCING_BUGS, *STORAGE_BUGS, *GENERATIONS)
    return {bug.name: replace(bug, ticket=TICKETS.get(bug.name, "")) for bug in known}


@contextmanager
def install(name: str) -> Iterator[None]:
    """Plant the bug called `name` until the block ends. Raises BugError when there is none of that name."""
    known = bugs()
    if name not in known:
        raise BugError(f"unknown bug {name!r}; known are {', '.join(sorted(known))}")
    with planted(known[name]):
        yield
