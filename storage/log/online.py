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
    sync must never be tried again: the kernel may have dropped the pages. The same holds after any other error in the
    midst of a change, which is raised as it is: what the log then knows may differ from what its files hold.
    """

    __slots__ = ("_directory", "reason")

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.reason: str | None = None

    def check(self) -> None:
        """Raises StorageError if the log is offline."""
        if self.reason is not None:
            raise StorageError(f"{self._directory} is offline: {self.reason}")

    def during(self, action: str, *, refuses: bool = True) -> _During:
        """Take the log offline, and raise StorageError, if the block raises an OSError.

        The log goes offline for any other error too, which is raised as it is. If the block `refuses`, the exception
        is a StorageError, by which it says that it has changed nothing.
        """
        return _During(self, action, refuses)

    def failed(self, action: str, error: Exception) -> StorageError:
        """Take the log offline because `action` met `error`. Returns the error to raise for an OSError.

        `during` does this for a block. Call `failed` directly for work that runs elsewhere: a prepared flush, a
        compaction.
        """
        shown = error if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        self.reason = f"{action} failed: {shown}"
        logger.error("log offline: log=%s action=%s reason=%s", self._directory, action, shown)
        return StorageError(f"{self._directory}: {self.reason}")

    def fail_with_directory(self, reason: str) -> None:
        """Take the log offline with its log directory, which reports it once for all its logs."""
        assert reason, self._directory
        if self.reason is None:
            self.reason = f"log directory failed: {reason}"

    def update_parent_directory(self, directory: str) -> None:
        """Take over the new name of the directory; only the remembered path changes."""
        self._directory = directory


@final
class _During:
    __slots__ = ("_action", "_online", "_refuses")

    def __init__(self, online: Online, action: str, refuses: bool) -> None:
        self._online, self._action, self._refuses = online, action, refuses

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise self._online.failed(self._action, error) from error
        is_refusal = self._refuses and isinstance(error, StorageError)
        # A crash unwinds as another BaseException, which nobody may answer.
        if isinstance(error, Exception) and not is_refusal and self._online.reason is None:
            self._online.failed(self._action, error)
