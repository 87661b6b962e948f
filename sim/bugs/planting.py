"""Plants mistakes in the product from outside, for the length of a run.

A bug is a set of replacements of named methods. The product's code does not know it. Where a target no longer exists,
planting the bug raises an error instead of testing nothing.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.machinery import ExtensionFileLoader

Make = Callable[[Callable[..., object]], Callable[..., object]]


class BugError(Exception):
    """An unknown bug, or a bug whose target no longer exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The replacement of one method by another: `make` takes the original and returns its replacement.

    `target` is `module:Class.method` or `module:function`.
    """

    target: str
    make: Make


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A named mistake. `story` says what is wrong, `found_by` names the scenario or workload that shows it.

    `ticket` names where Kafka had the mistake or ruled it out: an issue or a proposal; empty where there is none.
    """

    name: str
    story: str
    replacements: tuple[Replacement, ...]
    found_by: str = ""
    ticket: str = ""


@contextmanager
def replaced(replacement: Replacement) -> Iterator[None]:
    """Put the replacement in place until the block ends. Raises BugError for a target that is missing or compiled."""
    module_name, _, path = replacement.target.partition(":")
    *owners, name = path.split(".")
    try:
        owner: object = importlib.import_module(module_name)
        for each in owners:
            owner = getattr(owner, each)
        original = vars(owner)[name]
    except (ImportError, AttributeError, KeyError) as error:
        raise BugError(f"the bug's target {replacement.target} does not exist: {error}") from error
    _check_interpreted(owner, original)
    function = original.__func__ if isinstance(original, (staticmethod, classmethod)) else original
    if not callable(function):
        raise BugError(f"the bug's target {replacement.target} is neither a method nor a function")
    planted: object = replacement.make(function)
    if isinstance(original, (staticmethod, classmethod)):
        planted = type(original)(planted)  # type: ignore[arg-type]
    setattr(owner, name, planted)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _check_interpreted(owner: object, original: object) -> None:
    """Raise BugError for compiled code: its functions call each other directly, and would not see the bug."""
    name = owner.__module__ if isinstance(owner, type) else str(getattr(original, "__module__", ""))
    if isinstance(getattr(sys.modules.get(name), "__loader__", None), ExtensionFileLoader):
        raise BugError(
            f"{name} is compiled, and a bug can be planted into interpreted code only: "
            "set REPLOG_INTERPRETED=1"
        )


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Put all replacements of the bug in place until the block ends, or none of them. Raises BugError."""
    with ExitStack() as stack:
        for replacement in bug.replacements:
            stack.enter_context(replaced(replacement))
        yield


def check_targets(bug: Bug) -> None:
    """Raise BugError unless every target of the bug exists."""
    with planted(bug):
        pass
