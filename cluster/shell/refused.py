"""Log lines on what a node refuses: who sent what, and why. They are few, however much is refused.

Bytes that are no request, requests out of bounds and calls too many are WARNING: no node of ours sends them. What the
core refuses by fencing is INFO: a cluster that moves its leaders has some of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import final

from cluster.core import fencing
from cluster.core.connection.codec import Malformed, OutOfBounds
from cluster.core.connection.incoming import Receiver
from cluster.core.errors import ErrorCode
from cluster.core.messages import FetchResponse, Header, ProduceResponse, RequestBody, ResponseBody

logger = logging.getLogger(__name__)

# The most lines of one level in such a time: for one sender, and for all, because a sender has as many addresses as it
# makes connections.
MOST_LINES_OF_SENDER = 20
MOST_LINES = 2_000
PERIOD_S = 10.0


class TooManyConnections(Exception):
    """One connection too many has a call."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the node has calls of {most} connections already")


@final
class Lines:
    """The lines of one level. Those above the limit are counted, and the next one that is written says how many."""

    def __init__(self, level: int, now_s: Callable[[], float]) -> None:
        self._level, self._now_s = level, now_s
        self._began_s = now_s()
        self._written = self._left_out = 0
        # The lines of each sender.
        self._of: dict[str, int] = {}

    def write(self, sender: str, what: str) -> None:
        """Logs a line, unless there were too many a moment ago."""
        now_s = self._now_s()
        if now_s - self._began_s >= PERIOD_S:
            if self._left_out:
                logger.log(self._level, "request refused: left_out=%d", self._left_out)
            self._began_s, self._written, self._left_out = now_s, 0, 0
            self._of.clear()
        assert self._written <= MOST_LINES, self._written
        own = self._of.get(sender, 0)
        if own == MOST_LINES_OF_SENDER or self._written == MOST_LINES:
            self._left_out += 1
            return
        self._written += 1
        self._of[sender] = own + 1
        logger.log(self._level, "request refused: sender=%s %s", sender, what)


@final
class RefusalLog:
    """The log of what one node refuses, with the address of each sender."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._wrong, self._fenced = Lines(logging.WARNING, now_s), Lines(logging.INFO, now_s)

    def on_wrong(self, sender: str, refused: OutOfBounds | Malformed | TooManyConnections) -> None:
        """Logs what did not get to the core."""
        self._wrong.write(sender, str(refused))

    def on_answer(self, sender: str, kind: str, header: Header | None, answer: ResponseBody) -> None:
        """Logs an answer that refuses a request of this kind with this header, or a partition of it, by fencing."""
        found = refused_by_fencing(answer)
        if found is None:
            return
        code, where = found
        broker = "none" if header is None else f"{header.broker_id} broker_epoch={header.broker_epoch}"
        self._fenced.write(sender, f"broker={broker} {kind}: {code.name}{where}")


def kind_and_header(request: RequestBody) -> tuple[str, Header | None]:
    """Returns what a log line says of a request."""
    return type(request).__name__, getattr(request, "header", None)


def refused_by_fencing(answer: ResponseBody) -> tuple[ErrorCode, str] | None:
    """Returns the error by which an answer refuses its request, with the first partition that it is for, if any."""
    code = getattr(answer, "error", ErrorCode.NONE)
    if code in fencing.REFUSALS:
        return code, ""
    if isinstance(answer, (FetchResponse, ProduceResponse)):
        for item in answer.partitions:
            if item.error is not ErrorCode.NONE and item.error in fencing.REFUSALS:
                return item.error, f" topic_partition={item.topic_partition}"
    return None


@final
class Watched:
    """Passes the requests of one client to a receiver, and shows its answers to the log."""

    def __init__(self, receiver: Receiver, log: RefusalLog, sender: str) -> None:
        self._receiver, self._log, self._sender = receiver, log, sender
        self.ask_without_reply = receiver.ask_without_reply
        self.forget = receiver.forget

    def ask(self, body: RequestBody, answer: Callable[[ResponseBody], None]) -> int:
        """Passes a request on and returns its number; the answer is shown to the log first.

        The request itself is not kept: while it waits for its answer, nobody counts the records that it has brought.
        """
        kind, header = kind_and_header(body)

        def on_answer(answered: ResponseBody) -> None:
            self._log.on_answer(self._sender, kind, header, answered)
            answer(answered)

        return self._receiver.ask(body, on_answer)
