"""Records of one shape: the framing that they share is checked at once and remembered for the next batch.

When the records of a batch are all of the same size, they are equally far apart, so each byte of their framing
(lengths, offset deltas, header counts) forms a column: a slice of the batch with a step. Producers of fixed-size values
send such records, and their next batch has the same framing. What was proven of one batch then holds for every batch
with equal framing bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

from storage.codec.varint import SHORT_ENCODINGS, read_varint, read_varlong

# The offset deltas of one byte, and those of two bytes as two columns; a run ends where their width changes.
_ONE_BYTE_DELTAS: Final = bytes(range(0, 0x80, 2))
_TWO_BYTE_DELTAS: Final = SHORT_ENCODINGS[0x80::2]
_LOW_BYTES: Final = bytes(pair[0] for pair in _TWO_BYTE_DELTAS)
_HIGH_BYTES: Final = bytes(pair[1] for pair in _TWO_BYTE_DELTAS)
_FIRST_OF_TWO: Final = len(_ONE_BYTE_DELTAS)
_FIRST_OF_THREE: Final = _FIRST_OF_TWO + len(_TWO_BYTE_DELTAS)


# No named tuple: an append reads these fields, and those of a class with slots are read three times as fast.
@final
@dataclass(slots=True)
class RecordScan:
    """The facts that a leader needs of one batch's records, whose offset deltas are 0, 1, 2 …

    The timestamp deltas are in milliseconds from the batch's base timestamp; 0 where there is no record.
    """

    least_timestamp_delta: int
    greatest_timestamp_delta: int
    has_null_key: bool


class RecordPlaces(NamedTuple):
    """The places of one record's fields in its batch, in field order.

    `_at` is the first byte of a number, `_start` the first byte of a content; `end` is exclusive. A negative size is
    null. The timestamp delta is at `attributes_at + 1`.
    """

    attributes_at: int
    offset_at: int
    key_size_at: int
    key_size: int
    key_start: int
    value_size_at: int
    value_start: int
    headers_at: int
    end: int


class Run(NamedTuple):
    """Records of one shape, up to the record with index `next_index`, which begins at byte `end`.

    `framing` holds the columns that say where records, keys and values begin and end. `times` holds the columns of the
    timestamp deltas, which are not checked yet: only `timestamp_deltas` shows whether all are of one width.
    """

    framing: list[slice]
    times: list[slice]
    has_null_keys: bool
    next_index: int
    end: int


def places_at(payload: bytes | bytearray, position: int) -> RecordPlaces:
    """Find the fields of the record at `position`, up to its header count; checks nothing.

    Raises IndexError past the end of `payload`, InvalidRecord for a number that is too long.
    """
    length, attributes_at = read_varint(payload, position)
    _, offset_at = read_varlong(payload, attributes_at + 1)
    _, key_size_at = read_varint(payload, offset_at)
    key_size, key_start = read_varint(payload, key_size_at)
    value_size_at = key_start + key_size if key_size > 0 else key_start
    value_size, value_start = read_varint(payload, value_size_at)
    headers_at = value_start + value_size if value_size > 0 else value_start
    return RecordPlaces(
        attributes_at,
        offset_at,
        key_size_at,
        key_size,
        key_start,
        value_size_at,
        value_start,
        headers_at,
        attributes_at + length,
    )


def run_at(payload: bytes | bytearray, position: int, first: int, record_count: int) -> Run | None:
    """Find the run that begins with record `first`, at byte `position`. It takes all records up to the one whose offset
    delta needs more bytes.

    Returns None unless each of them has the shape of the first. Attributes are not compared: nothing reads them. Raises
    IndexError and InvalidRecord when the first record is broken.
    """
    if first >= _FIRST_OF_THREE:
        return None
    places = places_at(payload, position)
    attributes_at, offset_at, key_size_at, key_size, key_start, value_size_at, value_start, headers_at, _ = (
        places
    )
    stride = places.end - position
    if places.end < attributes_at or headers_at + 1 != places.end or payload[headers_at]:
        return None
    next_index = min(record_count, _FIRST_OF_TWO if first < _FIRST_OF_TWO else _FIRST_OF_THREE)
    count = next_index - first
    end = position + count * stride
    if end > len(payload):
        return None
    framing = [slice(at, end, stride) for at in range(offset_at, key_size_at)]
    if [payload[place] for place in framing] != _encoded_offsets(first, next_index):
        return None
    constant = (
        *range(position, attributes_at),
        *range(key_size_at, key_start),
        *range(value_size_at, value_start),
        headers_at,
    )
    for at in constant:
        place = slice(at, end, stride)
        if payload[place].count(payload[at]) != count:
            return None
        framing.append(place)
    times = [slice(at, end, stride) for at in range(attributes_at + 1, offset_at)]
    return Run(framing, times, key_size < 0, next_index, end)


def _encoded_offsets(first: int, end: int) -> list[bytes]:
    """Returns the columns of the offset deltas from `first` to `end` (exclusive), which all take equally many bytes."""
    if first < _FIRST_OF_TWO:
        return [_ONE_BYTE_DELTAS[first:end]]
    places = slice(first - _FIRST_OF_TWO, end - _FIRST_OF_TWO)
    return [_LOW_BYTES[places], _HIGH_BYTES[places]]


def timestamp_deltas(payload: bytes | bytearray, times: list[slice]) -> set[int] | None:
    """Returns the different timestamp deltas of a run; None if one takes more or fewer bytes than the first."""
    columns = [payload[each] for each in times]
    if not columns[-1].isascii() or any(min(column) < 0x80 for column in columns[:-1]):
        return None
    if len(columns) == 1:
        return {(byte >> 1) ^ -(byte & 1) for byte in dict.fromkeys(columns[0])}
    return {read_varlong(bytes(encoded), 0)[0] for encoded in dict.fromkeys(zip(*columns, strict=True))}


@final
class RecordShape:
    """The framing of one batch, together with the scan of its records, all of which `runs` cover."""

    __slots__ = ("_framing", "_runs", "_scan", "_times", "count", "size_bytes")

    def __init__(self, payload: bytes | bytearray, count: int, scan: RecordScan, runs: list[Run]) -> None:
        self.size_bytes, self.count = len(payload), count
        self._scan, self._runs = scan, runs
        self._framing = [(place, payload[place]) for run in runs for place in run.framing]
        self._times = [(place, payload[place]) for run in runs for place in run.times]

    def scan_of(self, payload: bytes | bytearray) -> RecordScan | None:
        """Returns the scan of another batch of the same size and record count; None if its shape differs."""
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


def shape_of(
    payload: bytes | bytearray, position: int, record_count: int, scan: RecordScan
) -> RecordShape | None:
    """Returns the shape of a batch whose records begin at byte `position` and have the scan `scan`; None unless each
    run of them has one shape.
    """
    if record_count <= 1:
        return RecordShape(payload, 1, scan, [_run_of_one(payload, position)]) if record_count else None
    runs: list[Run] = []
    index = 0
    while index < record_count:
        run = run_at(payload, position, index, record_count)
        if run is None or timestamp_deltas(payload, run.times) is None:
            return None
        runs.append(run)
        index, position = run.next_index, run.end
    return RecordShape(payload, record_count, scan, runs)


def _run_of_one(payload: bytes | bytearray, position: int) -> Run:
    """Returns a batch's only record as a run; its framing is everything but the contents of its key and value."""
    places = places_at(payload, position)
    pieces = [slice(position, places.key_start), slice(places.value_size_at, places.value_start)]
    if places.key_size <= 0:
        pieces = [slice(position, places.value_start)]
    pieces.append(slice(places.headers_at, len(payload)))
    return Run(pieces, [], places.key_size < 0, 1, len(payload))
