"""The names of segments, of those that replace others too: each step begins once the one before it is durable."""

from __future__ import annotations

from collections.abc import Collection, Iterable

NAME = "swap-names"
ROLL_NAME = "roll-order"
REMOVAL_NAME = "removal-order"
REPLACED_NAME = "replaced-names"
# The end of the name of a file that is about to replace another.
TEMPORARY = ".tmp"
_SNAPSHOT = ".snapshot"
CLEANED, _SWAP, _DELETED, LOG = ".cleaned", ".swap", ".deleted", ".log"
_LIVE = (LOG, ".index", ".timeindex", ".txnindex")
# The ends of the names that are judged.
JUDGED = (CLEANED, _SWAP, *_LIVE)
# A change of names that is not durable yet: the name that is removed and the one that is added, empty for none.
Change = tuple[str, str]


def swap_finding(verb: str, name: str, pending: Iterable[Change], names: Iterable[str]) -> str:
    """Returns which change a file loses its name too early for; empty if there is none.

    `verb` is done to the file called `name`, in a directory of `names` with the changes `pending`. A power loss may
    keep any of these and lose the others (LL28). So new files are named in full before the first becomes a swap, the
    swap is whole before an old file goes, and the old files are gone before the first of the new ones is live.
    """
    is_cleaned, is_live, is_swap = [name.endswith(each) for each in (CLEANED, _LIVE, _SWAP)]
    is_rename = verb == "rename"
    is_last = is_cleaned and is_rename and name[:20] == _first_cleaned(names)
    for before, after in pending:
        is_too_early = False
        if is_cleaned and is_rename:
            is_too_early = after.endswith(CLEANED) or (is_last and _is_of_other(name, after, _SWAP))
        elif is_live:
            is_too_early = after.endswith(_SWAP)
        elif is_swap and is_rename:
            has_old = before.endswith(_LIVE) and (not after or after.endswith(_DELETED))
            is_too_early = has_old or (after.endswith(_LIVE) and _is_of_other(name, before, _SWAP))
        if is_too_early:
            change = f"{before or 'nothing'} became {after or 'nothing'}"
            return f"{verb} of {name}, although it is not durable that {change}"
    return ""


def roll_finding(name: str, pending: Iterable[Change], unsynced: Iterable[str]) -> str:
    """Returns why the new segment called `name` is made too early; empty if it is not.

    `pending` are the changes of names in its directory, `unsynced` the other segments whose bytes are not all durable.
    A power loss could keep the new segment and lose the end of the one before it: a hole that no start can see (RO3).
    """
    for other in unsynced:
        return f"{name} is made, although {other} is not synced"
    for _, after in pending:
        if after.endswith(LOG) and after != name:
            return f"{name} is made, although the name {after} is not durable"
    return ""


def unsafe_replacement(temporary: str, pending: Collection[Change]) -> str:
    """Returns the name that the file called `temporary` got by a change that is not durable yet; empty for none.

    A snapshot of producers has a name that no file had before: it counts once its segment is flushed, not before. What
    a job has written under a name of its own may be lost: the old checkpoint does as well.
    """
    name = temporary.removesuffix(TEMPORARY)
    return name if (temporary, name) in pending and not name.endswith(_SNAPSHOT) else ""


def removal_finding(name: str, pending: Iterable[Change], names: Iterable[str]) -> str:
    """Returns why the segment called `name` leaves its log out of order; empty if it does not.

    `names` are those of the directory before, `pending` the changes of them that are not durable. Segments leave a log
    from one of its ends (RT3, LS13), each durably before the next: a crash in between would leave a hole, which no
    start can tell from deleted records. A compaction, whose swaps are there, takes them from anywhere.
    """
    live = [each for each in names if each.endswith(LOG)]
    if name not in live or any(each.endswith(_SWAP) for each in names):
        return ""
    if name not in (min(live), max(live)):
        return f"{name} leaves the log before the others on one side of it: {', '.join(sorted(live))}"
    for before, after in pending:
        is_gone = not after or after.endswith(_DELETED)
        if before.endswith(LOG) and before != name and is_gone:
            return f"{name} leaves the log, although it is not durable that {before} has left it"
    return ""


def _first_cleaned(names: Iterable[str]) -> str:
    """Returns the base offset of the first cleaned segment as names have it; empty if there is none."""
    return min([each for each in names if each.endswith(CLEANED)], default="")[:20]


def _is_of_other(name: str, other: str, suffix: str) -> bool:
    """Whether the other name has the suffix, and is of a segment with another base offset."""
    return other.endswith(suffix) and other[:20] != name[:20]
