"""A leader stores every key, value, header and time as its producer sent it; other bytes may differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sim.bugs import Replacement, replaced
from sim.checkers.stored import crc_of, difference
from sim.run import run_scenario
from sim.scenario.loading import parse_scenario
from storage.batch import Record, build_batch
from storage.batch.format import LOG_APPEND_TIME_FLAG
from storage.codec.compression import Compression
from storage.codec.crc32c import crc32c

SENT = [Record(0, 5, b"a", b"1"), Record(1, 7, b"b", b"2", (("h", b"x"),))]


def test_the_same_records_do_not_differ_however_they_are_compressed() -> None:
    sent = build_batch(SENT)
    assert not difference(sent, sent)
    stored = build_batch([each._replace(offset=each.offset + 9) for each in SENT], base_offset=9)
    assert not difference(sent, stored) and crc_of(sent) == crc_of(stored)
    stored = build_batch(SENT, compression=Compression.GZIP)
    assert not difference(sent, stored) and crc_of(sent) != crc_of(stored)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"key": b"c"}, "record 1 was sent with the key b'b', and b'c' is stored"),
        ({"value": None}, "record 1 was sent with the value b'2', and None is stored"),
        ({"headers": ()}, "record 1 was sent with the headers (('h', b'x'),), and () are stored"),
        ({"timestamp": 8}, "record 1 was sent with the time 7, and 8 is stored"),
    ],
)
def test_ap7_a_record_that_is_stored_otherwise_differs(change: dict[str, object], what: str) -> None:
    stored = build_batch([SENT[0], SENT[1]._replace(**change)])  # type: ignore[arg-type]
    assert difference(build_batch(SENT), stored) == what


def test_a_record_that_is_missing_differs() -> None:
    assert difference(build_batch(SENT), build_batch(SENT[:1])) == "2 records were sent, and 1 are stored"


def test_the_time_of_the_append_may_replace_that_of_the_records() -> None:
    stored = bytearray(build_batch([each._replace(timestamp=99) for each in SENT]))
    assert difference(build_batch(SENT), bytes(stored))
    stored[22] |= LOG_APPEND_TIME_FLAG
    stored[17:21] = crc32c(stored[21:]).to_bytes(4, "big")
    assert not difference(build_batch(SENT), bytes(stored))


def test_less_than_a_header_has_no_checksum() -> None:
    assert crc_of(b"short") == -1


COMPRESSED = """\
scenario: compressed
duration: 1500ms
topics:
  t: {replicas: 1, config: {compression.type: gzip}}
  timed: {replicas: 1, config: {message.timestamp.type: LogAppendTime}}
producers:
  - {topic: t, rate: 20/s, keys: 3}
  - {topic: timed, rate: 20/s, keys: 3}
"""


def test_ap7_a_leader_that_loses_keys_as_it_compresses_is_noticed() -> None:
    assert not run_scenario(parse_scenario(COMPRESSED), 1).violations

    def keyless(original: Callable[..., Any]) -> Callable[..., Any]:
        # It must ask for the records once, one after the other.
        return lambda records, *rest: original((each._replace(key=None) for each in records), *rest)

    with replaced(Replacement(target="storage.validation.rebuild:_build_batch", make=keyless)):
        result = run_scenario(parse_scenario(COMPRESSED), 1, stops_early=True)
    assert result.violations[0].checker == "stored-as-sent"
    assert "was sent with the key" in result.violations[0].what
