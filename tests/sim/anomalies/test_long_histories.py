"""A slice of the benchmark's history: its one lost record is found, and what is settled takes little room."""

from __future__ import annotations

import io
import tracemalloc
from collections import Counter

from bench.history_data import CONSUMERS, KEYS, history_lines
from sim.anomalies.check import AnomalyCheck
from sim.anomalies.history_file import HistoryFile
from sim.anomalies.offset_set import OffsetSet
from sim.anomalies.operations import Operation
from sim.anomalies.packed_map import PackedMap

OPERATIONS = 6_000


def found_in(lines: bytes) -> Counter[str]:
    found: Counter[str] = Counter()
    check = AnomalyCheck(lambda anomaly: found.update([anomaly.name]))
    for each in HistoryFile("h", io.BytesIO(lines)).operations():
        assert isinstance(each, Operation), each
        check.take(each)
    check.finish()
    assert check.operations > OPERATIONS * 0.9, check.operations
    assert found["lost-write"] + check.records_read // CONSUMERS >= KEYS, check.records_read
    return found


def test_benchmark_history_is_sound_but_for_its_lost_record() -> None:
    assert not found_in(b"".join(history_lines(OPERATIONS)))
    assert found_in(b"".join(history_lines(OPERATIONS, lost=100))) == {
        "lost-write": 1,
        "poll-skip": CONSUMERS,
    }
    assert found_in(b"".join(history_lines(OPERATIONS, lost=101))) == {
        "lost-write": 1,
        "poll-skip": CONSUMERS,
    }


def test_packed_map_keeps_what_it_has_while_it_grows() -> None:
    packed = PackedMap()
    keys = [1, (1 << 64) - 1, *range(1 << 40, 1 << 50, 1 << 41)]
    for place, key in enumerate(keys):
        assert packed.get(key) is None
        assert packed.add(key, -place) == -place
    assert [packed.get(key) for key in keys] == [-place for place in range(len(keys))]
    assert packed.add(keys[3], 7) == -3
    assert len(packed) == len(keys)


def test_packed_map_takes_48_bytes_an_entry_at_most() -> None:
    packed = PackedMap()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for key in range(1, 3_000):
            packed.add(key, key)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown <= 48 * 3_000, grown


def test_offset_set_joins_stretches() -> None:
    offsets = OffsetSet()
    for offset in (5, 3, 9, 4, 4, 8, 10):
        offsets.add(offset)
    assert [each for each in range(12) if each in offsets] == [3, 4, 5, 8, 9, 10]
    assert offsets.end == 11
    assert (offsets.first_in(0, 3), offsets.first_in(0, 9), offsets.first_in(4, 9)) == (None, 3, 4)
    assert (offsets.first_in(6, 8), offsets.first_in(6, 20), offsets.first_in(11, 20)) == (None, 8, None)
    assert len(offsets._starts) == 2
