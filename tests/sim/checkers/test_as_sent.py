"""A message is read as it was written, whatever its codec does with its fields."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from cluster.core.connection.codec import OutOfBounds
from cluster.core.connection.pieces import Assembly
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    EpochEnd,
    FetchPartitionResponse,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    TopicPartition,
)
from cluster.rpc import methods
from cluster.shell.streams import CODEC
from sim.bugs.planting import Replacement, replaced
from sim.checkers.as_sent import MOST_UNREAD, AsSent, JudgedCodec
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.run import run_scenario
from sim.scenario.loading import parse_scenario

PARTITION = FetchPartitionResponse(
    topic_partition=TopicPartition("t", 0), error=ErrorCode.NONE, high_watermark=4, log_start_offset=0,
    leader_id=1, leader_epoch=2, records=b"", diverging=EpochEnd(epoch=0, end_offset=0),
)  # fmt: skip
ANSWER = FetchResponse(partitions=(PARTITION,))
SHORTER = FetchResponse(partitions=(replace(PARTITION, diverging=None),))


def watched() -> tuple[AsSent, Jury]:
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    return AsSent(jury), jury


def test_the_field_that_is_lost_is_told() -> None:
    frames, jury = watched()
    frames.on_written("answers", b"frame", [(3, ANSWER)])
    frames.on_read_all("answers", b"frame", [(3, SHORTER)])
    told = "FetchResponse: partitions: diverging: None was read; written was EpochEnd(epoch=0, end_offset=0)"
    assert [each.what for each in jury.violations] == [told]
    assert jury.violations[0].checker == "as-sent"


def test_no_message_of_a_frame_is_lost_or_given_to_another_call() -> None:
    for received in ([(3, ANSWER)], [(4, ANSWER), (3, ANSWER)]):
        frames, jury = watched()
        frames.on_written("answers", b"frame", [(3, ANSWER), (4, ANSWER)])
        frames.on_read_all("answers", b"frame", received)
        assert "written were [3, 4]" in jury.violations[0].what


def test_what_nobody_has_written_so_and_what_is_refused_is_not_judged() -> None:
    frames, jury = watched()
    frames.on_read_all("answers", b"of a piece", [(3, SHORTER)])
    frames.on_read(b"with another bit", SHORTER)
    frames.on_written("answers", b"frame", [(3, ANSWER)])
    frames.on_read_all("answers", b"frame", [(3, OutOfBounds(ANSWER, ErrorCode.INVALID_REQUEST, "too long"))])
    # Read twice: a datagram that came again.
    frames.on_written(FetchResponse, b"call", ANSWER)
    frames.on_read(b"call", ANSWER)
    frames.on_read(b"call", SHORTER)
    for number in range(MOST_UNREAD + 1):
        frames.on_written(FetchResponse, b"%d" % number, ANSWER)
    frames.on_read(b"0", SHORTER)
    # Another kind of message may have the same bytes.
    frames.on_read(b"1", ListOffsetsResponse(topic_partition=TopicPartition("t", 0)))
    assert not jury.violations
    frames.on_read(b"1", SHORTER)
    assert len(jury.violations) == 1


def test_the_codec_of_a_run_is_that_of_the_product_and_shows_each_frame() -> None:
    frames, jury = watched()
    codec = JudgedCodec(CODEC, frames)
    request = ListOffsetsRequest(topic_partition=TopicPartition("t", 0), topic_id="", timestamp=5)
    response = ListOffsetsResponse(topic_partition=TopicPartition("t", 0), offset=7, timestamp=5)
    path = codec.unary.path_of(request)
    assert codec.unary.request_from_bytes(path, codec.unary.request_to_bytes(request)) == request
    assert codec.unary.response_from_bytes(path, codec.unary.response_to_bytes(response)) == response
    stream = codec.stream_at(methods.REPLICA_FETCH)
    assert stream is codec.stream_at(stream.path)
    assert list(stream.answers_from_bytes(stream.answers_to_bytes([(1, ANSWER)]))) == [(1, ANSWER)]
    assert not jury.violations


SCENARIO = """\
scenario: as-sent
warm_up: 500ms
duration: 1s
topics: {t: {}}
producers: [{topic: t, rate: 20/s}]
consumers: [{topic: t}]
"""


def _forgets(field: str, value: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda original: lambda *arguments: replace(original(*arguments), **{field: value})


@pytest.mark.parametrize(
    ("target", "field", "value"),
    [
        ("cluster.shell.wire.metadata:_topic_from_wire", "topic_id", "f" * 32),
        ("cluster.shell.wire.fetch:_partition_response_from_wire", "high_watermark", 0),
    ],
)
def test_a_run_finds_a_field_that_a_codec_forgets(target: str, field: str, value: object) -> None:
    with replaced(Replacement(target=target, make=_forgets(field, value))):
        result = run_scenario(parse_scenario(SCENARIO, "as-sent.yaml"), 1, stops_early=True)
    assert result.violations[0].checker == "as-sent"
    assert f"{field}: " in result.violations[0].what


def _keeps_bytes(original: Callable[..., object]) -> Callable[..., object]:
    """The pieces of a frame stay when it is whole, so the next one of its stream has too many bytes."""

    def end(self: Assembly) -> None:
        kept = self._bytes
        original(self)
        self._bytes = kept

    return end


@pytest.mark.parametrize(
    ("is_broken", "transport", "flips", "is_told"),
    [
        (True, "stream", "", True),
        (True, "datagram", "", False),
        (False, "stream", "", False),
        (False, "stream", "structure", False),
    ],
)
def test_a_frame_that_comes_as_it_was_sent_can_be_read(
    transport: str, flips: str, *, is_broken: bool, is_told: bool
) -> None:
    text = SCENARIO.replace("rate: 20/s", "rate: 20/s, size: 1000 B")
    text += f"network: {{transport: {transport}}}\nbuggify: {{points: [frames-in-pieces], chance: 100%}}\n"
    if flips:
        text += f"steps: [{{at: 600ms, flip_bits: all <-> all, share: 50%, where: {flips}, for: 200ms}}]\n"
    broken = Replacement(target="cluster.core.connection.pieces:Assembly.end", make=_keeps_bytes)
    with replaced(broken) if is_broken else nullcontext():
        found = run_scenario(parse_scenario(text, "as-sent.yaml"), 1).violations
    told = [each.what for each in found if each.checker == "as-sent"]
    assert bool(told) is is_told
    assert all(" cannot read a frame that came as it was sent: a piece, " in each for each in told)
