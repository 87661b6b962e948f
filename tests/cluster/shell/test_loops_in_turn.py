"""Several event loops after one another in one process, each with a client that is left in the midst of its calls."""

from __future__ import annotations

import asyncio
import time

import pytest

from cluster.shell.clients import AsyncProducer

NOWHERE = "127.0.0.1:9"
LIMIT_S = 0.5


async def leave_in_the_midst() -> None:
    async with AsyncProducer(NOWHERE) as producer:
        for _ in range(3):
            await producer.send("orders", b"v")
        raise KeyError("left")


def test_no_call_of_a_closed_client_reports_to_a_loop_that_has_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(30):
        with pytest.raises(KeyError, match="left"):
            asyncio.run(leave_in_the_midst())
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def test_the_close_of_a_client_does_not_wait_for_answers() -> None:
    began_s = time.monotonic()
    with pytest.raises(KeyError, match="left"):
        asyncio.run(leave_in_the_midst())
    assert time.monotonic() - began_s < LIMIT_S
