"""Records as JSON, one object a line: what `consume --json` prints and `produce --json` reads.

| field | JSON | |
| --- | --- | --- |
| topic, offset | text, number | where the record was; not read by `produce` |
| partition | number | |
| timestamp | number | milliseconds since 1970; -1: none |
| key, value | text, `{"base64": text}` or null | text is UTF-8, other bytes are in base64 |
| headers | array of `{"key": text, "value": …}` | the value as above |
"""

from __future__ import annotations

import base64
import binascii
import difflib
import json
from typing import Any

from cluster.commands.record_lines import BadLine, Outgoing, shown
from cluster.core.client.effects import FetchedBatch
from cluster.core.messages import TopicPartition
from storage.batch.record import MAX_INT64, Header, Record

FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_MAX_INT32 = (1 << 31) - 1
_OTHER_INPUT = "without --input json it is sent as it is"
_BYTES_EXPECTED = 'expected text, {"base64": "…"} or null'
_HEADERS_EXPECTED = 'expected an array of {"key": "…", "value": …}'


def json_format(topic_partition: TopicPartition, record: Record, batch: FetchedBatch) -> bytes:
    """Returns the record as one line of JSON."""
    fields = {
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _to_json(record.key),
        "value": _to_json(record.value),
        "headers": [{"key": name, "value": _to_json(value)} for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def read_json(line: bytes, number: int) -> Outgoing:
    """Reads one line of JSON; all fields but `value` may be left out. Raises BadLine."""
    try:
        given = json.loads(line.decode())
    except json.JSONDecodeError as error:
        reason = f"no JSON at column {error.colno} ({error.msg})"
        raise BadLine(number, f"{reason}: {shown(line)}; {_OTHER_INPUT}") from error
    except (ValueError, RecursionError) as error:
        raise BadLine(number, f"no JSON ({error}): {shown(line)}") from error
    if not isinstance(given, dict):
        raise BadLine(number, f"no JSON object: {shown(line)}; {_OTHER_INPUT}")
    try:
        return _outgoing(given)
    except ValueError as error:
        raise BadLine(number, str(error)) from error


def _outgoing(given: dict[str, Any]) -> Outgoing:
    for name in given:
        if name not in FIELDS:
            near = difflib.get_close_matches(name, FIELDS, n=1)
            hint = f"{near[0]} is the nearest" if near else f"there are {', '.join(FIELDS)}"
            raise ValueError(f"no such field {name!r}: {hint}")
    if "value" not in given:
        raise ValueError('no "value": null makes a tombstone')
    return Outgoing(
        value=_bytes("value", given["value"]),
        key=_bytes("key", given.get("key")),
        headers=_headers(given.get("headers")),
        partition=_number("partition", given.get("partition"), _MAX_INT32, lowest=0),
        timestamp_ms=_timestamp(given.get("timestamp")),
    )


def _headers(given: object) -> tuple[Header, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise ValueError(f"headers: {_HEADERS_EXPECTED}")
    return tuple(_header(each) for each in given)


def _header(given: object) -> Header:
    if not isinstance(given, dict) or set(given) != {"key", "value"} or not isinstance(given["key"], str):
        raise ValueError(f"headers: {_HEADERS_EXPECTED}")
    _encoded("the key of a header", given["key"])
    return given["key"], _bytes("the value of a header", given["value"])


def _timestamp(given: object) -> int | None:
    timestamp = _number("timestamp", given, MAX_INT64, lowest=-1)
    return None if timestamp == -1 else timestamp


def _number(name: str, given: object, highest: int, *, lowest: int) -> int | None:
    if given is None:
        return None
    # In Python, true is a number too.
    if not isinstance(given, int) or isinstance(given, bool) or not lowest <= given <= highest:
        raise ValueError(f"{name}: expected a whole number from {lowest} to {highest}")
    return given


def _to_json(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _bytes(name: str, given: object) -> bytes | None:
    match given:
        case None:
            return None
        case str():
            return _encoded(name, given)
        case {"base64": str(encoded), **others} if not others:
            try:
                return base64.b64decode(encoded, validate=True)
            except (binascii.Error, ValueError) as error:
                raise ValueError(f"{name}: no base64: {error}") from error
        case _:
            raise ValueError(f"{name}: {_BYTES_EXPECTED}")


def _encoded(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name}: half of a surrogate pair cannot be written as UTF-8") from error
