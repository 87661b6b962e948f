"""Whether a log may be used, and what happens to it when its disk fails. Rule AP16."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import final

from storage.errors import StorageError

logger = logging.getLogger(__name__)


@final
class Online:
    """The reason why one log is offline, None while it is not.

    After an OSError the log is offline for good: that call and every later one raises StorageError (AP16). A failed
    sync must never be tried again: the kernel may have dropped the pages.
    """

    __slots__ = ("_directory", "reason")

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.reason: str | None = None

    def check(self) -> None:
        """Raises StorageError if the log is offline."""
        if self.reason is not None:
            raise StorageError(f"{self._directory} is offline: {self.reason}")

    def during(self, action: str) -> _During:
        """Take the log offline, and raise StorageError, if the block raises an OSError."""
        return _During(self, action)

    def failed(self, action: str, error: OSError) -> StorageError:
        """Take the log offline because `action` met `error`. Returns the error to raise.

        `during` does this for a block. Call `failed` directly for work that runs elsewhere: a prepared flush, a
        compaction.
        """
        self.reason = f"{action} failed: {error}"
        logger.error("log offline: log=%s action=%s reason=%s", self._directory, action, error)
        return StorageError(f"{self._directory}: {self.reason}")

    def update_parent_directory(self, directory: str) -> None:
        """Take over the new name of the directory; only the remembered path changes."""
        self._directory = directory


@final
class _During:
    __slots__ = ("_action", "_online")

    def __init__(self, online: Online, action: str) -> None:
        self._online, self._action = online, action

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise self._online.failed(self._action, error) from error
