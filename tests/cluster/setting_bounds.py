"""The settings of brokers and controllers, each with values at and beyond its bounds, from the tables of the code."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.core.config import BROKER_LIMITS
from cluster.core.controller.config import CONTROLLER_LIMITS

# The layout of a cluster decides these.
FIXED = ("node_id", "port", "controller_id")
LIMITS = {
    name.replace("_", "."): limits
    for name, limits in {**BROKER_LIMITS, **CONTROLLER_LIMITS}.items()
    if name not in FIXED
}
# What is no whole number of 64 bits as Kafka reads it.
NO_NUMBERS = (
    "",
    " ",
    "1.0",
    "1e3",
    "1_0",
    "0x10",
    "seven",
    "--1",
    "1 0",
    "1\n2",
    str(1 << 63),
    "9" * 5000,
    "\N{ARABIC-INDIC DIGIT ONE}",
)


def beyond() -> Iterator[tuple[str, int]]:
    """Each setting with the nearest values that it must not have."""
    for name, (least, greatest) in LIMITS.items():
        yield name, least - 1
        if greatest < (1 << 63) - 1:
            yield name, greatest + 1


def at_bounds() -> Iterator[tuple[str, int]]:
    """Each setting with its least and its greatest value, and those next to them."""
    for name, (least, greatest) in LIMITS.items():
        for value in dict.fromkeys((least, least + 1, greatest - 1, greatest)):
            yield name, value


def with_partners(name: str, value: int) -> dict[str, int]:
    """The setting, and those that have to go with it where two are compared."""
    if name in ("replica.lag.time.max.ms", "replica.socket.timeout.ms"):
        return {name: value, "replica.fetch.wait.max.ms": min(value, 100)}
    if name == "replica.fetch.wait.max.ms":
        at_least = max(value, 4_000)
        return {name: value, "replica.lag.time.max.ms": at_least, "replica.socket.timeout.ms": at_least}
    if name == "retry.backoff.ms":
        return {name: value, "retry.backoff.max.ms": max(value, 400)}
    if name == "retry.backoff.max.ms":
        return {name: value, "retry.backoff.ms": min(value, 100)}
    if name == "broker.session.timeout.ms":
        return {name: value, "broker.heartbeat.interval.ms": min(value - 1, 400)}
    if name == "broker.heartbeat.interval.ms":
        return {name: value, "broker.session.timeout.ms": max(value + 1, 1_800)}
    return {name: value}
