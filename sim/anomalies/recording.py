"""Writes the history of a simulated run as the lines that `history_file.py` reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from typing import Any, BinaryIO

from sim.anomalies.history_file import FORMAT
from sim.hosts.history import History, Move, Outcome, ReadOperation, SendOperation

Line = dict[str, Any]


def write_history(history: History, file: BinaryIO) -> None:
    """Write all that the clients did, in order of time: a send when it began, with its outcome."""
    file.write(_encoded({"format": FORMAT}))
    # A send that failed, or whose outcome is unknown, may not know its partition: who read the record does.
    unplaced = {send.value for send in history.sends if send.outcome is not Outcome.OK}
    read_from = {read.value: read.partition for read in history.reads if read.value in unplaced}
    sends = ((send.invoked_us, _sent(send, read_from)) for send in history.sends)
    reads = ((group[0].at_us, _polled(group)) for group in _polls(history))
    moves = ((move.at_us, _sought(move)) for move in history.moves)
    # At one time a client moves, then reads.
    for _, line in merge(sends, moves, reads, key=lambda each: each[0]):
        file.write(_encoded(line))


def _encoded(line: Line) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _sent(send: SendOperation, read_from: Mapping[str, str]) -> Line:
    is_ok = send.outcome is Outcome.OK
    # With acks=0 nobody has promised that the record is in the log.
    kind = Outcome.INFO if send.outcome is Outcome.OPEN or (is_ok and send.acks == 0) else send.outcome
    record = [send.offset, send.value] if is_ok and send.offset >= 0 else send.value
    part = ["send", read_from.get(send.value, send.partition), record]
    return {"process": send.producer, "type": kind.value, "f": "send", "value": [part]}


def _polls(history: History) -> Iterator[list[ReadOperation]]:
    """Yields the records that a consumer got from one partition at once."""
    for _, group in groupby(history.reads, key=lambda read: (read.consumer, read.partition, read.at_us)):
        yield list(group)


def _polled(reads: Sequence[ReadOperation]) -> Line:
    records = [[read.offset, read.value] for read in reads]
    part = ["poll", {reads[0].partition: records}]
    return {"process": reads[0].consumer, "type": "ok", "f": "poll", "value": [part]}


def _sought(move: Move) -> Line:
    return {"process": move.consumer, "type": "ok", "f": "seek", "value": [move.partition]}
