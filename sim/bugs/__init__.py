"""Mistakes put into the product from outside, for as long as a run lasts.

A bug is a set of replacements of named methods. Product code knows nothing of it; when a target is gone, planting the
bug fails loudly instead of testing nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

Make = Callable[[Callable[..., object]], Callable[..., object]]


class BugError(Exception):
    """An unknown bug, or one whose target is no longer there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """`target` is `module:Class.method` or `module:function`; `make` gets the original and gives what replaces it."""

    target: str
    make: Make


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """`story` says what is wrong; `found_by` which scenario, or which workload of a sweep, shows it."""

    name: str
    story: str
    replacements: tuple[Replacement, ...]
    found_by: str = ""


@contextmanager
def replaced(replacement: Replacement) -> Iterator[None]:
    """Raises BugError when the target is gone."""
    module_name, _, path = replacement.target.partition(":")
    *owners, name = path.split(".")
    try:
        owner: object = importlib.import_module(module_name)
        for each in owners:
            owner = getattr(owner, each)
        original = vars(owner)[name]
    except (ImportError, AttributeError, KeyError) as error:
        raise BugError(f"{replacement.target} is gone: {error}") from error
    function = original.__func__ if isinstance(original, (staticmethod, classmethod)) else original
    if not callable(function):
        raise BugError(f"{replacement.target} is no method")
    planted: object = replacement.make(function)
    if isinstance(original, (staticmethod, classmethod)):
        planted = type(original)(planted)  # type: ignore[arg-type]
    setattr(owner, name, planted)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """All replacements are in until the block ends, or none. Raises BugError."""
    with ExitStack() as stack:
        for replacement in bug.replacements:
            stack.enter_context(replaced(replacement))
        yield


def bugs() -> dict[str, Bug]:
    """All, by name."""
    from sim.bugs.catalogue import CATALOGUE

    return {bug.name: bug for bug in CATALOGUE}


@contextmanager
def install(name: str) -> Iterator[None]:
    """The bug of that name is in until the block ends. Raises BugError."""
    known = bugs()
    if name not in known:
        raise BugError(f"unknown bug {name!r}: known are {', '.join(sorted(known))}")
    with planted(known[name]):
        yield
