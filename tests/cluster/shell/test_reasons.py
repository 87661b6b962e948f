"""How a call ended, as the callers of a peer are told."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from cluster.core.errors import ClusterError, ErrorCode
from cluster.shell.clients import AsyncAdmin
from cluster.shell.runtime import Runtime
from cluster.shell.server import CONTROLLER_SERVICES, NodeServer
from cluster.shell.transport import reason_of
from tests.cluster.shell.echo_core import EchoCore


@pytest.mark.parametrize(
    ("code", "details", "reason"),
    [
        # What grpc.aio says of a message for a call that has ended (`set_internal_error` in its call.pyx.pxi).
        (grpc.StatusCode.INTERNAL, "Internal error from Core", "UNAVAILABLE: the connection was lost"),
        (grpc.StatusCode.INTERNAL, "a fault of the peer", "INTERNAL: a fault of the peer"),
        (grpc.StatusCode.UNAVAILABLE, "Connection refused", "UNAVAILABLE: Connection refused"),
    ],
)
def test_a_message_for_a_call_that_has_ended_is_a_lost_connection(
    code: grpc.StatusCode, details: str, reason: str
) -> None:
    error = grpc.aio.AioRpcError(
        code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details, debug_error_string=""
    )
    assert reason_of(error).startswith(reason)


def test_a_client_that_is_sent_to_the_controller_is_told_so_at_once() -> None:
    async def main() -> None:
        runtime = Runtime(EchoCore())
        runtime.start()
        server = NodeServer(runtime, CONTROLLER_SERVICES)
        port = await server.start("127.0.0.1", 0)
        try:
            async with AsyncAdmin(f"127.0.0.1:{port}") as admin, asyncio.timeout(10):
                with pytest.raises(ClusterError) as raised:
                    await admin.metadata()
        finally:
            await server.stop()
            await runtime.close()
        assert raised.value.code is ErrorCode.INVALID_REQUEST
        hint = "is it the controller's address?"
        assert raised.value.detail == f"no broker serves at 127.0.0.1:{port} ({hint})"

    asyncio.run(main())
