"""Wounds for partition directories, in the operations of `tests/golden/README.md`: more kinds than the golden set has.

Each kind looks at a directory and returns the operations of one wound, or None if it does not apply.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from storage.batch import RecordBatch, iterate_batches
from storage.batch.format import CRC_AT, CRC_COVERS_FROM
from storage.codec.crc32c import crc32c
from storage.errors import CorruptBatch

Operation = list[Any]
Kind = Callable[["Patient", Random], "list[Operation] | None"]

# A wound rewrites at most this much of a file, so that cases stay small.
MOST_REWRITTEN_BYTES: Final = 60_000
ZERO_RUNS: Final = (1, 4, 12, 61, 512, 4096)
_CRC: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Patient:
    """A partition directory with at least one `.log`."""

    directory: Path

    def names(self, suffix: str) -> list[str]:
        return sorted(path.name for path in self.directory.glob(f"*{suffix}"))

    def read(self, name: str) -> bytes:
        return (self.directory / name).read_bytes()

    def log(self, draw: Random) -> str:
        """Draw a log, mostly the last one: a crash strikes there."""
        logs = self.names(".log")
        return logs[-1] if draw.random() < 0.5 else draw.choice(logs)

    def batches(self, name: str) -> list[RecordBatch]:
        """Return the batches of magic 2 from the start of the log up to the first damage."""
        found: list[RecordBatch] = []
        try:
            for batch in iterate_batches(self.read(name), name):
                if batch.magic != 2:
                    break
                found.append(batch)
        except CorruptBatch:
            pass
        return found

    def batch(self, draw: Random) -> tuple[str, RecordBatch] | None:
        """Draw a batch. Returns it with the name of its file, or None if the log has no batch."""
        name = self.log(draw)
        batches = self.batches(name)
        return (name, draw.choice(batches)) if batches else None

    def end_offset(self) -> int:
        last = self.names(".log")[-1]
        batches = self.batches(last)
        return batches[-1].next_offset if batches else int(last[:20])


def name_of(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def _sibling(log: str, suffix: str) -> str:
    return log[:-4] + suffix


# The log


def flip(patient: Patient, draw: Random) -> list[Operation] | None:
    name = patient.log(draw)
    data = patient.read(name)
    if not data:
        return None
    at = draw.randrange(len(data))
    return [["poke", name, at, f"{data[at] ^ 1 << draw.randrange(8):02x}"]]


def flip_in_header(patient: Patient, draw: Random) -> list[Operation] | None:
    found = patient.batch(draw)
    if found is None:
        return None
    name, batch = found
    at = batch.position + draw.randrange(61)
    return [["poke", name, at, f"{patient.read(name)[at] ^ 1 << draw.randrange(8):02x}"]]


def cut_anywhere(patient: Patient, draw: Random) -> list[Operation] | None:
    name = patient.log(draw)
    size = len(patient.read(name))
    return [["cut", name, draw.randrange(size)]] if size else None


def zeroed_range(patient: Patient, draw: Random) -> list[Operation] | None:
    name = patient.log(draw)
    size = len(patient.read(name))
    if not size:
        return None
    at = draw.randrange(size)
    if draw.random() < 0.5:
        at = at // 512 * 512
    return [["poke", name, at, bytes(min(draw.choice(ZERO_RUNS), size - at)).hex()]]


def _rewritten(patient: Patient, name: str, pieces: list[bytes]) -> list[Operation] | None:
    data = b"".join(pieces)
    return [["create", name, data.hex()]] if len(data) <= MOST_REWRITTEN_BYTES else None


def batches_moved(patient: Patient, draw: Random) -> list[Operation] | None:
    """Write one batch twice, leave one out, exchange it with the next, or cut a piece out of the middle of the file."""
    name = patient.log(draw)
    pieces = [batch.tobytes() for batch in patient.batches(name)]
    if len(pieces) < 2:
        return None
    at = draw.randrange(len(pieces) - 1)
    match draw.randrange(5):
        case 0:
            pieces.insert(at, pieces[at])
        case 1:
            del pieces[at]
        case 2:
            pieces[at], pieces[at + 1] = pieces[at + 1], pieces[at]
        case 3:
            pieces.append(pieces[at])
        case _:
            data = b"".join(pieces)
            start = draw.randrange(len(data))
            pieces = [data[:start], data[start + draw.randrange(1, 200) :]]
    return _rewritten(patient, name, pieces)


def unprotected_field(patient: Patient, draw: Random) -> list[Operation] | None:
    """Change base offset or leader epoch, which no checksum covers: to the past, the future, negative, out of range."""
    found = patient.batch(draw)
    if found is None:
        return None
    name, batch = found
    if draw.random() < 0.6:
        base = int(name[:20])
        offset = draw.choice(
            [-1, -(1 << 63), (1 << 63) - 1, 0, base, base - 1, base + (1 << 31), base + (1 << 31) - 1]
            + [batch.base_offset + draw.choice([-1000, -2, -1, 1, 2, 1000, 1 << 20])] * 6
        )
        offset = max(-(1 << 63), min(offset, (1 << 63) - 1))
        return [["poke", name, batch.position, offset.to_bytes(8, "big", signed=True).hex()]]
    epoch = draw.choice([-1, -2, 0, 1, 2, 7, (1 << 31) - 1, -(1 << 31)])
    return [["poke", name, batch.position + 12, epoch.to_bytes(4, "big", signed=True).hex()]]


# Position and width of fields that the checksum covers.
_FIELDS: Final = {
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "base timestamp": (27, 8),
    "max timestamp": (35, 8),
    "producer id": (43, 8),
    "producer epoch": (51, 2),
    "base sequence": (53, 4),
    "record count": (57, 4),
}


def lying_field(patient: Patient, draw: Random) -> list[Operation] | None:
    """Change a header field and correct the checksum: no checksum finds it."""
    found = patient.batch(draw)
    if found is None:
        return None
    name, batch = found
    at, width = _FIELDS[draw.choice(sorted(_FIELDS))]
    data = bytearray(batch.tobytes())
    value = int.from_bytes(data[at : at + width], "big", signed=True)
    least, greatest = -(1 << 8 * width - 1), (1 << 8 * width - 1) - 1
    value = draw.choice([value + 1, value - 1, value + 5, value ^ 16, value ^ 32, 0, -1, 1, least, greatest])
    data[at : at + width] = max(least, min(value, greatest)).to_bytes(width, "big", signed=True)
    _CRC.pack_into(data, CRC_AT, crc32c(data[CRC_COVERS_FROM:]))
    return [["poke", name, batch.position + CRC_AT, bytes(data[CRC_AT:61]).hex()]]


def size_field(patient: Patient, draw: Random) -> list[Operation] | None:
    found = patient.batch(draw)
    if found is None:
        return None
    name, batch = found
    size = draw.choice([-1, 0, 13, 14, 48, 49, 50, batch.size_bytes - 13, batch.size_bytes - 11, 1 << 20])
    return [["poke", name, batch.position + 8, size.to_bytes(4, "big", signed=True).hex()]]


def tail(patient: Patient, draw: Random) -> list[Operation] | None:
    name = patient.log(draw)
    size = draw.choice([1, 11, 12, 16, 17, 60, 61, 62, 300])
    return [["zeros", name, size] if draw.random() < 0.5 else ["append", name, draw.randbytes(size).hex()]]


# Which files there are


def leftover(patient: Patient, draw: Random) -> list[Operation] | None:
    """Leave what an interrupted swap, split or deletion leaves: copies or renamed files, whole or torn, some or all."""
    name, suffix = patient.log(draw), draw.choice([".swap", ".swap", ".cleaned", ".deleted"])
    verb = draw.choice(["copy", "rename"])
    operations: list[Operation] = []
    for kind in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        source = _sibling(name, kind)
        if (patient.directory / source).exists() and draw.random() < 0.8:
            operations.append([verb, source, source + suffix])
            if draw.random() < 0.15:
                size = (patient.directory / source).stat().st_size
                operations.append(["cut", source + suffix, draw.randrange(size + 1)])
    return operations or None


def orphan(patient: Patient, draw: Random) -> list[Operation] | None:
    """Add an index or a snapshot without a log, or an empty or foreign log, at some offset."""
    offset = draw.choice(
        [0, 1, patient.end_offset(), patient.end_offset() + draw.choice([1, 5, 100, 1 << 32])]
    )
    kind = draw.choice([".index", ".timeindex", ".txnindex", ".snapshot", ".log", ".log"])
    target = name_of(offset, kind)
    if (patient.directory / target).exists():
        return None
    if draw.random() < 0.5:
        return [["create", target, ""]]
    sources = patient.names(kind)
    return [["copy", draw.choice(sources), target]] if sources else None


def missing(patient: Patient, draw: Random) -> list[Operation] | None:
    names = sorted(path.name for path in patient.directory.iterdir())
    doomed = [name for name in names if not name.endswith((".log", ".metadata"))]
    if len(patient.names(".log")) > 1 and draw.random() < 0.2:
        doomed = patient.names(".log")
    return [["delete", draw.choice(doomed)]] if doomed else None


def renamed_base(patient: Patient, draw: Random) -> list[Operation] | None:
    """Rename a segment to another base offset than its batches have."""
    name = patient.log(draw)
    offset = max(0, int(name[:20]) + draw.choice([-3, -1, 1, 2, 10]))
    operations: list[Operation] = []
    for kind in (".log", ".index", ".timeindex"):
        source, target = _sibling(name, kind), name_of(offset, kind)
        if (patient.directory / target).exists():
            return None
        if (patient.directory / source).exists():
            operations.append(["rename", source, target])
    return operations


# Indexes


def _index(patient: Patient, draw: Random, *kinds: str) -> str | None:
    names = [name for kind in kinds for name in patient.names(kind)]
    return draw.choice(names) if names else None


def index_of_another(patient: Patient, draw: Random) -> list[Operation] | None:
    """Exchange two indexes, or copy one over the other: of one kind, or offsets for times."""
    kind = draw.choice([".index", ".timeindex"])
    one, two = _index(patient, draw, kind), _index(patient, draw, ".index", ".timeindex")
    if one is None or two is None or one == two:
        return None
    if draw.random() < 0.5:
        return [["copy", one, two]]
    return [["rename", one, "exchanged"], ["rename", two, one], ["rename", "exchanged", two]]


def index_content(patient: Patient, draw: Random) -> list[Operation] | None:
    """Change an index: entries doubled, zeroed, out of order or overwritten; a torn end or a tail."""
    name = _index(patient, draw, ".index", ".timeindex")
    if name is None:
        return None
    data = patient.read(name)
    entry = 8 if name.endswith(".index") else 12
    if len(data) < entry or len(data) > MOST_REWRITTEN_BYTES:
        return [["append", name, draw.randbytes(draw.choice([1, entry, 3 * entry])).hex()]]
    at = draw.randrange(len(data) // entry) * entry
    match draw.randrange(7):
        case 0:
            return [["append", name, data.hex()]]
        case 1:
            return [["poke", name, at, bytes(min(len(data) - at, entry * draw.choice([1, 2, 8]))).hex()]]
        case 2:
            return [["poke", name, at, draw.randbytes(entry).hex()]]
        case 3:
            entries = [data[start : start + entry] for start in range(0, len(data), entry)]
            draw.shuffle(entries)
            return [["create", name, b"".join(entries).hex()]]
        case 4:
            return [["cut", name, draw.randrange(len(data))]]
        case 5:
            return [["zeros", name, draw.choice([1, entry, 10 * entry])]]
        case _:
            return [["poke", name, len(data) - entry, draw.randbytes(draw.choice([1, entry])).hex()]]


def transaction_index(patient: Patient, draw: Random) -> list[Operation] | None:
    name = _index(patient, draw, ".txnindex")
    if name is None:
        return None
    data = patient.read(name)
    match draw.randrange(6):
        case 0:
            return [["delete", name]]
        case 1 if data:
            return [["cut", name, draw.randrange(len(data))]]
        case 2 if data:
            at = draw.randrange(len(data))
            return [["poke", name, at, f"{data[at] ^ 1 << draw.randrange(8):02x}"]]
        case 3:
            return [["append", name, (data or draw.randbytes(34)).hex()]]
        case 4:
            return [["zeros", name, draw.choice([1, 33, 34, 35, 340])]]
        case _:
            return [["append", name, draw.randbytes(draw.choice([1, 34])).hex()]]


# Small files


def snapshot(patient: Patient, draw: Random) -> list[Operation] | None:
    name = _index(patient, draw, ".snapshot")
    if name is None:
        return None
    data = patient.read(name)
    match draw.randrange(6):
        case 0:
            return [["cut", name, draw.randrange(len(data))]]
        case 1:
            return [["poke", name, draw.randrange(len(data)), draw.randbytes(1).hex()]]
        case 2:
            return [["append", name, draw.randbytes(draw.choice([1, 50])).hex()]]
        case 3:
            offset = max(0, int(name[:20]) + draw.choice([-5, -1, 1, 3, 1000]))
            return [["copy", name, name_of(offset, ".snapshot")]]
        case 4:
            return [["delete", name]]
        # A wrong field with a right checksum.
        case _:
            changed = bytearray(data)
            at = draw.randrange(6, len(data))
            changed[at] ^= 1 << draw.randrange(8)
            _CRC.pack_into(changed, 2, crc32c(changed[6:]))
            return [["create", name, changed.hex()]]


_CHECKPOINTS: Final = (
    *("", "0", "0\n", "0\n0\n", "0\n1\n", "1\n0\n", "0\n2\n0 0\n", "0\n1\n0 0\n1 5\n", "x\n", "0\nx\n"),
    *("0\n1\nx y\n", "0\n1\n0\n", "0\n1\n0 0 0\n", "0\n1\n0 0", "0\r\n1\r\n0 0\r\n", " 0\n1\n0 0\n"),
    *("0\n2\n0 0\n5 3\n", "0\n2\n5 0\n3 9\n", "0\n2\n0 5\n0 9\n", "0\n2\n0 5\n1 5\n", "0\n1\n-1 0\n"),
    *("0\n1\n0 -5\n", "0\n1\n0 9223372036854775807\n", "0\n1\n2147483647 3\n", "0\n1\n2147483648 3\n"),
    *(
        "0\n3\n0 0\n1 4\n2 8\n",
        "0\n2\n1 2\n4 6\n",
        "0\n-1\n",
        "0\n1\n0  0\n",
        "0\n1\n0\t0\n",
        "\n",
        "0\n1\n\n",
    ),
)


def epochs(patient: Patient, draw: Random) -> list[Operation] | None:
    text = draw.choice(_CHECKPOINTS)
    if draw.random() < 0.3:
        end = patient.end_offset()
        offsets = sorted(draw.randrange(end + 3) for _ in range(3))
        lines = "".join(f"{epoch} {offset}\n" for epoch, offset in enumerate(offsets))
        text = f"0\n3\n{lines}"
    return [["create", "leader-epoch-checkpoint", text.encode().hex()]]


def nothing(patient: Patient, draw: Random) -> list[Operation]:
    return []


KINDS: Final[tuple[Kind, ...]] = (
    nothing,
    flip,
    flip_in_header,
    cut_anywhere,
    zeroed_range,
    batches_moved,
    unprotected_field,
    lying_field,
    size_field,
    tail,
    leftover,
    orphan,
    missing,
    renamed_base,
    index_of_another,
    index_content,
    transaction_index,
    snapshot,
    epochs,
)
