"""A digest of every draw of a run: two runs with the same trace may still have drawn differently."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

from sim.bugs.planting import Replacement, replaced

_MASK = (1 << 64) - 1
_PRIME = 0x100000001B3
# Every draw ends in one of these.
_SOURCES = ("sim.world.streams:Stream.bits", "storage.draws:Draws.bits")


@final
class DrawDigest:
    """The digest, and the number of draws in it."""

    def __init__(self) -> None:
        self.value = 0
        self.count = 0

    def _observing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def bits(*arguments: object) -> int:
            drawn: int = original(*arguments)
            self.value = (self.value * _PRIME ^ drawn) & _MASK
            self.count += 1
            return drawn

        return bits

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Add every draw of the block to the digest."""
        first, second = (Replacement(target=source, make=self._observing) for source in _SOURCES)
        with replaced(first), replaced(second):
            yield
