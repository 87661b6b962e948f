"""Rules about the order in which one client's records come: none left out, none before an earlier one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple, final

from sim.anomalies.key_log import KeyLog
from sim.anomalies.operations import NO_OFFSET, Assigned, Moved
from sim.anomalies.rules import Answered, Judge, Placed, Poll, Report, Rule
from sim.hosts.history import Outcome

# A client and a log.
Place = tuple[str, str]


class Step(NamedTuple):
    """A client's move from one offset to the next one, and the line that made it."""

    process: str
    before: int
    offset: int
    line: int
    # Whether the client could be moved at any time when it made the step: between operations, with a subscription.
    is_free: bool = False


@final
class Positions:
    """The place of each client in each log: inside one operation if `is_inside`, else from one to the next."""

    def __init__(self, *, is_inside: bool) -> None:
        self._is_inside = is_inside
        # By client and log.
        self._at: dict[str, dict[str, int]] = {}
        # The operation that was seen last, by its line, and the last offsets that it has read so far, by log.
        self._line = 0
        self._within: dict[str, int] = {}
        self._subscribed: set[str] = set()

    def move(self, moved: Moved) -> None:
        """Forget where the client is in the logs in which it may go on anywhere."""
        at = self._at.get(moved.process, {})
        if isinstance(moved, Assigned):
            if moved.is_subscription:
                self._subscribed.add(moved.process)
            self._at[moved.process] = {key: at[key] for key in moved.keys if key in at}
            return
        for key in moved.keys:
            at.pop(key, None)

    def steps(self, log: KeyLog, poll: Poll) -> list[Step]:
        """Returns the client's moves, without those to the next offset, which almost all are."""
        records, process, line = poll.polled.records, poll.operation.process, poll.operation.line
        found: list[Step] = []
        if not records:
            return found
        if line != self._line:
            self._line = line
            self._within.clear()
        before = self._within.get(log.key)
        self._within[log.key] = records[-1][0]
        if self._is_inside:
            for offset, _ in records:
                if before is not None and offset != before + 1:
                    found.append(Step(process, before, offset, line))
                before = offset
            return found
        at, first = self._at.setdefault(process, {}), records[0][0]
        last = at.get(log.key)
        # A later part of an operation goes on inside it.
        if before is None and last is not None and first != last + 1:
            found.append(Step(process, last, first, line, process in self._subscribed))
        if poll.operation.outcome is Outcome.OK:
            at[log.key] = records[-1][0]
        else:
            # A poll of unknown outcome may have been undone.
            at.pop(log.key, None)
        return found


@final
class _OpenSteps:
    """The steps over offsets none of which has a value so far.

    Both ends of a step have one. So all steps over an offset begin at the last offset before it that has a value: no
    others are looked at, however many holes of a log are never filled.
    """

    def __init__(self) -> None:
        # By log and start.
        self._steps: dict[str, dict[int, list[Step]]] = {}

    def add(self, log: KeyLog, step: Step) -> None:
        assert step.before in log.known, (log.key, step)
        self._steps.setdefault(log.key, {}).setdefault(step.before, []).append(step)

    def over(self, log: KeyLog, offset: int) -> list[Step]:
        """Returns the steps over an offset, in their order, and forgets them; `log` has no value there yet."""
        steps = self._steps.get(log.key)
        start = log.known.last_before(offset) if steps else None
        if steps is None or start is None or start not in steps:
            return []
        found = steps.pop(start)
        # The end of a step of sends gets its value right after the step.
        if ending := [step for step in found if step.offset <= offset]:
            steps[start] = ending
        return [step for step in found if step.offset > offset]


class _Skips(Rule):
    """Reports the steps over an offset that has a value, also if the history shows that value later."""

    word: ClassVar[str]
    is_inside: ClassVar[bool]
    is_allowed: ClassVar[bool] = False

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._positions = Positions(is_inside=self.is_inside)
        self._open = _OpenSteps()

    def judges(self) -> Mapping[type, Judge]:
        return {Poll: self._on_poll, Placed: self._on_placed}

    def on_moved(self, moved: Moved) -> None:
        self._positions.move(moved)

    def _on_poll(self, log: KeyLog, poll: Poll) -> None:
        for step in self._positions.steps(log, poll):
            self._on_step(log, step)

    def _on_step(self, log: KeyLog, step: Step) -> None:
        if step.offset <= step.before + 1:
            return
        skipped = log.known.first_in(step.before + 1, step.offset)
        if skipped is None:
            self._open.add(log, step)
        else:
            self._skipped(log, step, skipped, f"line {log.line_of(skipped)}")

    def _on_placed(self, log: KeyLog, placed: Placed) -> None:
        for step in self._open.over(log, placed.offset):
            self._skipped(log, step, placed.offset, f"line {placed.operation.line}")

    def _skipped(self, log: KeyLog, step: Step, offset: int, shown_by: str) -> None:
        self.found(
            log,
            step.line,
            f"{step.process} {self.word} offset {step.before} and then {step.offset} (line {step.line}), "
            f"and not {offset}, which has a value by {shown_by}",
            is_allowed=self.is_allowed or step.is_free,
        )


@final
class PollSkip(_Skips):
    """A client's poll goes on where the poll before ended, over no record."""

    name, word, is_inside = "poll-skip", "read", False


@final
class IntPollSkip(_Skips):
    """The records of one poll leave none out."""

    name, word, is_inside = "int-poll-skip", "read", True


class _BackSteps(Rule):
    """Reports steps that stay or go back."""

    is_inside: ClassVar[bool]

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._positions = Positions(is_inside=self.is_inside)

    def judges(self) -> Mapping[type, Judge]:
        return {Poll: self._on_poll}

    def on_moved(self, moved: Moved) -> None:
        self._positions.move(moved)

    def _on_poll(self, log: KeyLog, poll: Poll) -> None:
        for step in self._positions.steps(log, poll):
            if step.offset <= step.before:
                self.found(
                    log,
                    step.line,
                    f"{step.process} read offset {step.before} and then {step.offset} (line {step.line})",
                    is_allowed=step.is_free,
                )


@final
class NonmonotonicPoll(_BackSteps):
    """A client's poll begins after the last record of the poll before."""

    name, is_inside = "nonmonotonic-poll", False


@final
class IntNonmonotonicPoll(_BackSteps):
    """The offsets of one poll rise."""

    name, is_inside = "int-nonmonotonic-poll", True


class _Last(NamedTuple):
    """The last answered send of a client to a log."""

    digest: int
    offset: int
    line: int


@final
class _Pair:
    """Two successive sends of a client to a log; an offset is NO_OFFSET as long as nobody knows it."""

    __slots__ = ("before", "digest", "line", "offset", "process")

    def __init__(self, process: str, last: _Last, answered: Answered) -> None:
        self.process, self.line = process, answered.operation.line
        self.before, self.offset = last.offset, answered.offset
        # Of the first one.
        self.digest = last.digest

    def place(self, digest: int, offset: int) -> bool:
        """Take the offset of one of them. Returns whether both are known now."""
        assert offset != NO_OFFSET, self.line
        if digest == self.digest:
            self.before = offset
        else:
            self.offset = offset
        return NO_OFFSET not in (self.before, self.offset)


class _Sends(Rule):
    """Follows the offsets of each client's answered sends to each log, also of those that only a reader shows.

    A subclass judges pairs of sends: in one operation, or in successive ones. A record that nobody reads, and whose
    answer had no offset, is in no order.
    """

    is_inside: ClassVar[bool]

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._last: dict[Place, _Last] = {}
        # By log and digest, the pairs that wait for the offset of that value.
        self._waiting: dict[str, dict[int, list[_Pair]]] = {}

    def judges(self) -> Mapping[type, Judge]:
        return {Answered: self._on_answered, Placed: self._on_placed}

    def _on_answered(self, log: KeyLog, answered: Answered) -> None:
        operation = answered.operation
        place = (operation.process, log.key)
        last = self._last.get(place)
        self._last[place] = _Last(answered.digest, answered.offset, operation.line)
        if last is None or (last.line == operation.line) != self.is_inside:
            return
        if last.offset == NO_OFFSET and (known := log.places.get(last.digest)) is not None:
            last = last._replace(offset=known)
        if NO_OFFSET not in (last.offset, answered.offset):
            self._on_pair(log, operation.process, operation.line, last.offset, answered.offset)
            return
        pair = _Pair(operation.process, last, answered)
        waiting = self._waiting.setdefault(log.key, {})
        for digest, offset in ((last.digest, last.offset), (answered.digest, answered.offset)):
            if offset == NO_OFFSET:
                waiting.setdefault(digest, []).append(pair)

    def _on_placed(self, log: KeyLog, placed: Placed) -> None:
        # Of a value at several offsets the first one counts.
        waiting = self._waiting.get(log.key) if placed.before is None else None
        for pair in waiting.pop(placed.digest, ()) if waiting else ():
            if pair.place(placed.digest, placed.offset):
                self._on_pair(log, pair.process, pair.line, pair.before, pair.offset)

    def _on_pair(self, log: KeyLog, process: str, line: int, before: int, offset: int) -> None:
        if offset <= before:
            self.found(
                log, line,
                f"{process} sent a record that got offset {before}, and then one that got {offset} (line {line})",
            )  # fmt: skip


@final
class NonmonotonicSend(_Sends):
    """The offsets of a client's successive sends to a log rise."""

    name, is_inside = "nonmonotonic-send", False


@final
class IntNonmonotonicSend(_Sends):
    """The offsets of one operation's sends to a log rise."""

    name, is_inside = "int-nonmonotonic-send", True


@final
class IntSendSkip(_Skips):
    """The sends of one operation get neighbouring offsets. Others' records may be between them: this is allowed."""

    name, word, is_inside, is_allowed = "int-send-skip", "sent the records of", True, True

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._last: dict[Place, Step] = {}

    def judges(self) -> Mapping[type, Judge]:
        return {Answered: self._on_answered, Placed: self._on_placed}

    def _on_answered(self, log: KeyLog, answered: Answered) -> None:
        operation, offset = answered.operation, answered.offset
        if offset == NO_OFFSET:
            return
        place = (operation.process, log.key)
        last = self._last.get(place)
        if last is not None and last.line == operation.line:
            self._on_step(log, Step(operation.process, last.offset, offset, operation.line))
        self._last[place] = Step(operation.process, -1, offset, operation.line)
