"""Plants one anomaly into a sound history; the check must find it by its name, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.anomalies.check import NAMES
from sim.anomalies.operations import Polled, Sent
from sim.hosts.history import Outcome
from tests.sim.anomalies.histories import Did, Item, all_found, polls, sends

# Below it a record can be lost before every reader begins.
FIRST = 3
KEYS = ("t-0", "t-1")
Log = dict[int, str]
# Whoever plants something is a client that did nothing before.
NEW = "planter"


@st.composite
def sound_histories(draw: st.DrawFn) -> tuple[list[Item], dict[str, Log]]:
    """Return a history without anomalies, and its logs: each has four records or more, all read in order."""
    logs: dict[str, Log] = {}
    streams: list[list[Item]] = []
    for key in KEYS:
        count = draw(st.integers(4, 6))
        log = {FIRST + place: f"{key}/{place}" for place in range(count)}
        logs[key] = log
        streams.append([_sent(draw, offset, value, key) for offset, value in log.items()])
        for reader in ("reader-1", "reader-2"):
            streams.append([*_reads(draw, log, key, reader)])
    order = draw(st.permutations([place for place, stream in enumerate(streams) for _ in stream]))
    return [streams[place].pop(0) for place in order], logs


def _sent(draw: st.DrawFn, offset: int, value: str, key: str) -> Did:
    """Return a send that was answered, with or without an offset, or whose outcome is unknown."""
    kind = draw(st.sampled_from(("placed", "placed", "unplaced", "unknown")))
    outcome = Outcome.INFO if kind == "unknown" else Outcome.OK
    return sends(value, offset if kind == "placed" else -1, outcome, by=f"producer-{key}", key=key)


def _reads(draw: st.DrawFn, log: Log, key: str, reader: str) -> list[Did]:
    """Return polls of one to three records that read the whole log."""
    records, polled = list(log.items()), []
    while records:
        size = draw(st.integers(1, 3))
        polled.append(polls(*records[:size], by=reader, key=key))
        records = records[size:]
    return polled


def _end(log: Log) -> int:
    return max(log) + 1


def _lost(key: str, log: Log, at: int) -> list[Did]:
    return [sends("new", FIRST - 1, by=NEW, key=key)]


def _unseen(key: str, log: Log, at: int) -> list[Did]:
    return [sends("new", _end(log), by=NEW, key=key)]


def _two_values(key: str, log: Log, at: int) -> list[Did]:
    return [sends("new", outcome=Outcome.INFO, by="other", key=key), polls((at, "new"), by=NEW, key=key)]


def _two_offsets(key: str, log: Log, at: int) -> list[Did]:
    return [polls((_end(log), log[at]), by=NEW, key=key)]


def _aborted(key: str, log: Log, at: int) -> list[Did]:
    refused = sends("new", outcome=Outcome.FAIL, by="other", key=key)
    return [refused, polls((_end(log), "new"), by=NEW, key=key)]


def _never_sent(key: str, log: Log, at: int) -> list[Did]:
    return [polls((_end(log), "new"), by=NEW, key=key)]


def _own(key: str, log: Log, at: int) -> list[Did]:
    end = _end(log)
    return [(NEW, Outcome.OK, (Sent(key, "new", end), Polled(key, ((end, "new"),))))]


def _skip(key: str, log: Log, at: int) -> list[Did]:
    return [polls((each, log[each]), by=NEW, key=key) for each in (at, at + 2)]


def _skip_inside(key: str, log: Log, at: int) -> list[Did]:
    return [polls((at, log[at]), (at + 2, log[at + 2]), by=NEW, key=key)]


def _back(key: str, log: Log, at: int) -> list[Did]:
    return [polls((each, log[each]), by=NEW, key=key) for each in (at + 1, at)]


def _back_inside(key: str, log: Log, at: int) -> list[Did]:
    return [polls((at + 1, log[at + 1]), (at, log[at]), by=NEW, key=key)]


def _sent_pair(log: Log, key: str, *, is_one: bool) -> list[Did]:
    first, second = Sent(key, "new", _end(log) + 1), Sent(key, "newer", _end(log))
    reads = polls((_end(log), "newer"), (_end(log) + 1, "new"), by="other", key=key)
    if is_one:
        return [(NEW, Outcome.OK, (first, second)), reads]
    return [(NEW, Outcome.OK, (first,)), (NEW, Outcome.OK, (second,)), reads]


def _sent_around(key: str, log: Log, at: int) -> list[Did]:
    end = _end(log)
    between = sends("newer", end + 1, by="other", key=key)
    both = (NEW, Outcome.OK, (Sent(key, "new", end), Sent(key, "newest", end + 2)))
    reads = polls((end, "new"), (end + 1, "newer"), (end + 2, "newest"), by="reader", key=key)
    return [between, both, reads]


PLANTED: dict[str, Callable[[str, Log, int], list[Did]]] = {
    "inconsistent-offsets": _two_values,
    "duplicate": _two_offsets,
    "G1a": _aborted,
    "precommitted-read": _own,
    "lost-write": _lost,
    "unseen": _unseen,
    "unsent-read": _never_sent,
    "poll-skip": _skip,
    "int-poll-skip": _skip_inside,
    "nonmonotonic-poll": _back,
    "int-nonmonotonic-poll": _back_inside,
    "nonmonotonic-send": lambda key, log, at: _sent_pair(log, key, is_one=False),
    "int-nonmonotonic-send": lambda key, log, at: _sent_pair(log, key, is_one=True),
    "int-send-skip": _sent_around,
}

# What may come of another anomaly: of a value at two offsets, the one that is seen first may be out of order.
FOLLOW = {("duplicate", "nonmonotonic-send")}


def mixed(data: st.DataObject, first: list[Item], second: list[Did]) -> list[Item]:
    """Return both histories as one, each in its order."""
    count = len(second)
    places = sorted(data.draw(st.lists(st.integers(0, len(first)), min_size=count, max_size=count)))
    whole = list(first)
    for place, item in reversed(list(zip(places, second, strict=True))):
        whole.insert(place, item)
    return whole


def test_every_name_is_planted() -> None:
    assert set(PLANTED) == set(NAMES)


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(sound_histories())
def test_sound_histories_show_nothing(drawn: tuple[list[Item], dict[str, Log]]) -> None:
    assert not all_found(*drawn[0])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_planted_anomaly_is_found_by_its_name_alone(name: str, data: st.DataObject) -> None:
    history, logs = data.draw(sound_histories())
    key = data.draw(st.sampled_from(KEYS))
    at = data.draw(st.integers(FIRST, _end(logs[key]) - 3))
    planted = PLANTED[name](key, logs[key], at)
    whole = mixed(data, history, planted)
    found = [each for each in all_found(*whole) if (name, each.name) not in FOLLOW]
    assert {each.name for each in found} == {name}
    assert len(found) == 1 and found[0].is_allowed == (name == "int-send-skip")
