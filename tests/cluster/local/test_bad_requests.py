"""C5: every request at and beyond its bounds, and bytes that are no request, sent to real processes: none ends."""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cluster.core.messages import (
    AlterTopicConfigsRequest,
    FetchMetadataRequest,
    FetchRequest,
    ProduceRequest,
    RegisterBrokerRequest,
    RequestBody,
)
from cluster.rpc import methods
from cluster.shell import streams, wire
from replog import Admin, Producer
from tests.cluster.local.real_cluster import HOST, Up, is_running, running
from tests.cluster.shell.bounded import beyond, within

pytestmark = pytest.mark.slow

REQUESTS = typing.get_args(RequestBody)
LIMIT_S = 20.0
FEW = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
LARGE = (
    FetchMetadataRequest(broker_id=1, offset=0, max_bytes=-1),
    AlterTopicConfigsRequest(name="t", configs=(("retention.ms", "1" + " " * (17 << 20)),)),
    RegisterBrokerRequest(broker_id=7, incarnation="0" * 32, host="h" * (17 << 20), port=1),
)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("bad") / "data", 1) as cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topic("t", partitions=1, replication_factor=1)
            assert admin.until_led("t")
        yield cluster


@contextlib.contextmanager
def channel(port: int) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"{HOST}:{port}") as opened:
        yield opened


def ports(up: Up) -> tuple[int, int]:
    return up.port, up.port + 1000


def as_it_is(data: bytes) -> bytes:
    return data


def send_on_stream(opened: grpc.Channel, path: str, data: bytes) -> None:
    """Send one message, and read one, unless the node ends the stream before."""
    for _ in opened.stream_stream(path, as_it_is, as_it_is)(iter([data]), timeout=2):
        break


def ask(port: int, body: RequestBody) -> None:
    """Send the request to a node, and wait for its answer, whatever it is."""
    with channel(port) as opened, contextlib.suppress(grpc.RpcError):
        if isinstance(body, (FetchRequest, ProduceRequest)):
            codec = streams.CODEC.stream_of(body)
            try:
                data = codec.calls_to_bytes([(1, body)])
            except ValueError:
                # The wire itself cannot carry it.
                assume(False)
            # A fetch at its bounds waits for as long as the node lets it.
            send_on_stream(opened, codec.path, data)
            return
        try:
            request: Message = wire.request_to_wire(body)
        except ValueError:
            assume(False)
        path = methods.UNARY_BY_REQUEST[type(request)].path
        opened.unary_unary(path, as_it_is, as_it_is)(request.SerializeToString(), timeout=2)


def assert_serves(up: Up, pids: list[int]) -> None:
    assert up.pids() == pids and all(is_running(pid) for pid in pids)
    with Producer(up.bootstrap) as producer:
        assert producer.send("t", b"still here").result(LIMIT_S).offset >= 0


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_c5_no_request_ends_a_node(up: Up, cls: type) -> None:
    pids = up.pids()
    drawn = within(cls) if beyond(cls).is_empty else within(cls) | beyond(cls)

    @FEW
    @given(drawn, st.sampled_from(ports(up)))
    def send(body: RequestBody, port: int) -> None:
        ask(port, body)

    send()
    assert up.pids() == pids and all(is_running(pid) for pid in pids)


@pytest.mark.parametrize("body", LARGE, ids=lambda body: type(body).__name__)
def test_c5_the_requests_that_ended_the_controller_get_an_answer(up: Up, body: RequestBody) -> None:
    pids = up.pids()
    for port in ports(up):
        ask(port, body)
    assert up.pids() == pids and all(is_running(pid) for pid in pids)


def test_bytes_that_are_no_request_end_no_node(up: Up) -> None:
    pids = up.pids()
    for port in ports(up):
        with channel(port) as opened:
            for path, method in methods.BY_PATH.items():
                with contextlib.suppress(grpc.RpcError):
                    if method.is_stream:
                        send_on_stream(opened, path, b"\xff" * 100)
                    else:
                        opened.unary_unary(path, as_it_is, as_it_is)(b"\xff" * 100, timeout=2)
    assert up.pids() == pids and all(is_running(pid) for pid in pids)


def test_the_cluster_serves_after_all_of_them(up: Up) -> None:
    with Admin(up.bootstrap) as admin:
        if "t" not in admin.list_topics():
            admin.create_topic("t", partitions=1, replication_factor=1)
            assert admin.until_led("t")
    assert_serves(up, up.pids())


def test_the_log_says_who_sent_what(up: Up) -> None:
    ask(up.port + 1000, LARGE[0])
    text = (up.data / "controller.txt").read_text()
    assert "request refused: sender=" in text and "max_bytes=-1" in text
