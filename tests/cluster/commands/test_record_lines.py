"""Lines as records, as Kafka 4.1.0's LineMessageReader makes them of the same lines, where these are UTF-8."""

from __future__ import annotations

import click
import pytest

from cluster.commands.produce import reader_for
from cluster.commands.record_lines import BadLine, LineRules, Outgoing, shown
from cluster.commands.record_properties import line_rules

KEY = ("parse.key=true", "key.separator=:")
HEADERS = ("parse.headers=true",)
ALL = ("parse.key=true", "parse.headers=true", "null.marker=NULL")


def read(line: bytes, *properties: str, number: int = 1) -> Outgoing:
    return line_rules(None, properties).read(line, number)


@pytest.mark.parametrize(
    ("properties", "line", "wanted"),
    [
        ((), b"k\tv", Outgoing(b"k\tv")),
        ((), b"", Outgoing(b"")),
        (("parse.key=true",), b"k\tv\tw", Outgoing(b"v\tw", b"k")),
        (KEY, b"k:v:w", Outgoing(b"v:w", b"k")),
        (KEY, b":v", Outgoing(b"v", b"")),
        (KEY, b"k:", Outgoing(b"", b"k")),
        (KEY, b"\xff:\xfe", Outgoing(b"\xfe", b"\xff")),
        (("parse.key=false", "key.separator=:"), b"k:v", Outgoing(b"k:v")),
        (HEADERS, b"a:1,b:2\tv", Outgoing(b"v", None, (("a", b"1"), ("b", b"2")))),
        (HEADERS, b"a:b:c\tv", Outgoing(b"v", None, (("a", b"b:c"),))),
        (HEADERS, b"a:1,,\tv", Outgoing(b"v", None, (("a", b"1"),))),
        (HEADERS, b",\tv", Outgoing(b"v")),
        ((*HEADERS, "headers.delimiter=|"), b"a:1|v", Outgoing(b"v", None, (("a", b"1"),))),
        ((*HEADERS, "headers.separator=;"), b"a:1;b:\tv", Outgoing(b"v", None, (("a", b"1"), ("b", b"")))),
        ((*HEADERS, "headers.key.separator=="), b"a=1\tv", Outgoing(b"v", None, (("a", b"1"),))),
        (ALL, b"a:1,b:NULL\tk\tv", Outgoing(b"v", b"k", (("a", b"1"), ("b", None)))),
        (ALL, b"NULL\tNULL\tNULL", Outgoing(None, None)),
        (("null.marker=",), b"", Outgoing(None)),
    ],
)
def test_a_line_is_split_as_kafkas_console_producer_splits_it(
    properties: tuple[str, ...], line: bytes, wanted: Outgoing
) -> None:
    assert read(line, *properties) == wanted


@pytest.mark.parametrize(
    ("properties", "line", "reason"),
    [
        (KEY, b"kv", "no key.separator ':' in 'kv'"),
        (HEADERS, b"a:1", r"no headers.delimiter '\t' in 'a:1'"),
        (HEADERS, b"a\tv", "no headers.key.separator ':' in the header 'a'"),
        (HEADERS, b"\tv", "no headers.key.separator ':' in the header ''"),
        (HEADERS, b"\xff:1\tv", r"the header key '\xff' is not UTF-8".replace("\\", "\\\\")),
        (ALL, b"NULL:1\tk\tv", "the header 'NULL:1' has the null.marker as its key, which cannot be null"),
    ],
)
def test_a_line_that_is_no_record_is_named_by_its_number(
    properties: tuple[str, ...], line: bytes, reason: str
) -> None:
    with pytest.raises(BadLine) as caught:
        read(line, *properties, number=7)
    assert str(caught.value) == f"line 7: {reason}"


@pytest.mark.parametrize(
    ("properties", "line", "wanted"),
    [
        (KEY, b"kv", Outgoing(b"kv")),
        (HEADERS, b"v", Outgoing(b"v")),
        (HEADERS, b"a\tv", Outgoing(b"v", None, (("a", None),))),
        (HEADERS, b"\xff:1\tv", Outgoing(b"v", None, (("\ufffd", b"1"),))),
    ],
)
def test_ignore_error_sends_a_line_as_far_as_it_can_be_read(
    properties: tuple[str, ...], line: bytes, wanted: Outgoing
) -> None:
    assert read(line, *properties, "ignore.error=true") == wanted


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (("parse.key=true", "key.separator="), "key.separator is empty"),
        (
            ("parse.key=true", "key.separator=:", "null.marker=:"),
            "null.marker and key.separator may not be equal",
        ),
        ((*HEADERS, "headers.delimiter=,"), "headers.delimiter and headers.separator may not be equal"),
        ((*HEADERS, "headers.delimiter=:"), "headers.delimiter and headers.key.separator may not be equal"),
        ((*HEADERS, "headers.separator=:"), "headers.separator and headers.key.separator may not be equal"),
        ((*HEADERS, "null.marker=,"), "null.marker and headers.separator may not be equal"),
        (
            ("prase.key=true",),
            "unknown property 'prase.key'; the nearest is parse.key; known are headers.delimiter, ",
        ),
        (("parse.key=yes",), "parse.key=yes: expected true or false"),
        (("parse.key",), "expected NAME=VALUE, got 'parse.key'"),
        (("key.separator=:",), "key.separator has no effect without --property parse.key=true"),
        (("headers.separator=;",), "headers.separator has no effect without --property parse.headers=true"),
    ],
)
def test_properties_that_cannot_be_meant_are_refused(properties: tuple[str, ...], reason: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        line_rules(None, properties)
    assert reason in caught.value.message
    assert caught.value.message.startswith("--property")


def test_a_value_keeps_its_spaces_and_the_last_of_a_name_counts() -> None:
    properties = ("parse.key=true", "key.separator=:", "key.separator= ")
    assert line_rules(None, properties).read(b"k v", 1) == Outgoing(b"v", b"k")


def test_the_option_key_separator_is_short_for_two_properties() -> None:
    assert line_rules("=", ()) == line_rules(None, ("parse.key=true", "key.separator=="))
    assert line_rules(None, ()) == LineRules()


def test_a_fixed_partition_counts_for_every_line() -> None:
    placed = reader_for(lambda line, number: Outgoing(line, partition=1), "t", 2, [2])
    assert placed(b"v", 1) == Outgoing(b"v", partition=2)


def test_a_partition_that_the_topic_has_not_is_a_bad_line() -> None:
    placed = reader_for(lambda line, number: Outgoing(line, partition=3), "t", None, [0, 1, 2])
    with pytest.raises(BadLine, match=r"^line 5: topic t has no partition 3: its partitions are 0 to 2$"):
        placed(b"v", 5)


def test_a_long_line_is_shown_in_part() -> None:
    assert shown(b"x" * 61) == f"'{'x' * 60}…'"
    assert shown("é".encode() * 30) == f"'{'é' * 30}'"
