"""Reads a client history of JSON lines: the operations of Jepsen's Kafka workload, one a line.

    {"process":"producer-1","type":"ok","f":"send","value":[["send","t-0",[7,"a"]]]}
    {"process":"consumer-1","type":"ok","f":"poll","value":[["poll",{"t-0":[[7,"a"],[8,"b"]]}]]}
    {"process":"consumer-1","type":"ok","f":"assign","value":["t-0"]}
    {"process":"consumer-1","type":"ok","f":"seek","value":["t-0"]}

`docs/history.md` has the members. Whatever is wrong with a file is reported with its line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO, final

from sim.anomalies.operations import NO_OFFSET, Assigned, Moved, Operation, Polled, Sent, Sought, Value
from sim.hosts.history import Outcome

FORMAT = "replog-history-2"
# The format before: its `assign` is what `seek` is now.
_OLDER = "replog-history-1"
# Far above the longest poll: a file without line ends must not fill the memory.
MAX_LINE_BYTES = 64 * 1024 * 1024
_LONGEST_SHOWN = 60
_OUTCOMES = {"invoke": Outcome.OPEN, "ok": Outcome.OK, "fail": Outcome.FAIL, "info": Outcome.INFO}
_OF_RECORDS = frozenset({"send", "poll", "txn"})
_OF_POSITIONS = frozenset({"assign", "subscribe", "seek"})


@final
class HistoryFileError(Exception):
    """A line that is no operation; `line` counts from 1."""

    def __init__(self, name: str, line: int, reason: str) -> None:
        super().__init__(f"{name}:{line}: {reason}")
        self.name, self.line, self.reason = name, line, reason


def _members_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the members of a JSON object. Raises ValueError if one is there twice: the first would be lost."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member is there twice")
    return found


def _cut(text: str) -> str:
    """Returns the text, cut where it is too long for a message."""
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _has_ended(operation: Operation | Moved) -> bool:
    return type(operation) is Operation and operation.outcome is not Outcome.OPEN


@final
class HistoryFile:
    """A history that is read once. `ignored` counts the lines that concern no record, those of faults for example."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        self._name, self._file = name, file
        self._line = self.ignored = 0
        self._is_older = False

    def operations(self) -> Iterator[Operation | Moved]:
        """Yield all operations in their order.

        Raises HistoryFileError at the first line that is none, and at the end if no send and no poll has ended.
        """
        has_records = False
        while text := self._file.readline(MAX_LINE_BYTES):
            self._line += 1
            if (operation := self._operation(self._members(text))) is not None:
                has_records = has_records or _has_ended(operation)
                yield operation
        if not has_records:
            raise self._error("the history has no send and no poll that has ended")

    def _members(self, text: bytes) -> dict[str, Any]:
        if len(text) == MAX_LINE_BYTES:
            raise self._error(f"the line is longer than {MAX_LINE_BYTES} bytes: this is no history")
        if not text.endswith(b"\n"):
            raise self._error("the line is cut off: the run or the copy was interrupted")
        try:
            found = json.loads(text, object_pairs_hook=_members_once)
        except json.JSONDecodeError as error:
            raise self._error("the line is no JSON") from error
        except (ValueError, RecursionError) as error:
            raise self._error(f"the line is no JSON that can be read: {error}") from error
        if not isinstance(found, dict):
            raise self._error("the line is no JSON object")
        return found

    def _operation(self, members: dict[str, Any]) -> Operation | Moved | None:
        """Returns the operation of a line; None for the header, and for what concerns no record."""
        what = members.get("f")
        if "format" in members and "f" not in members:
            self._check_header(members["format"])
            return None
        if type(what) is not str:
            raise self._error("this is no operation: it needs `process`, `type`, `f` and `value`")
        if what not in _OF_RECORDS and what not in _OF_POSITIONS:
            self.ignored += 1
            return None
        process, outcome = self._name_of(members.get("process")), _OUTCOMES.get(str(members.get("type")))
        if outcome is None:
            raise self._error(f"type {_cut(repr(members.get('type')))} is none of {', '.join(_OUTCOMES)}")
        value = members.get("value")
        if value is not None and type(value) is not list:
            raise self._error("`value` is no list")
        if value is None and outcome is Outcome.OK and what in _OF_RECORDS:
            raise self._error(f"this {what} is ok, and has no `value` that says what was sent or read")
        if what in _OF_POSITIONS:
            keys = tuple([self._name_of(each) for each in value or ()])
            return None if outcome in (Outcome.FAIL, Outcome.OPEN) else self._moved(what, process, keys)
        return Operation(self._line, process, outcome, tuple(self._parts(value or ())))

    def _moved(self, what: str, process: str, keys: tuple[str, ...]) -> Moved:
        if what == "seek" or (what == "assign" and self._is_older):
            return Sought(self._line, process, keys)
        return Assigned(self._line, process, keys, what == "subscribe")

    def _check_header(self, form: object) -> None:
        if self._line != 1:
            raise self._error("`format` belongs on the first line: a file is one history")
        self._is_older = form == _OLDER
        if form not in (FORMAT, _OLDER):
            raise self._error(
                f"this is of format {_cut(str(form))}: expected {FORMAT}, or operations without a header"
            )

    def _name_of(self, found: object) -> str:
        """Returns the name of a client or a log as text."""
        return str(self._value_of(found))

    def _value_of(self, found: object) -> Value:
        """Returns a value as it is. Raises HistoryFileError if it is neither a text nor a whole number."""
        if type(found) is str or type(found) is int:
            return found
        raise self._error(f"{_cut(repr(found))} is neither a text nor a whole number")

    def _parts(self, value: list[Any] | tuple[()]) -> Iterator[Sent | Polled]:
        for part in value:
            what = part[0] if type(part) is list and part else None
            if what == "send" and len(part) == 3:
                yield self._sent(self._name_of(part[1]), part[2])
            elif what == "poll" and len(part) == 1:
                continue
            elif what == "poll" and len(part) == 2 and type(part[1]) is dict:
                for key, records in part[1].items():
                    yield Polled(key, self._records(records))
            else:
                raise self._error('a part is neither ["send", KEY, VALUE] nor ["poll", {KEY: RECORDS}]')

    def _sent(self, key: str, found: object) -> Sent:
        if type(found) is not list:
            return Sent(key, self._value_of(found))
        if len(found) == 2 and found[0] is None:
            return Sent(key, self._value_of(found[1]))
        ((offset, value),) = self._records([found])
        return Sent(key, value, offset)

    def _records(self, found: object) -> tuple[tuple[int, Value], ...]:
        if type(found) is not list:
            raise self._error("the records of a poll are no list")
        records = []
        for each in found:
            if type(each) is not list or len(each) != 2 or type(each[0]) is not int:
                raise self._error(f"{_cut(repr(each))} is not [OFFSET, VALUE]")
            if not NO_OFFSET < each[0] < 1 << 63:
                raise self._error(f"{_cut(repr(each[0]))} is no offset")
            value = each[1]
            records.append((each[0], value if type(value) is str else self._value_of(value)))
        return tuple(records)

    def _error(self, reason: str) -> HistoryFileError:
        return HistoryFileError(self._name, max(self._line, 1), reason)
