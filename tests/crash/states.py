"""The states that a crash can leave. Each has a name from which it can be made again.

    append/12/3+5            before call 12 of the workload `append` power fails; of what is pending, 3 and 5 survive
    append/12/3+5~5:short    and only a part of the write 5
    append/12/all            the process dies there, the page cache stays, and what is pending stays pending
    append/12/3+5/7/-        then power fails again before call 7 of the next start, and nothing survives
    append/12/3+5/w/7        or after the started process has appended a batch; of what is pending, 7 survives

The numbers are those of `SimDisk.pending_sequences`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sim.disk import SimDisk, Tear
from storage.draws import Draws
from storage.segment.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX

# Above this number, the sets of survivors are sampled.
MOST_PENDING = 12
SAMPLED_SETS = 200
# A value in the place of a call of the start.
AFTER_AN_APPEND = -1


@dataclass(frozen=True, slots=True)
class Loss:
    """What survives of the pending changes. `kept` is None if all of it stays, still pending."""

    kept: tuple[int, ...] | None
    tear: tuple[int, Tear] | None = None

    def apply(self, disk: SimDisk) -> None:
        if self.kept is None:
            disk.crash_process()
        else:
            disk.lose_power_keeping(self.kept, None if self.tear is None else dict((self.tear,)))

    def __str__(self) -> str:
        if self.kept is None:
            return "all"
        text = "+".join(map(str, self.kept)) or "-"
        return text if self.tear is None else f"{text}~{self.tear[0]}:{self.tear[1].value}"

    @classmethod
    def parse(cls, text: str) -> Loss:
        """Read the text of a loss. Raises ValueError for any other text."""
        if text == "all":
            return cls(None)
        kept, _, torn = text.partition("~")
        number, _, shape = torn.partition(":")
        numbers = () if kept == "-" else tuple(map(int, kept.split("+")))
        return cls(numbers, (int(number), Tear(shape)) if torn else None)


@dataclass(frozen=True, slots=True)
class StateName:
    """The name of a state: the workload, the crash point, its loss, and a second crash if there is one."""

    workload: str
    point: int
    loss: Loss
    inner_call: int | None = None
    inner_loss: Loss | None = None

    def within(self, call: int, loss: Loss) -> StateName:
        """Return the name of a crash inside the start that follows this state."""
        return replace(self, inner_call=call, inner_loss=loss)

    def __str__(self) -> str:
        outer = f"{self.workload}/{self.point}/{self.loss}"
        if self.inner_call is None:
            return outer
        call = "w" if self.inner_call == AFTER_AN_APPEND else str(self.inner_call)
        return f"{outer}/{call}/{self.inner_loss}"

    @classmethod
    def parse(cls, text: str) -> StateName:
        """Read a name. Raises ValueError for any other text."""
        workload, point, loss, *inner = text.split("/")
        name = cls(workload, int(point), Loss.parse(loss))
        if not inner:
            return name
        call, inner_loss = inner
        return name.within(AFTER_AN_APPEND if call == "w" else int(call), Loss.parse(inner_loss))


def survivor_sets(pending: Sequence[int], draws: Draws, *identity: int) -> Iterator[tuple[int, ...]]:
    """Yield sets of survivors: every subset of at most `MOST_PENDING` changes.

    Of more changes: every prefix, each change alone, each one left out, and a sample.
    """
    count = len(pending)
    if count <= MOST_PENDING:
        masks: list[int] = list(range(1 << count))
    else:
        whole = (1 << count) - 1
        masks = [(1 << length) - 1 for length in range(count + 1)]
        masks += [mask for bit in range(count) for mask in (1 << bit, whole ^ (1 << bit))]
        masks += [draws.bits("survivors", *identity, number) & whole for number in range(SAMPLED_SETS)]
    for mask in dict.fromkeys(masks):
        yield tuple(sequence for bit, sequence in enumerate(pending) if mask >> bit & 1)


def name_losses(disk: SimDisk, pending: Sequence[int]) -> Iterator[Loss]:
    """Yield losses of whole kinds of names: of the names with one suffix all are kept or all are lost.

    A file system may write the live names of a swap and lose the `.deleted` ones that came before them, or the
    other way round. Where much is pending, no sampled set is likely to be one of these.
    """
    kinds: dict[str, set[int]] = {}
    for sequence, name in disk.pending_names().items():
        _, _, kind = name.rpartition(".")
        kinds.setdefault(
            kind if f".{kind}" in (DELETED_SUFFIX, SWAP_SUFFIX, CLEANED_SUFFIX) else "", set()
        ).add(sequence)
    if len(kinds) < 2:
        return
    for names in kinds.values():
        yield Loss(tuple(sequence for sequence in pending if sequence not in names))
        yield Loss(tuple(sequence for sequence in pending if sequence in names))


def torn_losses(disk: SimDisk, pending: Sequence[int]) -> Iterator[Loss]:
    """Yield each pending write torn in each shape: with all else kept, with what came before it, and alone."""
    for torn in disk.pending_writes():
        before = tuple(sequence for sequence in pending if sequence <= torn)
        for kept in dict.fromkeys((tuple(pending), before, (torn,))):
            for shape in Tear:
                yield Loss(kept, (torn, shape))


def few_losses(disk: SimDisk) -> list[Loss]:
    """Yield a few losses for a crash inside a start: nothing, all, all but one, one alone, and a process death."""
    pending = tuple(disk.pending_sequences())
    kept = [(), pending]
    for sequence in pending if len(pending) <= 6 else ():
        kept += [(sequence,), tuple(other for other in pending if other != sequence)]
    losses = [Loss(each) for each in dict.fromkeys(kept)]
    return [*losses, Loss(None)] if pending else losses
