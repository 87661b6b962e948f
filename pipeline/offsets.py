"""The options `startingOffsets` and `endingOffsets`, as a batch of Kafka's source takes them. It does not use Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from pipeline.errors import SourceError

# Kafka's numbers for these offsets; its Spark source accepts them in JSON.
EARLIEST, LATEST = -2, -1
STARTING, ENDING = "startingOffsets", "endingOffsets"
_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_ABOVE_OFFSETS = 1 << 63
_PARTITION = re.compile("0|[1-9][0-9]{0,9}")
_ABOVE_PARTITIONS = 1 << 31
# How much of an option's text a message shows.
_SHOWN = 80


@final
@dataclass(frozen=True, slots=True)
class OffsetOption:
    """Holds the bounds of partitions by the option `name`; `default` for all that it does not name."""

    name: str
    default: int
    by_partition: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def of(self, topic: str, partition: int) -> int:
        return self.by_partition.get((topic, partition), self.default)

    def check_named(self, read: Collection[tuple[str, int]]) -> None:
        """Raise SourceError if a partition is named that is not one of those to read: its offset would do nothing."""
        for topic, partition in self.by_partition:
            if (topic, partition) not in read:
                raise SourceError(
                    f"option {self.name}: {topic}-{partition} is not among the partitions to read"
                )


def offset_option(options: Mapping[str, str], name: str) -> OffsetOption:
    """Returns the bounds of the option `name`: a word, or JSON {"topic": {"0": offset}}.

    A read begins at `earliest` and ends at `latest` where the option says nothing. In JSON, -2 is the earliest offset
    to begin at and -1 the latest to end at. Raises SourceError for text that is neither, and for a read that would
    begin at the latest offset or end at the earliest.
    """
    assert name in (STARTING, ENDING), name
    default = EARLIEST if name == STARTING else LATEST
    text = options.get(name.lower())
    if text is None:
        return OffsetOption(name, default)
    if text in _WORDS:
        if _WORDS[text] != default:
            raise SourceError(f"option {name} cannot be {text}: a batch would read nothing")
        return OffsetOption(name, default)
    table = json_object(options, name)
    if not all(isinstance(parts, dict) and all(map(is_whole, parts.values())) for parts in table.values()):
        raise SourceError(f'option {name} is like {{"topic": {{"0": 23}}}}, an offset for each partition')
    return OffsetOption(name, default, dict(_checked(table, name, default)))


def _checked(
    table: Mapping[str, Mapping[str, int]], name: str, default: int
) -> Iterator[tuple[tuple[str, int], int]]:
    word = "-2 for earliest" if default == EARLIEST else "-1 for latest"
    for topic, parts in table.items():
        for partition, offset in parts.items():
            if not _PARTITION.fullmatch(partition) or int(partition) >= _ABOVE_PARTITIONS:
                raise SourceError(
                    f"option {name}: {_shown(partition)} of {topic} is no number of a partition"
                )
            if offset != default and not 0 <= offset < _ABOVE_OFFSETS:
                raise SourceError(
                    f"option {name}: {topic}-{partition} takes an offset or {word}, not {offset}"
                )
            yield (topic, int(partition)), offset


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def json_object(options: Mapping[str, str], name: str) -> dict[str, Any]:
    """Returns the option `name` as a JSON object. Raises SourceError for other text."""
    text = options[name.lower()]
    try:
        parsed = json.loads(text)
    # Brackets in brackets may be too many for Python.
    except (ValueError, RecursionError) as error:
        words = "earliest, latest or " if name in (STARTING, ENDING) else ""
        raise SourceError(f"option {name}: expected {words}JSON, got {_shown(text)} ({error})") from error
    if not isinstance(parsed, dict):
        raise SourceError(f"option {name} must be a JSON object")
    return parsed


def _shown(text: str) -> str:
    """Returns the text for a message, and only the begin of a very long one."""
    return (
        repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r} and {len(text) - _SHOWN} characters more"
    )
