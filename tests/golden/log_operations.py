"""Operations that real Kafka's log did, done again here and compared: results, errors, marks, state, files.

    python -m tests.golden.log_operations CASES.jsonl [--self-test]

Files are compared by every byte, producer snapshots by content (see `snapshots.py`).
A line of CASES is one case in the form of `golden/log-operations.jsonl` (see the README there). Prints
`N cases, M differ` at the end; exit status 1 if any does.
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, final

from storage.cleaner.offset_map import SLOT_BYTES
from storage.cleaner.plan import CleanerConfig
from storage.codec.crc32c import crc32c
from storage.config import LogConfig
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import StorageError
from storage.log import AppendInfo, AppendOrigin, Isolation, PartitionLog
from storage.segment.names import CLEANED_SUFFIX
from tests.golden.comparing import (
    CRASHES,
    Json,
    compare,
    describe_files,
    describe_log,
    falsified,
    kind_of,
    leaves,
    lies_about,
    scratch,
    snapshot_lies,
)

Lie = Callable[[], Json]

CLEANER_BUFFER_BYTES = 65536
CLEANER_MAX_BUFFER_BYTES = 1 << 20

# Kafka's class for each of replog's errors.
ERRORS = {
    "ConfigError": "InvalidConfigurationException",
    "CorruptBatch": "CorruptRecordException",
    "InvalidProducerEpoch": "InvalidProducerEpochException",
    "InvalidRecord": "InvalidRecordException",
    "InvalidTimestamp": "InvalidTimestampException",
    "InvalidTransactionState": "InvalidTxnStateException",
    "OffsetOutOfRange": "OffsetOutOfRangeException",
    "OffsetsOutOfOrder": "OffsetsOutOfOrderException",
    "OutOfOrderSequence": "OutOfOrderSequenceException",
    "RecordBatchTooLarge": "RecordBatchTooLargeException",
    "RecordTooLarge": "RecordTooLargeException",
    "SegmentOffsetOverflow": "LogSegmentOffsetOverflowException",
    "TransactionCoordinatorFenced": "TransactionCoordinatorFencedException",
    "UnexpectedAppendOffset": "UnexpectedAppendOffsetException",
    "UnsupportedCompression": "UnsupportedCompressionTypeException",
    "UnsupportedForMessageFormat": "UnsupportedForMessageFormatException",
    "ValueError": "IllegalArgumentException",
}


def kafkas_error(result: Json) -> str:
    """Return the class that a client sees. Kafka's RecordValidationException begins its message with that class."""
    name = str(result["error"])
    if name == "RecordValidationException":
        name = str(result["message"]).split(":", 1)[0].rsplit(".", 1)[-1]
    return name


# Doing the operations


@final
class Replay:
    """A log with its clock, and the operations by name."""

    def __init__(self, case: Json, directory: Path) -> None:
        self._directory = directory
        self._config = LogConfig.from_properties(case["config"])
        self._now_ms: int = case["start_ms"]
        self.log = self._open(log_start_offset=0, recovery_point=0, clean=True)

    def _open(self, *, log_start_offset: int, recovery_point: int, clean: bool) -> PartitionLog:
        return PartitionLog.open(
            OsFileSystem(),
            str(self._directory),
            self._config,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=clean,
            now_ms=self._now_ms,
        )

    def do(self, operation: Json) -> Json:
        """Do the operation. Returns our result, in the form of Kafka's under `kafka`."""
        verb: Callable[[Json], Json] = getattr(self, "_" + operation["op"])
        try:
            return verb(operation)
        except (StorageError, ValueError) as error:
            name = type(error).__name__
            return {"error": ERRORS.get(name, name), "message": str(error)}

    def summary(self) -> list[Any]:
        log = self.log
        segments = [[segment.base_offset, segment.size_bytes] for segment in log.local.segments]
        marks = [log.log_start_offset, log.log_end_offset, log.high_watermark, log.marks.last_stable_offset]
        return [*marks, segments]

    def close(self) -> None:
        self.log.close()

    def _append_leader(self, operation: Json) -> Json:
        info = self.log.append_as_leader(
            bytes.fromhex(operation["records"]),
            leader_epoch=operation["leader_epoch"],
            now_ms=self._now_ms,
            origin=AppendOrigin[operation["origin"].upper()],
        )
        return _describe_append(info)

    def _append_follower(self, operation: Json) -> Json:
        records = bytes.fromhex(operation["records"])
        info = self.log.append_as_follower(
            records, leader_epoch=operation["leader_epoch"], now_ms=self._now_ms
        )
        return _describe_append(info)

    def _read(self, operation: Json) -> Json:
        data = self.log.read(
            operation["offset"],
            max_size=operation["max_size"],
            isolation=Isolation(operation["isolation"]),
            min_one_message=operation["min_one_message"],
        )
        place = data.offset_metadata
        result: Json = {
            "size": len(data.records),
            "crc32c": crc32c(data.records),
            "at": [place.offset, place.segment_base_offset, place.position],
            "first_entry_incomplete": data.first_entry_incomplete,
        }
        if data.aborted_transactions is not None:
            result["aborted"] = [
                [entry.producer_id, entry.first_offset] for entry in data.aborted_transactions
            ]
        return result

    def _offset_for_timestamp(self, operation: Json) -> Json:
        found = self.log.reads.offset_for_timestamp(operation["timestamp"])
        if found is None:
            return {"found": None}
        epoch = -1 if found.leader_epoch is None else found.leader_epoch
        return {"found": [found.timestamp, found.offset, epoch]}

    def _update_high_watermark(self, operation: Json) -> Json:
        return {"high_watermark": self.log.marks.update_high_watermark(operation["offset"])}

    def _advance_clock(self, operation: Json) -> Json:
        self._now_ms += operation["ms"]
        return {}

    def _roll(self, operation: Json) -> Json:
        return {"base_offset": self.log.flushes.roll(now_ms=self._now_ms).base_offset}

    def _truncate(self, operation: Json) -> Json:
        return {"changed": self.log.truncate_to(operation["offset"], now_ms=self._now_ms)}

    def _truncate_fully(self, operation: Json) -> Json:
        self.log.truncation.truncate_fully_and_start_at(operation["offset"], now_ms=self._now_ms)
        return {}

    def _move_log_start(self, operation: Json) -> Json:
        return {"moved": self.log.marks.maybe_increment_log_start_offset(operation["offset"])}

    def _delete_old_segments(self, operation: Json) -> Json:
        return {"deleted": self.log.retention.delete_old(self._now_ms)}

    def _assign_epoch(self, operation: Json) -> Json:
        self.log.appends.assign_epoch(operation["leader_epoch"], operation["start_offset"])
        return {}

    def _end_offset_for_epoch(self, operation: Json) -> Json:
        return {"epoch_and_end": list(self.log.reads.end_offset_for_epoch(operation["leader_epoch"]))}

    def _compact(self, operation: Json) -> Json:
        found = self.log.compactions.cleanable_offsets(operation["first_dirty_offset"], self._now_ms)
        result: Json = {"range": [found.first_dirty_offset, found.first_uncleanable_offset]}
        if found.first_uncleanable_offset > found.first_dirty_offset:
            config = CleanerConfig(
                dedupe_buffer_bytes=operation["map_slots"] * SLOT_BYTES,
                io_buffer_bytes=CLEANER_BUFFER_BYTES,
                max_io_buffer_bytes=CLEANER_MAX_BUFFER_BYTES,
                dedupe_buffer_load_factor=0.9,
            )
            round_ = self.log.compactions.prepare(found, config, self._now_ms)
            for work in round_:
                work()
            result["next_dirty_offset"] = round_.end_offset
        return result

    def _reopen(self, operation: Json) -> Json:
        log_start_offset, recovery_point = self.log.log_start_offset, self.log.local.recovery_point
        if operation["clean"]:
            self.log.close()
        else:
            self.log.close_handles()
        self.log = self._open(
            log_start_offset=log_start_offset, recovery_point=recovery_point, clean=operation["clean"]
        )
        return {"recovery_point": recovery_point}


def _describe_append(info: AppendInfo) -> Json:
    return {
        "first_offset": info.first_offset,
        "last_offset": info.last_offset,
        "max_timestamp": info.max_timestamp,
        "log_append_time": info.log_append_time_ms,
        "log_start_offset": info.log_start_offset,
    }


def run_case(case: Json, directory: Path) -> Json:
    """Return the case with our results in place of Kafka's. A bug ends it early, and becomes an operation's error."""
    outcome: Json = {"ops": []}
    replay = Replay(case, directory)
    try:
        before = replay.summary()
        for operation in case["ops"]:
            done: Json = {"op": operation["op"], "kafka": replay.do(operation)}
            if (summary := replay.summary()) != before:
                done["then"] = before = summary
            outcome["ops"].append(done)
        outcome["state"] = describe_log(replay.log)
        replay.close()
    except (StorageError, *CRASHES) as error:
        outcome["ops"].append({"op": "a crash", "kafka": {"error": f"{type(error).__name__}: {error}"}})
        replay.log.close_handles()
    outcome["files_after_close"] = describe_files(directory)
    return outcome


# Judging


def comparable(outcome: Json) -> Json:
    """Return the part of an outcome that is compared: the name and result of each operation, the class of each error.

    `.cleaned` files are left out: a compaction that Kafka's cleaner gave up left them, and the cases do not list those.
    """
    operations = []
    for operation in outcome["ops"]:
        result = operation["kafka"]
        if "error" in result:
            result = {"error": kafkas_error(result)}
        kept: Json = {"op": operation["op"], "kafka": result}
        if "then" in operation:
            kept["then"] = operation["then"]
        operations.append(kept)
    return {
        "ops": operations,
        "state": outcome.get("state"),
        "files_after_close": {
            name: file
            for name, file in outcome["files_after_close"].items()
            if not name.endswith(CLEANED_SUFFIX)
        },
    }


def differences(expected: Json, actual: Json) -> list[str]:
    """Return one line for each difference. Only the first operation that differs is reported.

    The operations after it work on another log, so they cannot be compared.
    """
    found: list[str] = []
    for number, (kafkas, ours) in enumerate(zip(expected["ops"], actual["ops"], strict=False)):
        compare(kafkas, ours, f"ops[{number}] {kafkas['op']}", found)
        if found:
            return found
    if len(expected["ops"]) != len(actual["ops"]):
        return [f"ops: Kafka {len(expected['ops'])}, here {len(actual['ops'])}"]
    for key in ("state", "files_after_close"):
        compare(expected[key], actual[key], key, found)
    return found


def read_cases(path: Path) -> Iterator[Json]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


@final
class Judge:
    """Runs each case in a fresh directory and counts."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self.cases = self.differing = 0

    def judge(self, case: Json) -> list[str]:
        """Run the case. Returns the differences."""
        self.cases += 1
        found = differences(comparable(case), self.run(case))
        self.differing += bool(found)
        return found

    def run(self, case: Json) -> Json:
        directory = self._work / "t-0"
        try:
            return comparable(run_case(case, directory))
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    @property
    def summary(self) -> str:
        return f"{self.cases} cases, {self.differing} differ"


# The self-test


def _lies(expected: Json) -> Iterator[tuple[str, Lie]]:
    """Yield the kinds of field, each with a function that makes a falsified copy."""
    for path in leaves(expected):
        kind = kind_of(path)
        if path[0] == "ops":
            number = path[1]
            assert isinstance(number, int), path
            kind = f"{expected['ops'][number]['op']}: {kind_of(path[2:])}"
        yield kind, partial(falsified, expected, path)


def _structural_lies(expected: Json) -> Iterator[tuple[str, Lie]]:
    yield "an operation missing", partial(_changed, expected, lambda told: told["ops"].pop())
    for number, operation in enumerate(expected["ops"]):
        if "then" in operation:
            yield "a change of the marks missing", partial(_changed, expected, _without(number, "then"))
        else:
            yield "a change of the marks too many", partial(_changed, expected, _with_marks(number))
        if "error" in operation["kafka"]:
            kind = f"{operation['op']}: an error missing"
            yield kind, partial(_changed, expected, _without(number, "kafka", "error"))


def _changed(expected: Json, change: Callable[[Json], object]) -> Json:
    told = copy.deepcopy(expected)
    change(told)
    return told


def _without(number: int, *path: str) -> Callable[[Json], object]:
    def change(told: Json) -> None:
        holder = told["ops"][number]
        for part in path[:-1]:
            holder = holder[part]
        del holder[path[-1]]

    return change


def _with_marks(number: int) -> Callable[[Json], object]:
    def change(told: Json) -> None:
        told["ops"][number]["then"] = [0, 0, 0, 0, []]

    return change


def self_test(cases: Iterator[Json], judge: Judge) -> list[str]:
    """Falsify each kind of field once, in a case that holds without it. Returns the kinds that went unnoticed."""
    seen: set[str] = set()
    unnoticed = []
    for case in cases:
        expected, actual = comparable(case), judge.run(case)
        if differences(expected, actual):
            continue
        if not seen:
            for kind, lie in lies_about(expected, "state"):
                seen.add(kind)
                unnoticed += [] if differences(lie, actual) else [kind]
        for kind, make_lie in (*_lies(expected), *_structural_lies(expected)):
            if kind not in seen:
                seen.add(kind)
                unnoticed += [] if differences(make_lie(), actual) else [kind]
        for kind, lie in snapshot_lies(actual):
            if kind not in seen:
                seen.add(kind)
                unnoticed += [] if differences(expected, lie) else [kind]
    if not seen:
        unnoticed.append("everything: no case holds")
    print(f"self-test: {len(seen)} kinds of field falsified, {len(unnoticed)} unnoticed")
    return unnoticed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tests.golden.log_operations", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("cases", type=Path)
    parser.add_argument("--self-test", action="store_true")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="log-operations-", dir=scratch()) as work:
        judge = Judge(Path(work))
        if given.self_test:
            unnoticed = self_test(read_cases(given.cases), judge)
            for kind in unnoticed:
                print(f"unnoticed: {kind}")
            return 1 if unnoticed else 0
        for case in read_cases(given.cases):
            for line in judge.judge(case):
                print(f"{case['id']} {line}")
        print(judge.summary)
        return 1 if judge.differing else 0


if __name__ == "__main__":
    sys.exit(main())
