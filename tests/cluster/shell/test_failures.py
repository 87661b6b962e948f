"""The log says which peer could not be asked, and why, and is not flooded by it."""

from __future__ import annotations

import logging

import pytest

from cluster.core.events import TransportError
from cluster.core.messages import MetadataRequest
from cluster.shell import failures
from cluster.shell.failures import PERIOD_S, FailedCalls
from tests.cluster.shell.test_refused import Now
from tests.cluster.shell.test_server import HOST, Client, Node, fetch, refused_port, run

PEER, OTHER = "127.0.0.1:4711", "127.0.0.1:4712"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == failures.__name__]


def test_a_reason_is_logged_once_for_each_peer_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = Now()
    log = FailedCalls(now)
    for _ in range(300):
        log.write(PEER, "UNAVAILABLE: refused")
    log.write(PEER, "another reason")
    log.write(OTHER, "UNAVAILABLE: refused")
    first = f"calls fail: peer={PEER} UNAVAILABLE: refused"
    assert lines(caplog) == [
        first, f"calls fail: peer={PEER} another reason", f"calls fail: peer={OTHER} UNAVAILABLE: refused",
    ]  # fmt: skip
    now.s = PERIOD_S
    for _ in range(2):
        log.write(PEER, "UNAVAILABLE: refused")
    assert lines(caplog)[3:] == [f"{first} times=300"]
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_many_reasons_are_few_lines_and_the_others_are_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A peer that sends garbage gets another reason for each byte of it."""
    monkeypatch.setattr(failures, "MOST_REASONS", 3)
    now = Now()
    log = FailedCalls(now)
    for number in range(50):
        log.write(PEER, f"reason {number}")
    assert len(lines(caplog)) == 3
    now.s = PERIOD_S
    log.write(PEER, "reason 77")
    assert lines(caplog)[3:] == ["calls fail: left_out=47", f"calls fail: peer={PEER} reason 77"]


def test_what_was_counted_is_told_though_the_reason_does_not_come_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = Now()
    log = FailedCalls(now)
    for _ in range(5):
        log.write(PEER, "x")
    now.s = PERIOD_S
    log.write(OTHER, "y")
    assert lines(caplog)[1:] == [f"calls fail: peer={PEER} x times=4", f"calls fail: peer={OTHER} y"]


def test_calls_and_streams_to_a_peer_that_refuses_are_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    port = refused_port()

    async def check(serving: Node, asking: Client) -> None:
        assert serving.port != port
        asking.peers.learn(7, HOST, port)
        for _ in range(5):
            assert isinstance(await asking.send(MetadataRequest(), to=7), TransportError)
            assert isinstance(await asking.send(fetch(1), to=7), TransportError)

    run(check)
    assert 1 <= len(lines(caplog)) <= 4, lines(caplog)
    assert all(f"peer={HOST}:{port} UNAVAILABLE" in line for line in lines(caplog))


def test_the_end_of_a_stream_is_logged_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cluster.shell.incoming.MOST_CONNECTIONS", 0)

    async def check(serving: Node, asking: Client) -> None:
        asking.peers.learn(7, HOST, serving.port)
        assert isinstance(await asking.send(fetch(1), to=7), TransportError)

    run(check)
    (line,) = lines(caplog)
    assert line.endswith("RESOURCE_EXHAUSTED: the node has calls of 0 connections already")


def test_a_stream_that_its_own_client_ends_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def check(_: Node, asking: Client) -> None:
        await asking.send(fetch(1))

    run(check)
    assert lines(caplog) == []
