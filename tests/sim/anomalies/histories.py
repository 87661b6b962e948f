"""Hand-made histories: operations in short, and what the check finds in them."""

from __future__ import annotations

from sim.anomalies.check import AnomalyCheck
from sim.anomalies.operations import NO_OFFSET, Assigned, Moved, Operation, Polled, Sent, Sought
from sim.anomalies.rules import Anomaly
from sim.hosts.history import Outcome

K = "t-0"
# What a client did, without its line.
Did = tuple[str, Outcome, tuple[Sent | Polled, ...]]
Item = Did | Moved


def sends(
    value: str | int, offset: int = NO_OFFSET, outcome: Outcome = Outcome.OK, *, by: str = "p", key: str = K
) -> Did:
    return by, outcome, (Sent(key, value, offset),)


def polls(*records: tuple[int, str | int], by: str = "c", key: str = K) -> Did:
    return by, Outcome.OK, (Polled(key, records),)


def stored(values: str, start: int = 0) -> list[Did]:
    """Return one answered send for each letter, at the offsets from `start` on."""
    return [sends(value, start + place) for place, value in enumerate(values)]


def assigns(*keys: str, by: str = "c", is_subscription: bool = False) -> Moved:
    return Assigned(0, by, keys, is_subscription)


def seeks(*keys: str, by: str = "c") -> Moved:
    return Sought(0, by, keys)


def all_found(*items: Item) -> list[Anomaly]:
    """Return every anomaly of the history, in the order in which they are found."""
    found: list[Anomaly] = []
    check = AnomalyCheck(found.append)
    for line, item in enumerate(items, 1):
        if isinstance(item, Assigned | Sought):
            check.move(item._replace(line=line))
        else:
            check.take(Operation(line, *item))
    check.finish()
    return found


def names(*items: Item) -> list[str]:
    """Return the names of the anomalies that Kafka does not allow, sorted."""
    return sorted(each.name for each in all_found(*items) if not each.is_allowed)
