"""Mistakes put into the product from outside, for as long as a run lasts.

A bug is a set of replacements of named methods. Product code knows nothing of it. Where a target no longer exists,
planting the bug fails loudly instead of testing nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

Make = Callable[[Callable[..., object]], Callable[..., object]]


class BugError(Exception):
    """An unknown bug, or one whose target no longer exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """One method replaced by another: `make` takes the original and returns what replaces it.

    `target` is `module:Class.method` or `module:function`.
    """

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
    """Put the replacement in until the block ends. Raises BugError when its target does not exist."""
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
    """Put all replacements of the bug in until the block ends, or none. Raises BugError."""
    with ExitStack() as stack:
        for replacement in bug.replacements:
            stack.enter_context(replaced(replacement))
        yield
