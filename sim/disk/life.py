"""The life of a simulated process, which may end inside any call, after which the process changes nothing on disk."""

from __future__ import annotations

from typing import final


@final
class Dead(BaseException):
    """Raised in a call of a process that has ended.

    It is a BaseException, so that no `except Exception` of the product keeps a dead node running. Only the shell that
    runs the node catches it.
    """


@final
class Life:
    """One run of one simulated process, from its start to a crash or stop; handles opened in it die with it.

    `sees_through` marks an observer, whose reads no fault of the disk strikes.
    """

    __slots__ = ("dead", "name", "sees_through")

    def __init__(self, name: str = "", *, sees_through: bool = False) -> None:
        self.name, self.sees_through = name, sees_through
        self.dead = False

    def kill(self) -> None:
        self.dead = True

    def check_alive(self) -> None:
        """Raises Dead after `kill`."""
        if self.dead:
            raise Dead(self.name)
