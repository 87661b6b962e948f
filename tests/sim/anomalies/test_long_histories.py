"""A slice of the benchmark's history: its one lost record is found, and what is settled takes little room."""

from __future__ import annotations

import io
import tracemalloc
from collections import Counter
from pathlib import Path

from bench.history_data import CONSUMERS, KEYS, history_lines
from sim.anomalies import order
from sim.anomalies.check import AnomalyCheck
from sim.anomalies.history_file import HistoryFile
from sim.anomalies.key_log import KeyLog
from sim.anomalies.operations import NO_OFFSET, Operation
from sim.anomalies.order import IntNonmonotonicSend, NonmonotonicSend
from sim.anomalies.packed_map import PackedMap
from sim.anomalies.rules import Answered, Placed
from sim.hosts.history import Outcome
from tests.sim.anomalies.histories import Item, all_found, polls, sends
from tests.storage.lines import lines_of

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


def lines_for_holes(records: int) -> int:
    """Count the lines that check a history in which two clients pass over a hole after each of the records."""
    operations: list[Item] = []
    for offset in range(0, 2 * records, 2):
        read = (offset, str(offset))
        operations += [sends(str(offset), offset), polls(read), polls(read, by="d")]
    return lines_of(lambda: all_found(*operations), str(Path(order.__file__).parent))


def test_holes_that_stay_open_cost_later_records_nothing() -> None:
    few, many = lines_for_holes(30), lines_for_holes(300)
    assert many < 12 * few, (few, many)


def test_value_in_a_hole_reports_all_who_passed_over_it_and_no_others() -> None:
    around = [polls((offset, str(offset)), by=by) for offset in (0, 4, 6, 9) for by in ("c", "d")]
    sent = [sends(str(offset), offset) for offset in (0, 4, 6, 9)]
    found = all_found(*sent, *around, *[sends(str(each), each, by=f"late-{each}") for each in (2, 3, 7)])
    skips = [each.evidence for each in found if each.name == "poll-skip"]
    assert skips == [
        "c read offset 0 and then 4 (line 7), and not 2, which has a value by line 13",
        "d read offset 0 and then 4 (line 8), and not 2, which has a value by line 13",
        "c read offset 6 and then 9 (line 11), and not 7, which has a value by line 15",
        "d read offset 6 and then 9 (line 12), and not 7, which has a value by line 15",
    ]


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


def test_sends_whose_offsets_their_readers_have_shown_wait_for_nothing() -> None:
    rules = [NonmonotonicSend(lambda anomaly: None), IntNonmonotonicSend(lambda anomaly: None)]
    log = KeyLog("t-0")
    for number in range(1, 50):
        both = Operation(number, "p", Outcome.OK, ())
        for digest in (2 * number, 2 * number + 1):
            for rule in rules:
                rule.judges()[Answered](log, Answered(both, digest, NO_OFFSET))
    assert all(rule._waiting["t-0"] for rule in rules)
    for digest in range(2, 100):
        read = Operation(60, "c", Outcome.OK, ())
        for rule in rules:
            rule.judges()[Placed](log, Placed(read, "v", digest, digest, None, True))
        log.place(digest, digest, 60)
    assert not any(rule._waiting["t-0"] for rule in rules)
