"""The lines of `replog consume`: as Kafka 4.1.0's console consumer and as kcat print the same records."""

from __future__ import annotations

import click
import pytest

from cluster.commands.record_formats import Columns, kcat_format
from cluster.commands.record_properties import with_properties
from cluster.core.client.effects import FetchedBatch
from cluster.core.messages import TopicPartition
from storage.batch import TimestampType
from storage.batch.record import Record

PLACE = TopicPartition("orders", 0)
CREATED = FetchedBatch(4, 3, TimestampType.CREATE)
RECORDS = (
    Record(0, 1795357962740, b"k1", b"value one", (("h1", b"v1"), ("h2", None))),
    Record(1, 1795357962765, None, None),
    Record(2, 1795357962766, b"", b"empty key", (("h", b"1"),)),
    Record(3, 1795357962767, b"k", b"w\tx", (("h1", b"a:b"),)),
)
EVERYTHING = tuple(f"print.{name}=true" for name in ("key", "offset", "partition", "timestamp", "headers"))


def columns(*properties: str, batch: FetchedBatch = CREATED) -> bytes:
    format_record = with_properties(Columns(), properties).format()
    return b"".join(format_record(PLACE, record, batch) for record in RECORDS)


def kcat(text: str, record: Record) -> bytes:
    return kcat_format(text)(PLACE, record, CREATED)


def test_all_columns_are_kafkas_in_kafkas_order() -> None:
    assert columns(*EVERYTHING) == (
        b"CreateTime:1795357962740\tPartition:0\tOffset:0\th1:v1,h2:null\tk1\tvalue one\n"
        b"CreateTime:1795357962765\tPartition:0\tOffset:1\tNO_HEADERS\tnull\tnull\n"
        b"CreateTime:1795357962766\tPartition:0\tOffset:2\th:1\t\tempty key\n"
        b"CreateTime:1795357962767\tPartition:0\tOffset:3\th1:a:b\tk\tw\tx\n"
    )


def test_separators_and_the_word_for_null_can_be_chosen() -> None:
    separators = ("key.separator=:", "line.separator=|", "headers.separator=;", "null.literal=NIL")
    assert columns(*EVERYTHING, *separators, "print.value=false") == (
        b"CreateTime:1795357962740:Partition:0:Offset:0:h1:v1;h2:NIL:k1|"
        b"CreateTime:1795357962765:Partition:0:Offset:1:NO_HEADERS:NIL|"
        b"CreateTime:1795357962766:Partition:0:Offset:2:h:1:|"
        b"CreateTime:1795357962767:Partition:0:Offset:3:h1:a:b:k|"
    )


def test_without_a_property_the_value_alone_is_printed() -> None:
    assert columns() == b"value one\nnull\nempty key\nw\tx\n"


def test_without_any_column_nothing_is_printed() -> None:
    assert columns("print.value=false") == b""


def test_the_leader_epoch_follows_the_offset() -> None:
    line = columns("print.epoch=true", "print.offset=true", "print.key=true").splitlines()[0]
    assert line == b"Offset:0\tEpoch:3\tk1\tvalue one"


@pytest.mark.parametrize(
    ("kind", "shown"),
    [(TimestampType.LOG_APPEND, b"LogAppendTime:1795357962740"), (TimestampType.NO, b"NO_TIMESTAMP")],
)
def test_a_timestamp_says_whose_it_is(kind: TimestampType, shown: bytes) -> None:
    line = columns("print.timestamp=true", batch=FetchedBatch(4, 3, kind)).splitlines()[0]
    assert line == shown + b"\tvalue one"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            "print.offest=true",
            "unknown property 'print.offest'; the nearest is print.offset; known are headers.separator, ",
        ),
        ("print.key=1", "print.key=1: expected true or false"),
        ("print.key", "expected NAME=VALUE"),
    ],
)
def test_an_unknown_property_is_refused_with_the_nearest(value: str, reason: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        with_properties(Columns(), (value,))
    assert reason in caught.value.message


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("%t %p %o %T", b"orders 0 0 1795357962740"),
        ("%K:%k %S:%s", b"2:k1 9:value one"),
        ("[%h]", b"[h1=v1,h2=NULL]"),
        ("%R", b"\0\0\0\x09"),
        ("100%%", b"100%"),
        (r"a\tb\n\r\\\0\x41\x7\"", b'a\tb\n\r\\\0A\x07"'),
        ("grüße %s\udcff", "grüße value one".encode() + b"\xff"),
        ("", b""),
    ],
)
def test_a_format_string_is_kcats(text: str, wanted: bytes) -> None:
    assert kcat(text, RECORDS[0]) == wanted


def test_null_has_the_size_minus_one_and_no_bytes() -> None:
    assert kcat("%K[%k]%S[%s]%h", RECORDS[1]) == b"-1[]-1[]"
    assert kcat("%R", RECORDS[1]) == b"\xff\xff\xff\xff"
    assert kcat("%K[%k]", RECORDS[2]) == b"0[]"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("%q", "no sequence %q (character 1): there are %s %S %R %k %K %t %p %o %T %h %%"),
        ("%s %", "no sequence % (character 4): there are"),
        ("%s\n%ü", "no sequence %ü (character 4): there are"),
        (r"%s\d", r"no sequence \d (character 3): there are \n \r \t \0 \\ \xNN"),
        (r"%s\xg", r"no sequence \x (character 3): there are"),
        ("%s\\", "no sequence \\ (character 3): there are"),
    ],
)
def test_an_unknown_sequence_is_refused_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        kcat_format(text)
    assert str(caught.value).startswith(reason)
