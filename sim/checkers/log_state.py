"""Judges what an open log holds in memory by an independent reading of its files (a part of rule R3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

NAME = "log-state"
_NO_TIME = -1


class Timed(NamedTuple):
    """The last offset of a batch, and the greatest timestamp of its records."""

    last_offset: int
    newest_ms: int


class Greatest(NamedTuple):
    """The greatest timestamp that a segment holds, and the last offset of the earliest batch that has it."""

    newest_ms: int
    offset: int


def greatest_of(batches: Iterable[Timed]) -> Greatest:
    """Returns what a segment of these batches has to hold; -1 and -1 where no record has a timestamp."""
    found = Greatest(_NO_TIME, -1)
    for batch in batches:
        if batch.newest_ms > found.newest_ms:
            found = Greatest(batch.newest_ms, batch.last_offset)
    return found


def greatest_findings(
    base_offset: int,
    held: Greatest,
    kept_until_ms: int,
    batches: Iterable[Timed],
    *,
    knows_times: bool = True,
) -> Iterator[str]:
    """Yields what is wrong with the greatest timestamp of the segment that begins at `base_offset`.

    It is that of no record, or of a later batch than the first that has it: a look-up by time would begin too late.
    What retention counts from, `kept_until_ms`, is below it: records would be deleted before their time. A time index
    that has lost entries may make the segment hold an earlier timestamp, as in Kafka; retention counts from the
    greatest all the same. A segment that does not know its earlier times any more (`knows_times`) has a batch of that
    time, not the first one.
    """
    if held.newest_ms < 0:
        return
    batches = list(batches)
    found, timed = (
        greatest_of(batches),
        f"the segment at {base_offset} holds {tuple(held)} as its latest time",
    )
    if held.newest_ms > found.newest_ms:
        yield f"{timed}; its files have {tuple(found)}"
    elif held.newest_ms == found.newest_ms and held.offset != found.offset:
        # Where earlier times were forgotten, any batch of that time may be the first one since then.
        ends = [each.last_offset for each in batches if each.newest_ms == held.newest_ms]
        if knows_times or held.offset not in ends:
            yield f"{timed}; the first batch of that time ends at {found.offset}"
    if kept_until_ms < found.newest_ms:
        yield f"the segment at {base_offset} counts its age from {kept_until_ms}; its latest time is {found.newest_ms}"


def start_findings(log_start: int, checkpoint: int, first_base: int) -> Iterator[str]:
    """Yields where a log that was just started begins: not before its files, nor before what its checkpoint says."""
    least = max(checkpoint, first_base)
    if log_start < least:
        yield f"begins at {log_start} after a start; its checkpoint says {checkpoint}, its files {first_base}"


def epoch_findings(
    starts: Sequence[tuple[int, int]], log_start: int, log_end: int, leads: int
) -> Iterator[str]:
    """Yields an epoch without a record that a log has kept through a start; `leads`: the one in which it leads since.

    `starts` are epochs with their start offsets. An epoch that the log does not have would be told to followers. Of an
    epoch whose records were deleted by retention, the start of the log stays (EP7): where all were, the log ends there.
    """
    for number, (epoch, start) in enumerate(starts):
        is_left = number == 0 and start == log_start
        if start >= log_end and epoch != leads and not is_left:
            yield f"knows epoch {epoch} from offset {start} on after a start; its log ends at {log_end}"


def appended_epoch_findings(
    batches: Iterable[tuple[int, int]], epoch_for_offset: Callable[[int], int | None]
) -> Iterator[str]:
    """Yields an epoch among the batches of an append which the log does not know there (AP9), also a compacted one.

    `batches` are their base offsets and epochs, in order. What would be told of its end is that of another epoch.
    """
    before = None
    for base_offset, epoch in batches:
        if epoch != before and (known := epoch_for_offset(base_offset)) != epoch:
            yield f"appends a batch of epoch {epoch} at {base_offset}; it knows epoch {known} there"
        before = epoch


def cleaned_findings(cleaned_end: int, log_end: int) -> Iterator[str]:
    """Yields that the cleaner's checkpoint is beyond the end of its log: what follows would not be cleaned (RT16)."""
    if cleaned_end > log_end:
        yield f"counts as cleaned below {cleaned_end}; its log ends at {log_end}"


def written_epoch_findings(held: Sequence[int], written: Sequence[int] | None) -> Iterator[str]:
    """Yields an epoch above all that a log knows which its file has: a start would take it for that of other records.

    `written` are the epochs in the file as a start would read it, None where that cannot be read. Those that retention
    has dropped may be there for a while, as may none that are new.
    """
    latest = max(held, default=-1)
    if written and written[-1] > latest:
        yield f"knows no epoch above {latest}; its file has epoch {written[-1]}"


def total_findings(held_bytes: int, file_bytes: int) -> Iterator[str]:
    """Yields that a log counts other bytes than its segments have: retention by size would take too much (RT6)."""
    if held_bytes != file_bytes:
        yield f"counts {held_bytes} bytes in its segments; their files have {file_bytes}"


def index_findings(kind: str, last_offset: int, log_end: int) -> Iterator[str]:
    """Yields that the last entry of an index, of this kind, is of a record that its log does not have (IX16, IX23)."""
    if last_offset >= log_end:
        yield f"ends at {log_end}; its {kind} index has an entry for offset {last_offset}"


def topic_id_findings(held: str, written: Sequence[str | None]) -> Iterator[str]:
    """Yields that no directory of a log's name names its topic (KIP-516); `written` are the ids in all of them.

    A start would take the log for that of another topic of the name, which was created in the meantime.
    """
    if held not in written:
        named = ", ".join([each for each in written if each])
        yield f"is of the topic with id {held}; its directory names {named or 'none'}"


def snapshot_findings(names: Iterable[str], log_end: int) -> Iterator[str]:
    """Yields each snapshot of producers, by its name, that is of more records than the log has (PS16)."""
    for name in names:
        if int(name.partition(".")[0]) > log_end:
            yield f"ends at {log_end}; it has a snapshot of its producers {name}"


def age_findings(first_ms: int, newest_ms: int, most_ms: int) -> Iterator[str]:
    """Yields that an append has a record too late for its segment: it had to begin a new one (LS4, LS5).

    `first_ms` is the latest time of the batch that the segment begins with, `most_ms` the age at which it rolls.
    """
    if first_ms >= 0 and newest_ms - first_ms > most_ms:
        yield (
            f"appends a record {newest_ms - first_ms} ms later than those that its segment begins with; it rolls at "
            f"{most_ms} ms"
        )


def size_findings(start: int, end: int, segment_bytes: int) -> Iterator[str]:
    """Yields that an append has made its segment larger than `segment.bytes`: it had to begin a new one (LS4).

    It lies from position `start` to `end` (exclusive). An empty segment takes a set of any size.
    """
    if start > 0 and end > segment_bytes:
        yield f"appends up to position {end} of a segment; segment.bytes is {segment_bytes}"
