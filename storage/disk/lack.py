"""A lack of descriptors: it fails one call, which has changed nothing, and no log or directory with it. Rule AP16."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final, Protocol

from storage.disk.handle_pool import is_out_of_handles
from storage.errors import OutOfHandles

# A change has at most so many files open at once: a `.log`, its indexes with their maps, a checkpoint or snapshot, and
# the directory.
DESCRIPTORS_OF_A_CHANGE: Final = 8


class Reserving(Protocol):
    """The part of a `FileSystem` that keeps descriptors."""

    def reserved(self, count: int) -> AbstractContextManager[None]:
        """Keep `count` descriptors within the block."""


def is_lack(error: BaseException) -> bool:
    """Whether `error` says that a call failed for want of a descriptor, and no log with it."""
    return isinstance(error, OutOfHandles) or is_out_of_handles(error)


@contextmanager
def refusing_lack(action: str) -> Iterator[None]:
    """Raise OutOfHandles in place of the OSError of a block that lacked a descriptor; `action` says what was not done.

    Only for a block that has changed nothing then, or that may be run again.
    """
    try:
        yield
    except OSError as error:
        if not is_out_of_handles(error):
            raise
        raise OutOfHandles(f"{action}: {error}") from error


@contextmanager
def reserving(file_system: Reserving, directory: str) -> Iterator[None]:
    """Keep the descriptors that a change of several files in `directory` needs, within the block.

    Raises OutOfHandles, with the block not entered, if there are too few.
    """
    with ExitStack() as stack:
        with refusing_lack(f"{directory} is not changed"):
            stack.enter_context(file_system.reserved(DESCRIPTORS_OF_A_CHANGE))
        yield
