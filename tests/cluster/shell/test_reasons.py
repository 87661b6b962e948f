"""How a call ended, as the callers of a peer are told."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest

from cluster.shell.transport import reason_of


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
