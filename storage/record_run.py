"""Records of one shape, looked at all at once: what a producer of fixed-size values sends.

With equal length bytes they lie at equal distances, so that each byte of what frames them is a column, a slice with a
step, compared in one go.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from storage.varint import SHORT_ENCODINGS, read_varint, read_varlong

# Below this a run costs more than its records one by one.
SHORTEST_RUN: Final = 8
# The offset deltas of one byte, and of two, whose bytes stand apart; a run ends where their width changes.
_ONE_BYTE_DELTAS: Final = bytes(range(0, 0x80, 2))
_TWO_BYTE_DELTAS: Final = SHORT_ENCODINGS[0x80::2]
_LOW_BYTES: Final = bytes(pair[0] for pair in _TWO_BYTE_DELTAS)
_HIGH_BYTES: Final = bytes(pair[1] for pair in _TWO_BYTE_DELTAS)
_FIRST_OF_TWO: Final = len(_ONE_BYTE_DELTAS)
FIRST_OF_THREE: Final = _FIRST_OF_TWO + len(_TWO_BYTE_DELTAS)


class Run(NamedTuple):
    """Records up to `behind`, the next one's index, and `end`, its place.

    `framing` are the places of the columns that tell where records, keys and values begin and end, `times` those of the
    timestamp deltas, at which nobody has looked yet: `timestamp_deltas` must find them of one width.
    """

    framing: list[slice]
    times: list[slice]
    has_null_keys: bool
    behind: int
    end: int


def run_at(payload: bytes | bytearray, position: int, first: int, record_count: int) -> Run | None:
    """Records `first` up to where their offset deltas get wider, if all are shaped as the one at `position`.

    None for records to be looked at one by one. Their attributes are nobody's concern. Raises IndexError and
    InvalidRecord for a first one that is broken.
    """
    length, attributes_at = read_varint(payload, position)
    _, offset_at = read_varlong(payload, attributes_at + 1)
    _, key_at = read_varint(payload, offset_at)
    key_size, key_start = read_varint(payload, key_at)
    value_at = key_start + max(key_size, 0)
    value_size, value_start = read_varint(payload, value_at)
    headers_at = value_start + max(value_size, 0)
    stride = attributes_at + length - position
    if length < 0 or headers_at + 1 != position + stride or payload[headers_at]:
        return None
    behind = min(record_count, _FIRST_OF_TWO if first < _FIRST_OF_TWO else FIRST_OF_THREE)
    count = behind - first
    end = position + count * stride
    if end > len(payload):
        return None
    framing = [slice(at, end, stride) for at in range(offset_at, key_at)]
    if [payload[place] for place in framing] != _encoded_offsets(first, behind):
        return None
    constant = (*range(position, attributes_at), *range(key_at, key_start), *range(value_at, value_start))
    for at in (*constant, headers_at):
        place = slice(at, end, stride)
        if payload[place].count(payload[at]) != count:
            return None
        framing.append(place)
    times = [slice(at, end, stride) for at in range(attributes_at + 1, offset_at)]
    return Run(framing, times, key_size < 0, behind, end)


def _encoded_offsets(first: int, behind: int) -> list[bytes]:
    """The columns of the offset deltas from `first` up to `behind` (exclusive), of one width."""
    if first < _FIRST_OF_TWO:
        return [_ONE_BYTE_DELTAS[first:behind]]
    places = slice(first - _FIRST_OF_TWO, behind - _FIRST_OF_TWO)
    return [_LOW_BYTES[places], _HIGH_BYTES[places]]


def timestamp_deltas(payload: bytes | bytearray, times: list[slice]) -> set[int] | None:
    """Of the records of a run; None where one takes more or fewer bytes than the first."""
    columns = [payload[each] for each in times]
    if not columns[-1].isascii() or any(min(column) < 0x80 for column in columns[:-1]):
        return None
    if len(columns) == 1:
        return {(byte >> 1) ^ -(byte & 1) for byte in dict.fromkeys(columns[0])}
    return {read_varlong(bytes(encoded), 0)[0] for encoded in dict.fromkeys(zip(*columns, strict=True))}
