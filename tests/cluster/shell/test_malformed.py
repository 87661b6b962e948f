"""A call that ends because its bytes are no request: the log says who sent them."""

from __future__ import annotations

import contextlib

import grpc.aio
import pytest

from cluster.core.messages import MetadataRequest, MetadataResponse
from cluster.rpc import methods
from tests.cluster.shell.test_server import HOST, Client, Node, run


@pytest.mark.parametrize("path", [methods.CONSUMER_FETCH, f"/{methods.DATA}/Metadata"])
def test_the_log_says_who_sent_bytes_that_are_no_request(path: str, caplog: pytest.LogCaptureFixture) -> None:
    async def check(serving: Node, asking: Client) -> None:
        async with grpc.aio.insecure_channel(f"{HOST}:{serving.port}") as channel:
            with contextlib.suppress(grpc.aio.AioRpcError):
                if methods.BY_PATH[path].is_stream:
                    call = channel.stream_stream(path, None, None)(None)
                    await call.write(b"\xff" * 9)
                    await call.read()
                else:
                    await channel.unary_unary(path, None, None)(b"\xff" * 9)
        assert isinstance(await asking.send(MetadataRequest()), MetadataResponse)

    run(check)
    (line,) = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert "sender=ipv4:127.0.0.1:" in line and "9 bytes are no" in line
