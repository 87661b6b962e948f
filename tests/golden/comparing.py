"""The shared part of the golden runs: a log and its files as plain values, their comparison, and falsified copies."""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from storage.log import PartitionLog
from storage.producers.entry import ProducerStateEntry
from storage.segment import LogSegment
from tests.golden.snapshots import Snapshot, digest
from tests.golden.snapshots import lies_about as lies_about_snapshot

# Each case cuts and warns. The cases are the report.
logging.getLogger("storage").addHandler(logging.NullHandler())

Json = dict[str, Any]
Place = tuple[str | int, ...]

# Errors that would be a bug of replog: a run that ends in one of them is reported as a bug.
CRASHES = (ArithmeticError, AssertionError, LookupError, OSError, TypeError, ValueError)


# A log, in the form of Kafka's side


def describe_log(log: PartitionLog) -> Json:
    """Return the state of a log in the form of the cases."""
    return {
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "recovery_point": log.local.recovery_point,
        "high_watermark": log.high_watermark,
        "segments": [_describe_segment(segment) for segment in log.local.segments],
        "epochs": [list(entry) for entry in log.epochs.entries],
        "producers": [_describe_producer(entry) for _, entry in sorted(log.producers.producers.items())],
    }


def _describe_segment(segment: LogSegment) -> Json:
    offsets, times = segment.offset_index, segment.time_index
    return {
        "base_offset": segment.base_offset,
        "size": segment.size_bytes,
        "offset_index": [list(offsets.entry(slot)) for slot in range(offsets.entries)],
        "time_index": [list(times.entry(slot)) for slot in range(times.entries)],
        "max_timestamp": list(segment.max_timestamp),
        "aborted_transactions": [list(entry) for entry in segment.transaction_index.entries()],
    }


def _describe_producer(entry: ProducerStateEntry) -> Json:
    first_offset = entry.transaction_first_offset
    return {
        "producer_id": entry.producer_id,
        "epoch": entry.producer_epoch,
        "last_sequence": entry.last_sequence,
        "last_offset": entry.last_offset,
        "coordinator_epoch": entry.coordinator_epoch,
        "open_transaction_first_offset": -1 if first_offset is None else first_offset,
        "batches_kept": len(entry.batches),
    }


def describe_files(directory: Path) -> Json:
    """Return each file by name: its size and hash, or a `Snapshot` for a producer snapshot."""
    return {path.name: _describe_file(path) for path in sorted(directory.iterdir())}


def _describe_file(path: Path) -> list[Any] | Snapshot:
    content = path.read_bytes()
    return Snapshot(content) if path.suffix == ".snapshot" else [len(content), digest(content)]


def scratch() -> str | None:
    """Return a directory in memory if there is one. Nobody needs these copies to survive, and each case syncs a lot."""
    memory = "/dev/shm"
    return memory if os.access(memory, os.W_OK) else None


# Differences


def compare(
    expected: Any, actual: Any, path: str, found: list[str], ignore: frozenset[str] = frozenset()
) -> None:
    """Add to `found` a line for each place where `actual` differs from Kafka's; snapshots are compared by content."""
    name = path.rsplit(".", 1)[-1]
    if ("producers" in ignore and name == "producers") or ("snapshots" in ignore and name == "snapshot"):
        return
    if isinstance(actual, Snapshot):
        if not isinstance(expected, list) or not actual.is_kafkas(*expected):
            found.append(f"{path}: Kafka {_short(expected)}, here {actual}")
    elif isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted(expected.keys() | actual.keys()):
            compare(expected.get(key), actual.get(key), f"{path}.{key}", found, ignore)
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, pair in enumerate(zip(expected, actual, strict=True)):
            compare(*pair, f"{path}[{index}]", found, ignore)
    elif expected != actual or isinstance(expected, bool) != isinstance(actual, bool):
        found.append(f"{path}: Kafka {_short(expected)}, here {_short(actual)}")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 160 else text[:157] + "..."


# Lies


def leaves(value: Any, path: Place = ()) -> Iterator[Place]:
    """Yield the path of each value that is neither a dictionary nor a list."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from leaves(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from leaves(child, (*path, index))
    else:
        yield path


def kind_of(path: Place) -> str:
    """Return the path with `*` for what varies from case to case: numbers, and the offsets in file names."""
    parts = []
    for index, part in enumerate(path):
        if isinstance(part, int):
            is_column = index == len(path) - 1
            parts.append(str(part) if is_column else "*")
        elif path[0] == "files_after_close" and index == 1:
            parts.append(part.rsplit(".", 1)[-1])
        else:
            parts.append(part)
    return ".".join(parts)


def falsified(expected: Json, path: Place) -> Json:
    """Return a copy with another value at `path`."""
    changed = copy.deepcopy(expected)
    holder: Any = changed
    for part in path[:-1]:
        holder = holder[part]
    value = holder[path[-1]]
    if value is None:
        holder[path[-1]] = 0
    elif isinstance(value, bool):
        holder[path[-1]] = not value
    elif isinstance(value, int):
        holder[path[-1]] = value + 1
    else:
        holder[path[-1]] = value[:-1] + ("0" if value[-1] != "0" else "1")
    return changed


def state_lies() -> list[tuple[str, Callable[[Json], object]]]:
    """Return changes to a state that add or remove one thing: a segment, an index entry, an epoch, a producer."""
    return [
        ("a segment missing", lambda state: state["segments"].pop()),
        ("an epoch too many", lambda state: state["epochs"].append([99, 1 << 40])),
        ("an offset entry too many", lambda state: state["segments"][0]["offset_index"].append([1, 2])),
        ("a time entry too many", lambda state: state["segments"][0]["time_index"].append([1, 2])),
        ("a producer too many", lambda state: state["producers"].append({"producer_id": 1})),
        (
            "an aborted transaction too many",
            lambda state: state["segments"][0]["aborted_transactions"].append([1, 2, 3, 4]),
        ),
    ]


def lies_about(expected: Json, state_key: str) -> Iterator[tuple[str, Json]]:
    """Yield copies that differ in structure: in the state under `state_key`, and in the files."""
    for kind, lie in state_lies():
        told = copy.deepcopy(expected)
        lie(told[state_key])
        yield kind, told
    told = copy.deepcopy(expected)
    told["files_after_close"].popitem()
    yield "a file missing", told
    told = copy.deepcopy(expected)
    told["files_after_close"]["x.log"] = [0, "00"]
    yield "a file too many", told


def snapshot_lies(actual: Json) -> Iterator[tuple[str, Json]]:
    """Yield copies of our own outcome, each with one lie in a producer snapshot that has entries."""
    for name, file in actual.get("files_after_close", {}).items():
        if isinstance(file, Snapshot) and has_entries(file):
            for kind, lie in lies_about_snapshot(file):
                yield kind, {**actual, "files_after_close": {**actual["files_after_close"], name: lie}}


def has_entries(snapshot: Snapshot) -> bool:
    """Whether the snapshot is sound and not empty. A case may have damaged a snapshot that was never read."""
    try:
        return bool(snapshot.entries())
    except ValueError:
        return False
