"""The forms of `consume --from`."""

from __future__ import annotations

import click
import pytest

from cluster.commands.record_properties import parse_start
from cluster.core.client.config import OffsetReset
from cluster.core.client.consumer import Start
from cluster.core.client.starts import AtTime, BeforeEnd

OPTION = click.Option(["--from"])


def start(text: str) -> Start | None:
    return parse_start(click.Context(click.Command("consume")), OPTION, text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("earliest", OffsetReset.EARLIEST),
        ("latest", OffsetReset.LATEST),
        ("-5", BeforeEnd(5)),
        ("-0", BeforeEnd(0)),
        ("0", AtTime(0)),
        ("1700000000123", AtTime(1_700_000_000_123)),
        ("9223372036854775807", AtTime((1 << 63) - 1)),
        ("2023-11-14T22:13:20Z", AtTime(1_700_000_000_000)),
        ("2023-11-14T22:13Z", AtTime(1_699_999_980_000)),
        ("2023-11-14T23:13:20.123+01:00", AtTime(1_700_000_000_123)),
        ("2023-11-14 22:13:20+00:00", AtTime(1_700_000_000_000)),
        # A record of the millisecond before would be too early.
        ("2023-11-14T22:13:20.123001Z", AtTime(1_700_000_000_124)),
        ("1969-12-31T23:59:59Z", AtTime(0)),
        ("0001-01-01T00:00:00+14:00", AtTime(0)),
        ("9999-12-31T23:59:59-14:00", AtTime(253_402_351_199_000)),
    ],
)
def test_a_start_is_an_end_a_time_or_a_count_from_the_end(text: str, wanted: Start) -> None:
    assert start(text) == wanted


def test_no_start_is_no_start() -> None:
    assert parse_start(click.Context(click.Command("consume")), OPTION, None) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "yesterday",
            "yesterday: expected earliest, latest, a time such as 2026-01-31T10:00:00Z, milliseconds since 1970, or",
        ),
        ("", "milliseconds since 1970"),
        ("-x", "-x: expected earliest, latest, a time"),
        ("--5", "--5: expected earliest, latest, a time"),
        ("1.5", "1.5: expected earliest, latest, a time"),
        ("٣", "٣: expected earliest, latest, a time"),
        ("2026-13-01T00:00:00Z", "2026-13-01T00:00:00Z: expected earliest, latest, a time"),
        ("2026-01-31T10:00:00", "a zone is missing: 2026-01-31T10:00:00Z is UTC"),
        ("2026-01-31", "a zone is missing: 2026-01-31T"),
        ("2026-01-31Z", "2026-01-31Z: expected earliest, latest, a time"),
        ("2026-01-31+02:00", "2026-01-31+02:00: expected earliest, latest, a time"),
        ("9223372036854775808", "above 9223372036854775807"),
        ("9" * 5000, "above 9223372036854775807"),
        ("-" + "9" * 5000, "earliest, latest, a time"),
    ],
)
def test_any_other_start_is_refused_with_all_forms(text: str, reason: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        start(text)
    assert reason in caught.value.message
