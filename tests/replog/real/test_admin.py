"""What a run asks of its controller: repeated where that may help, and dropped with a word where it cannot."""

from __future__ import annotations

import asyncio

import pytest

from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import CreateTopicRequest
from cluster.shell.clients import AsyncAdmin
from replog.real import admin as real_admin
from replog.real.admin import RunAdmin


@pytest.mark.parametrize(
    ("codes", "refusals"),
    [
        ([ErrorCode.NETWORK_EXCEPTION, ErrorCode.INVALID_REPLICATION_FACTOR], []),
        ([ErrorCode.TOPIC_ALREADY_EXISTS], []),
        ([ErrorCode.INVALID_TOPIC_EXCEPTION], ["topic a_b: INVALID_TOPIC_EXCEPTION: collides with a.b"]),
    ],
)
def test_a_request_is_repeated_until_the_controller_has_answered_it(
    monkeypatch: pytest.MonkeyPatch, codes: list[ErrorCode], refusals: list[str]
) -> None:
    left = list(codes)

    async def create(admin: AsyncAdmin, request: CreateTopicRequest) -> str:
        if left:
            raise ClusterError(left.pop(0), "collides with a.b")
        return "id"

    monkeypatch.setattr(AsyncAdmin, "create", create)
    monkeypatch.setattr(real_admin, "RETRY_S", 0.001)

    async def run() -> None:
        async with RunAdmin([1]) as admin:
            admin.ask(CreateTopicRequest(name="a_b"))
            await admin.until_done()
            assert (admin.refusals, left) == (refusals, [])

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_request_that_is_not_carried_out_yet_is_told_with_its_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_back, tries = asyncio.Event(), asyncio.Semaphore(0)

    async def create(admin: AsyncAdmin, request: CreateTopicRequest) -> str:
        tries.release()
        if not is_back.is_set():
            raise ClusterError(ErrorCode.NETWORK_EXCEPTION, "the controller is away")
        return "id"

    monkeypatch.setattr(AsyncAdmin, "create", create)
    monkeypatch.setattr(real_admin, "RETRY_S", 0.001)

    async def run() -> None:
        async with RunAdmin([1]) as admin:
            assert admin.open_request == ""
            admin.ask(CreateTopicRequest(name="u"))
            assert admin.open_request == "topic u is still to be created"
            await tries.acquire()
            await tries.acquire()
            assert admin.open_request == "topic u is still to be created, refused with NETWORK_EXCEPTION"
            is_back.set()
            await admin.until_done()
            assert admin.open_request == ""

    asyncio.run(asyncio.wait_for(run(), 60))
