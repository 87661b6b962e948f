"""What frames the records of a batch, kept from one batch to the next: producers of fixed-size values repeat it.

Two batches of equal size and count whose framing bytes (lengths, offset deltas, header counts) are equal hold equally
long records at equal places. So what was proven of the first holds for the second, and a few comparisons tell that.
"""

from __future__ import annotations

from typing import Final, final

from storage.record_run import FIRST_OF_THREE, Run, run_at, timestamp_deltas
from storage.record_scan import RecordScan, scan_records
from storage.varint import read_varint, read_varlong

_FEWEST: Final = 2  # records of a run; the framing of one alone lies in pieces, not in columns


@final
class RecordShape:
    """Of a batch that `scan` was found for. Its runs are all of it."""

    __slots__ = ("_framing", "_runs", "_scan", "_times", "count", "size_bytes")

    def __init__(self, payload: bytes | bytearray, count: int, scan: RecordScan, runs: list[Run]) -> None:
        self.size_bytes, self.count = len(payload), count
        self._scan, self._runs = scan, runs
        self._framing = [(place, payload[place]) for run in runs for place in run.framing]
        self._times = [(place, payload[place]) for run in runs for place in run.times]

    def scan_of(self, payload: bytes | bytearray) -> RecordScan | None:
        """What `scan_records` finds in a batch of the same size and count; None where its shape is another."""
        for place, framing in self._framing:
            if payload[place] != framing:
                return None
        for place, deltas in self._times:
            if payload[place] != deltas:
                return self._scan_at_other_times(payload)
        return self._scan

    def _scan_at_other_times(self, payload: bytes | bytearray) -> RecordScan | None:
        deltas: set[int] = set()
        for run in self._runs:
            found = timestamp_deltas(payload, run.times)
            if found is None:
                return None
            deltas |= found
        return RecordScan(min(deltas), max(deltas), self._scan.has_null_key)


@final
class RecordShapes:
    """Of the batches that come one after the other, each with its records from byte `start` on.

    A shape is kept from the second batch of a size and count on: where they change all the time, none is.
    """

    __slots__ = ("_before", "_is_tried", "_shape", "_start")

    def __init__(self, start: int) -> None:
        self._start = start
        self._shape: RecordShape | None = None
        self._before = (-1, -1)  # size and count of the last batch whose shape was not known
        self._is_tried = False  # whether one of such was looked for a shape

    def scan(self, payload: bytes | bytearray, record_count: int) -> RecordScan | None:
        """As `scan_records` from byte `start` on."""
        shape = self._shape
        if shape is not None and record_count == shape.count and len(payload) == shape.size_bytes:
            scan = shape.scan_of(payload)
            if scan is not None:
                return scan
            return scan_records(payload, self._start, record_count)
        scan = scan_records(payload, self._start, record_count)
        if scan is not None:
            self._remember(payload, record_count, scan)
        return scan

    def _remember(self, payload: bytes | bytearray, record_count: int, scan: RecordScan) -> None:
        if self._before != (len(payload), record_count):
            self._before, self._is_tried = (len(payload), record_count), False
        elif not self._is_tried:
            self._is_tried = True
            self._shape = _shape_of(payload, self._start, record_count, scan) or self._shape


def _shape_of(
    payload: bytes | bytearray, position: int, record_count: int, scan: RecordScan
) -> RecordShape | None:
    """Of a batch that is sound; None unless its records are of one shape."""
    if record_count < _FEWEST:
        return RecordShape(payload, 1, scan, [_run_of_one(payload, position)]) if record_count else None
    runs: list[Run] = []
    index = 0
    while index < record_count:
        run = run_at(payload, position, index, record_count) if index < FIRST_OF_THREE else None
        if run is None or timestamp_deltas(payload, run.times) is None:
            return None
        runs.append(run)
        index, position = run.behind, run.end
    return RecordShape(payload, record_count, scan, runs)


def _run_of_one(payload: bytes | bytearray, position: int) -> Run:
    """All but the key's and the value's content, its timestamp delta too."""
    _, attributes_at = read_varint(payload, position)
    _, offset_at = read_varlong(payload, attributes_at + 1)
    _, key_at = read_varint(payload, offset_at)
    key_size, key_start = read_varint(payload, key_at)
    value_at = key_start + max(key_size, 0)
    value_size, value_start = read_varint(payload, value_at)
    pieces = [slice(position, key_start), slice(value_at, value_start)]
    if key_size <= 0:
        pieces = [slice(position, value_start)]
    pieces.append(slice(value_start + max(value_size, 0), len(payload)))
    return Run(pieces, [], key_size < 0, 1, len(payload))
