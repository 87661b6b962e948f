"""The trace of a run: its hash and the canonical form of bodies."""

from __future__ import annotations

import io
import json
from hashlib import sha256

import pytest

from cluster.core.errors import ErrorCode
from cluster.core.messages import FetchPartitionResponse, FetchResponse, MetadataRequest, TopicPartition
from sim.world.trace import Trace, encode_body, encode_fields
from storage.codec.crc32c import crc32c


def test_the_hash_is_that_of_the_bytes_written() -> None:
    file = io.BytesIO()
    with_file, without = Trace(file), Trace()
    for trace in (with_file, without):
        trace.begin("s", 7)
        for number in range(2_000):
            trace.fields(number, "broker-1", "kind", (("a", number), ("b", 'quo"te')))
    assert with_file.finish() == without.finish() == sha256(file.getvalue()).hexdigest()
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert len(lines) == 2_001 and lines[5] == {
        "at": 4,
        "node": "broker-1",
        "kind": "kind",
        "a": 4,
        "b": 'quo"te',
    }


def test_a_trace_that_is_off_drops_its_lines_and_has_no_hash() -> None:
    trace = Trace(is_on=False)
    trace.begin("s", 7)
    trace.event(1, "broker-1", "kind", '"a":1')
    trace.fields(2, "broker-1", "kind", (("a", 1),))
    assert (trace.finish(), trace.line_count) == ("", 0)


def test_bodies_are_canonical_and_payloads_show_their_checksum() -> None:
    body = FetchResponse(
        partitions=(
            FetchPartitionResponse(
                topic_partition=TopicPartition("t", 0), error=ErrorCode.FENCED_LEADER_EPOCH, records=b"abc"
            ),
        )
    )
    assert json.loads(encode_body(body)) == {
        "is": "FetchResponse",
        "partitions": [
            {
                "is": "FetchPartitionResponse",
                "topic_partition": "t-0",
                "error": "FENCED_LEADER_EPOCH",
                "records": {"bytes": 3, "crc": crc32c(b"abc")},
            }
        ],
    }
    assert encode_body(MetadataRequest()) == '{"is":"MetadataRequest"}'


def test_one_payload_bit_shows_in_the_encoding() -> None:
    def encoded(records: bytes) -> str:
        return encode_body(FetchPartitionResponse(topic_partition=TopicPartition("t", 0), records=records))

    assert encoded(b"abc") != encoded(b"abb")


def test_what_has_no_canonical_form_is_refused() -> None:
    with pytest.raises(AssertionError, match="canonical"):
        encode_body({1, 2})


def test_fields_are_ints_and_strings() -> None:
    assert encode_fields((("a", 1), ("b", "x"))) == '"a":1,"b":"x"'
