"""How a simulated process ends: at once, inside whatever it was doing, without a last word on the disk."""

from __future__ import annotations

from typing import final


@final
class Dead(BaseException):
    """Raised in a call of a process that has ended.

    A BaseException, so that no `except Exception` of the product keeps a dead node going; the shell that
    runs the node is the only one to catch it.
    """


@final
class Life:
    """One run of one simulated process, from start to crash or stop; handles opened in it die with it.

    `sees_through` marks the life of an observer, whose reads no fault of the disk stops.
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
