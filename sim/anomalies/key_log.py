"""All that a history has said of one log so far, as small as the later lines allow."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple, final

from sim.anomalies.offset_set import OffsetSet
from sim.anomalies.operations import NO_OFFSET, Value
from sim.anomalies.packed_map import PackedMap

_LONGEST_SHOWN = 24


def digest_of(value: Value) -> int:
    """Returns 64 bits of a value, never 0. Of a million values two are alike with a probability below 3 in 10^8."""
    if type(value) is int:
        digest = blake2b(b"%d" % value, digest_size=8, person=b"number")
    else:
        assert type(value) is str, value
        digest = blake2b(value.encode(errors="surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little") or 1


def shown(value: Value) -> str:
    """Returns a number, or a text in quotes, cut where it is long."""
    if isinstance(value, int):
        text = str(value)
        return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
    return repr(value) if len(value) <= _LONGEST_SHOWN else f"{value[:_LONGEST_SHOWN]!r}…"


class Awaited(NamedTuple):
    """A record that was sent and that nobody has read so far."""

    value: Value
    offset: int
    # Whether its send was answered: then it must be read in the end.
    is_acknowledged: bool
    process: str
    line: int


class Unsent(NamedTuple):
    """A record that was read, and of whose send the history has said nothing so far."""

    value: Value
    offset: int
    process: str
    line: int


@final
class KeyLog:
    """What is known of the log `key`.

    A record that was both sent and read is settled: of it remain two entries of packed maps, and no text.
    """

    __slots__ = ("awaited", "doubles", "key", "known", "lines", "places", "read_end", "refused", "unsent")

    def __init__(self, key: str) -> None:
        self.key = key
        # The first offset at which a value was seen, by the digest of the value.
        self.places = PackedMap()
        # Digests and further offsets of the values that were seen at several.
        self.doubles: set[tuple[int, int]] = set()
        # The line that first saw a value at an offset, by the offset and 1.
        self.lines = PackedMap()
        # The offsets that have a value.
        self.known = OffsetSet()
        # The line of the refused send of a value, by its digest.
        self.refused = PackedMap()
        # By digest of the value.
        self.awaited: dict[int, Awaited] = {}
        self.unsent: dict[int, Unsent] = {}
        # The offset after the greatest one that was read.
        self.read_end = 0

    def line_of(self, offset: int) -> int | None:
        """Returns the line that first saw a value at the offset, None if none did."""
        return self.lines.get(offset + 1)

    def place(self, digest: int, offset: int, line: int) -> None:
        """Remember that the value is at the offset, since that line."""
        assert offset > NO_OFFSET, offset
        if self.places.add(digest, offset) != offset:
            self.doubles.add((digest, offset))
        self.lines.add(offset + 1, line)
        self.known.add(offset)
        assert offset < self.known.end, (offset, self.known.end)
