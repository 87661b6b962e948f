"""What a line of the world says of a run: a fault begins, a fault ends, or neither."""

from __future__ import annotations

import re
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, final


@final
class Told(Enum):
    """What a line of the world is about."""

    FAULT = "fault"
    END = "end"
    NOTE = "note"


class Lasting(NamedTuple):
    """A kind of fault with the words of its begin and of its end; `who` is its node, or its links if `is_of_links`."""

    what: str
    begin: re.Pattern[str]
    end: re.Pattern[str]
    is_of_links: bool = False


def _of_node(what: str, begin: str, end: str, *, is_of_links: bool = False) -> Lasting:
    who = "(?P<who>.+)" if is_of_links else r"(?P<who>[a-z]+(?:-\d+)?)"
    begins, ends = (re.compile(each.replace("WHO", who)) for each in (begin, end))
    return Lasting(what, begins, ends, is_of_links)


_of_links: Final = partial(_of_node, is_of_links=True)


LASTING: Final = (
    _of_node("paused", r"pause WHO(?:, the .+)?", r"WHO goes on"),
    _of_node("slow disk", r"the disk of WHO takes .+ longer for each call", r"the disk of WHO is fast again"),
    _of_node("disk hangs", r"the disk of WHO hangs", r"the disk of WHO hangs no more"),
    _of_node("disk fails", r"the disk of WHO fails with .+", r"the disk of WHO works again"),
    _of_node(
        "no descriptors", r"WHO has (?:few descriptors|no descriptor) left", r"WHO has descriptors again"
    ),
    _of_node("syncs lie", r"syncs of WHO write nothing from now on", r"syncs of WHO write again"),
    _of_node(
        "writes go astray", r"\d+% of what WHO writes (?:is lost|lands in another place)",
        r"what WHO writes arrives again",
    ),
    _of_node("slow steps", r"each step of WHO takes .+ longer", r"WHO is fast again"),
    _of_node("clock stands", r"the clock of WHO stands still", r"the clock of WHO runs again, .+"),
    _of_node("no metadata", r"WHO replays no metadata", r"WHO replays metadata again"),
    _of_links("cut", r"cut WHO", r"heal WHO"),
    _of_links("slow", r"slow WHO by [\d.]+ ms", r"WHO is fast again"),
    _of_links("loss", r"lose \d+%(?: of \w+(?: and \w+)*)? on WHO", r"WHO loses nothing any more"),
    _of_links("clogged", r"clog WHO", r"unclog WHO"),
    _of_links("narrow", r"WHO carries \d+ bytes a second", r"WHO is wide again"),
    _of_links(
        "flipped bits",
        r"flip a bit in \d+% of the messages(?: with records|, so that they are none,|, anywhere,) on WHO",
        r"WHO flips no bits any more",
    ),
)  # fmt: skip

# Faults of a moment, and changes that a step makes.
_MOMENTS: Final = (
    r"(?:kill|kill, now and in the next start,) .+",
    r"will kill,? .+",
    r"stop, in order, .+",
    r"restart one after the other: .+",
    r".+ ends inside its start",
    r"power loss \(keep \w+\) at .+",
    r".+ loses power, and its disk is .+",
    r"a death inside a change on the disk waits for .+",
    r".+ (?:dies|loses power \(keep \w+\)) inside a (?:change|rename).*",
    r"a partial write waits for .+",
    r".+ (?:writes|will write) \d+ bytes of its next batch of .+",
    r"(?:the log directory of .+|log directory \d+) (?:breaks|will break, before .+,) at .+",
    r"the next sync fails at .+",
    r"a sync of .+ fails",
    r"rot on the disk of .+",
    r"a write of .+ landed in .+",
    r"truncate .+ of .+ to \d+",
    r"hang up .+, without a word",
    r"the clock of .+ is set (?:ahead|back) by .+",
    r"(?:create|delete|alter) .+",
)
# What mends a node; the ends of lasting faults are above.
_ENDS: Final = (
    r"start .+ again",
    r"the machine of .+ restarts, because .+",
    r".+ cannot start from its damaged disk, .+",
)
_NODES: Final = r"(?:(?:broker|producer|consumer)-\d+|controller)"
_NOTES: Final = (
    r"VIOLATED .+",
    r"EXCUSED .+",
    r"heal everything; .+",
    r"every replica agrees",
    r"a bit has flipped that nobody can notice: .+",
    r".+: it is down already",
    rf".+ is {_NODES}(?:, {_NODES})*(?:, .+)?",
    r"step \d+ (?:gave up|is skipped).+",
    r"not as simulated: .+",
    r"the disk of .+ is saved",
    r".+ has no log of .+ to write to",
    r".+ has started before its end came",
    r"no broker is left to restart",
    r".+ is not in sync again after .+ s",
)


# What a line is about is the first of these of which a pattern is the whole line. What a violation or an error says may
# have more than one line.
_MEANINGS: Final = (
    (Told.NOTE, [re.compile(each, re.DOTALL) for each in _NOTES]),
    (Told.END, [each.end for each in LASTING] + [re.compile(each) for each in _ENDS]),
    (Told.FAULT, [each.begin for each in LASTING] + [re.compile(each) for each in _MOMENTS]),
)


def told_as(what: str) -> Told | None:
    """Returns what a line of the world is about; None for words that no step tells."""
    for told, patterns in _MEANINGS:
        if any(each.fullmatch(what) for each in patterns):
            return told
    return None


def is_fault(what: str) -> bool:
    """Whether a line of the world tells of a fault that begins or strikes; unknown words are taken for one."""
    return told_as(what) not in (Told.END, Told.NOTE)
