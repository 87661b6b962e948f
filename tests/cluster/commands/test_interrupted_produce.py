"""A produce command that is told to end sends what it has read; nobody waits for that without an end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self, final

import pytest

from cluster.commands import produce as produce_module
from cluster.commands.options import OUT_OF_TIME, cancelled_by_sigterm, run
from cluster.commands.produce import Tally, produce_lines
from cluster.commands.record_lines import Outgoing
from cluster.core.errors import ErrorCode
from cluster.core.messages import TopicPartition
from cluster.shell.clients import DeliveryError, RecordMetadata


@final
class LingeringProducer:
    """Keeps all records until it is flushed; `is_stuck` says whether that ever ends.

    As the real one does, it aborts where its block raises: each record ends with an error then. The first was sent, the
    others were not.
    """

    def __init__(self, *, is_stuck: bool = False) -> None:
        self._is_stuck = is_stuck
        self._waiting: list[asyncio.Future[RecordMetadata]] = []

    async def send(self, topic: str, value: bytes, **named: Any) -> asyncio.Future[RecordMetadata]:
        self._waiting.append(asyncio.get_running_loop().create_future())
        return self._waiting[-1]

    async def flush(self) -> None:
        if self._is_stuck:
            await asyncio.get_running_loop().create_future()
        for offset, future in enumerate(self._waiting):
            future.set_result(RecordMetadata(topic="t", partition=0, offset=offset, timestamp_ms=0))
        self._waiting = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.give_up("the producer was closed")
            # The end of the real one takes more turns of the loop than the callbacks of its futures.
            await asyncio.sleep(0)

    def give_up(self, detail: str) -> None:
        for number, future in enumerate(self._waiting):
            code, place = ErrorCode.REQUEST_TIMED_OUT, TopicPartition("t", 0)
            future.set_exception(DeliveryError(code, detail, place, is_unknown=number == 0))
        self._waiting = []


def read(line: bytes, number: int) -> Outgoing:
    return Outgoing(value=line)


async def interrupted(producer: LingeringProducer) -> Tally:
    """Returns the outcomes of two lines that were read before the command was told to end."""
    tally, have_come = Tally(), asyncio.Event()

    async def lines() -> AsyncIterator[list[bytes]]:
        yield [b"a", b"b"]
        have_come.set()
        await asyncio.get_running_loop().create_future()

    async def work() -> None:
        async with producer:
            await produce_lines(producer, "t", lines(), tally, read=read)  # type: ignore[arg-type]

    task = asyncio.create_task(work())
    await have_come.wait()
    assert tally.unanswered == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return tally


def test_what_was_read_before_an_interruption_is_sent() -> None:
    tally = asyncio.run(interrupted(LingeringProducer()))
    assert (tally.acknowledged, tally.unanswered) == (2, 0)


def test_an_interrupted_command_does_not_wait_for_a_cluster_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(produce_module, "LAST_SENDS_S", 0.01)
    tally = asyncio.run(interrupted(LingeringProducer(is_stuck=True)))
    assert (tally.acknowledged, tally.failed, tally.unanswered, tally.ended) == (0, 1, 1, 2)
    assert str(tally) == "0 records acknowledged, 1 failed, 1 without an answer"
    assert tally.to_json() == {"acknowledged": 0, "failed": 1, "unanswered": 1, "partitions": []}


def test_what_was_given_up_while_its_outcome_is_unknown_is_without_an_answer_and_has_not_failed() -> None:
    async def main() -> Tally:
        producer, tally = LingeringProducer(), Tally()

        async def lines() -> AsyncIterator[list[bytes]]:
            yield [b"a"]
            producer.give_up("delivery.timeout.ms passed")

        await produce_lines(producer, "t", lines(), tally, read=read)  # type: ignore[arg-type]
        return tally

    tally = asyncio.run(main())
    assert (tally.failed, tally.unanswered, tally.errors) == (0, 1, {ErrorCode.REQUEST_TIMED_OUT: 1})


@pytest.fixture(params=[signal.SIG_IGN, signal.default_int_handler], ids=["ignored", "heard"])
def ctrl_c(request: pytest.FixtureRequest) -> Iterator[None]:
    """What Ctrl-C does; a shell without job control lets its background jobs ignore it."""
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_sigterm_ends_a_command_as_ctrl_c_does_even_where_that_is_ignored(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended: list[str] = []

    async def work() -> None:
        cancelled_by_sigterm()
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.wait_for(asyncio.get_running_loop().create_future(), 10)
        finally:
            ended.append("in order")

    with pytest.raises(SystemExit) as raised:
        run(work())
    assert (raised.value.code, capsys.readouterr().err) == (OUT_OF_TIME, "error: interrupted\n")
    assert ended == ["in order"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_sigterm_ends_what_the_first_one_has_left_to_do() -> None:
    async def work() -> None:
        cancelled_by_sigterm()
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.get_running_loop().create_future()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(asyncio.get_running_loop().create_future(), 10)

    with pytest.raises(SystemExit) as raised:
        run(work())
    assert raised.value.code == OUT_OF_TIME
