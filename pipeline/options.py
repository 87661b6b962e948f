"""The names of the data source's options, and its flags. What it does not know is refused, never ignored: a misspelled
filter would read everything. This module does not use Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from pipeline.errors import SourceError

OPTIONS = (
    "assign",
    "endingOffsets",
    "failOnDataLoss",
    "includeHeaders",
    "path",
    "startingOffsets",
    "subscribe",
    "subscribePattern",
)
# Spark's Structured Streaming + Kafka Integration Guide, and KafkaSourceProvider for what the guide leaves out.
KAFKA_OPTIONS = (
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "maxOffsetsPerTrigger",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "minPartitions",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "topic",
)
# Once true or false, so false is still taken.
_PUSHDOWN = "pushdown"
_CLIENT_PREFIX = "kafka."
_SEVERAL_PATHS = "paths"


def check_option_names(names: Iterable[str]) -> None:
    """Raise SourceError for the first of `names` that is no option of this source; letter case does not matter.

    The message says whether Kafka's source has the option, or which one is nearest.
    """
    known = {name.lower(): name for name in OPTIONS}
    kafkas = {name.lower(): name for name in KAFKA_OPTIONS}
    for name in sorted(each.lower() for each in names):
        if name in known or name == _PUSHDOWN:
            continue
        if name == _SEVERAL_PATHS:
            raise SourceError("load() takes one log directory, not a list of them")
        if name.startswith(_CLIENT_PREFIX):
            raise SourceError(f"option {name} is for Kafka's clients: this source reads files, option path")
        if name in kafkas:
            raise SourceError(f"option {kafkas[name]} of Kafka's source is not supported here yet")
        near = get_close_matches(name, [*known, *kafkas], n=1, cutoff=0.6)
        nearest = known.get(near[0]) or kafkas[near[0]] if near else None
        hint = f"did you mean {nearest}?" if nearest else f"known are {', '.join(OPTIONS)}"
        raise SourceError(f"unknown option {name}: {hint}")


def check_pushdown(options: Mapping[str, str]) -> None:
    """Raise SourceError if filters are to be pushed down.

    Spark would keep those of one use of a frame for all its other uses.
    """
    if flag(options, _PUSHDOWN, default=False):
        raise SourceError(
            "option pushdown: filters are Spark's own work, since it keeps those of one use of a frame for all others; "
            "narrow the read with subscribe, assign, startingOffsets and endingOffsets"
        )


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Returns the option `name`, whose letter case does not matter. Raises SourceError unless it is true or false."""
    value = next((value for key, value in options.items() if key.lower() == name.lower()), None)
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise SourceError(f"option {name} takes true or false, not {value!r}")
    return value.lower() == "true"
