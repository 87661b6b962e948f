"""The codec and the connection core run in every simulated run: no message reaches a core but through its bytes."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable

import pytest

from cluster.core.connection.incoming import IncomingCall, IncomingStream
from cluster.core.connection.outgoing import OutgoingStream, UnaryCalls
from cluster.core.messages import FetchRequest, ProduceRequest, RequestBody, ResponseBody
from cluster.shell.streams import StreamCodec, UnaryCodec
from sim.hosts.shell import Shell
from sim.run import Verdict, run_scenario
from sim.scenario.loading import parse_scenario

SCENARIO = """
scenario: short
duration: 4s
network: {transport: TRANSPORT}
topics: {t: {partitions: 2, replicas: 3}}
producers: [{topic: t, rate: 20/s}]
consumers: [{topic: t}]
steps:
  - {at: 3s, kill: leader(t/0), down: 500ms}
"""
METHODS: tuple[tuple[type, str], ...] = (
    (StreamCodec, "calls_to_bytes"),
    (StreamCodec, "calls_from_bytes"),
    (StreamCodec, "answers_to_bytes"),
    (StreamCodec, "answers_from_bytes"),
    (UnaryCodec, "request_to_bytes"),
    (UnaryCodec, "request_from_bytes"),
    (UnaryCodec, "response_to_bytes"),
    (UnaryCodec, "response_from_bytes"),
    (OutgoingStream, "on_frame"),
    (UnaryCalls, "on_frame"),
    (IncomingStream, "on_frame"),
    (IncomingCall, "on_frame"),
)


def counting(original: Callable[..., object], name: str, counts: Counter[str]) -> Callable[..., object]:
    def counted(*arguments: object) -> object:
        result = original(*arguments)
        counts[name] += len(result) if isinstance(result, list) and "calls" in name else 1
        return result

    return counted


@pytest.mark.parametrize("transport", ["stream", "datagram"])
def test_every_request_of_a_run_was_decoded_from_a_frame(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    for owner, method in METHODS:
        name = f"{owner.__name__}.{method}"
        monkeypatch.setattr(owner, method, counting(getattr(owner, method), name, counts))
    trace = io.BytesIO()
    result = run_scenario(parse_scenario(SCENARIO.replace("TRANSPORT", transport)), 1, trace_file=trace)
    assert result.verdict is Verdict.HELD, result.violations
    assert {f"{owner.__name__}.{method}" for owner, method in METHODS} == set(counts)
    handled = Counter(
        "stream" if event["body"]["is"] in (FetchRequest.__name__, ProduceRequest.__name__) else "unary"
        for event in map(json.loads, trace.getvalue().splitlines())
        if event.get("kind") == "request"
    )
    # A node that is killed may have decoded what it never handled.
    assert 0 < handled["stream"] <= counts["StreamCodec.calls_from_bytes"] <= handled["stream"] + 20
    assert 0 < handled["unary"] <= counts["UnaryCodec.request_from_bytes"] <= handled["unary"] + 20


def test_no_message_object_passes_from_one_node_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[int, RequestBody | ResponseBody] = {}
    received = 0
    send, accept = Shell._send, Shell.accept

    def note_sent(shell: Shell, effect: object) -> None:
        body = getattr(effect, "body")  # noqa: B009
        sent[id(body)] = body
        send(shell, effect)  # type: ignore[arg-type]

    def note_received(shell: Shell, exchange: object, answer: object) -> int:
        nonlocal received
        received += 1
        assert id(getattr(exchange, "body")) not in sent  # noqa: B009
        return accept(shell, exchange, answer)  # type: ignore[arg-type]

    monkeypatch.setattr(Shell, "_send", note_sent)
    monkeypatch.setattr(Shell, "accept", note_received)
    run_scenario(parse_scenario(SCENARIO.replace("TRANSPORT", "stream")), 1)
    assert received > 100 and len(sent) > 100
