"""Records as JSON: what is printed can be read again without a loss, and what is no record is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.commands.record_json import json_format, read_json
from cluster.commands.record_lines import BadLine, Outgoing
from cluster.core.client.effects import FetchedBatch
from cluster.core.messages import TopicPartition
from storage.batch import TimestampType
from storage.batch.record import MAX_INT64, Record

BATCH = FetchedBatch(1, 0, TimestampType.CREATE)
DATA = st.none() | st.binary(max_size=8) | st.text(max_size=8).map(str.encode)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


def printed(record: Record, partition: int = 0) -> bytes:
    return json_format(TopicPartition("t", partition), record, BATCH)


@given(
    key=DATA,
    value=DATA,
    headers=st.lists(st.tuples(TEXT, DATA), max_size=3).map(tuple),
    timestamp=st.integers(0, MAX_INT64),
    partition=st.integers(0, 5),
)
def test_what_consume_prints_produce_reads_without_a_loss(
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    timestamp: int,
    partition: int,
) -> None:
    line = printed(Record(9, timestamp, key, value, headers), partition)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert read_json(line[:-1], 1) == Outgoing(value, key, headers, partition, timestamp)


def test_a_record_is_printed_with_its_place_and_its_headers() -> None:
    record = Record(4, 17, "grüße".encode(), b"\xff\x00", (("h", None), ("h", b"1")))
    assert json.loads(printed(record, 2)) == {
        "topic": "t",
        "partition": 2,
        "offset": 4,
        "timestamp": 17,
        "key": "grüße",
        "value": {"base64": "/wA="},
        "headers": [{"key": "h", "value": None}, {"key": "h", "value": "1"}],
    }


@pytest.mark.parametrize(
    "line", [b'{"value": "v"}', b'{"value": "v", "key": null, "headers": null, "timestamp": -1}']
)
def test_all_but_the_value_may_be_left_to_the_producer(line: bytes) -> None:
    assert read_json(line, 1) == Outgoing(b"v")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            b"hello",
            "no JSON at column 1 (Expecting value): 'hello'; without --input json it is sent as it is",
        ),
        (b"", "no JSON at column 1 (Expecting value): ''; without --input json it is sent as it is"),
        (b"5", "no JSON object: '5'; without --input json it is sent as it is"),
        (b"\xff", "no JSON ("),
        (b"[" * 100_000, "no JSON ("),
        (b'{"key": "k"}', 'no "value": null makes a tombstone'),
        (b'{"vlaue": "v"}', "no such field 'vlaue': value is the nearest"),
        (b'{"value": "v", "x": 1}', "no such field 'x': there are topic, partition, offset"),
        (b'{"value": 1}', 'value: expected text, {"base64": "…"} or null'),
        (b'{"value": {"base64": "AA==", "x": 1}}', 'value: expected text, {"base64": "…"} or null'),
        (b'{"value": {"base64": "!"}}', "value: no base64: "),
        (b'{"value": {"base64": "\\u00e9"}}', "value: no base64: "),
        (b'{"value": "\\ud800"}', "value: half of a surrogate pair cannot be written as UTF-8"),
        (b'{"value": "", "key": []}', 'key: expected text, {"base64": "…"} or null'),
        (b'{"value": "", "headers": {}}', 'headers: expected an array of {"key": "…", "value": …}'),
        (
            b'{"value": "", "headers": [["a", "b"]]}',
            'headers: expected an array of {"key": "…", "value": …}',
        ),
        (b'{"value": "", "headers": [{"key": "\\udfff", "value": ""}]}', "the key of a header: half of a"),
        (b'{"value": "", "headers": [{"key": "a", "value": 1}]}', "the value of a header: expected text, "),
        (b'{"value": "", "partition": -1}', "partition: expected a whole number from 0 to 2147483647"),
        (b'{"value": "", "partition": true}', "partition: expected a whole number from 0 to 2147483647"),
        (
            b'{"value": "", "timestamp": 9223372036854775808}',
            "timestamp: expected a whole number from -1 to 9223372036854",
        ),
        (
            b'{"value": "", "timestamp": 1.5}',
            "timestamp: expected a whole number from -1 to 9223372036854775807",
        ),
    ],
)
def test_what_is_no_record_is_named_by_its_line(line: bytes, reason: str) -> None:
    with pytest.raises(BadLine) as caught:
        read_json(line, 3)
    assert str(caught.value).startswith(f"line 3: {reason}")
