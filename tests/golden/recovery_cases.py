"""Loads that real Kafka did, done again here and compared field by field and byte by byte, snapshots by content.

    python -m tests.golden.recovery_cases ROOT CASES.jsonl [--sources A,B] [--without-damage-to SUFFIX,…]
        [--ignore producers,snapshots] [--self-test]

ROOT holds `killed/` and `clean/`; a line of CASES is one case in the form of `golden/recovery.jsonl` (see the README
there). Prints `N cases, M differ, K refused by Kafka` at the end. Exit status 1 if any differs, or if one that Kafka
refused ends in anything but a healed log or one clear error.
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from storage.batch import LOG_OVERHEAD, MIN_SIZE_FIELD, RecordBatch
from storage.config import LogConfig
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import StorageError
from storage.log import PartitionLog
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The cases to run, and the fields to leave out of the comparison."""

    sources: frozenset[str] = frozenset()
    without_damage_to: tuple[str, ...] = ()
    ignore: frozenset[str] = frozenset()

    def wants(self, case: Json) -> bool:
        """Whether the case is of a wanted source and damages no file that is left out."""
        topic = case["source"].rsplit("/", 1)[-1].rsplit("-", 1)[0]
        if self.sources and topic not in self.sources:
            return False
        names = [name for damage in case["damage"] for name in _damaged_names(damage)]
        return not any(name.endswith("." + suffix) for name in names for suffix in self.without_damage_to)


def _damaged_names(damage: list[Any]) -> list[str]:
    return [damage[1], damage[2]] if damage[0] in ("copy", "rename") else [damage[1]]


# Preparing and running one case


def apply_damage(directory: Path, damage: list[Any]) -> None:
    """Apply one operation of damage: see the README of the golden data."""
    verb, name, *rest = damage
    path = directory / name
    if verb == "cut":
        with path.open("r+b") as file:
            file.truncate(rest[0])
    elif verb in ("append", "zeros"):
        with path.open("ab") as file:
            file.write(bytes.fromhex(rest[0]) if verb == "append" else bytes(rest[0]))
    elif verb == "poke":
        with path.open("r+b") as file:
            file.seek(rest[0])
            file.write(bytes.fromhex(rest[1]))
    elif verb == "delete":
        path.unlink()
    elif verb == "copy":
        shutil.copy(path, directory / rest[0])
    elif verb == "rename":
        path.rename(directory / rest[0])
    elif verb == "create":
        path.write_bytes(bytes.fromhex(rest[0]))
    else:
        raise ValueError(f"unknown damage {verb!r}")


def prepare(case: Json, root: Path, work: Path) -> Path:
    """Copy the source of the case to `work` and damage it. Returns the partition directory."""
    directory = work / str(case["source"]).rsplit("/", 1)[-1]
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(root / case["source"], directory)
    for damage in case["damage"]:
        apply_damage(directory, damage)
    return directory


def load(case: Json, directory: Path) -> PartitionLog:
    """Open the log as a start does. Raises StorageError."""
    return PartitionLog.open(
        OsFileSystem(),
        str(directory),
        LogConfig.from_properties(case["config"]),
        log_start_offset=case["log_start_offset"],
        recovery_point=case["recovery_point"],
        clean=case["clean"],
        now_ms=case["now_ms"],
    )


def run_case(case: Json, directory: Path) -> Json:
    """Return our outcome, in the form of Kafka's under `kafka`; `error` if a StorageError ended it."""
    outcome: Json = {}
    log: PartitionLog | None = None
    try:
        log = load(case, directory)
        outcome["loaded"] = describe_log(log)
        for operation in case["then"]:
            outcome.setdefault("then", []).append(_operate(log, operation, case["now_ms"]))
        log.close()
        log = None
        outcome["files_after_close"] = describe_files(directory)
    except StorageError as error:
        outcome["error"], outcome["message"] = type(error).__name__, str(error)
    finally:
        if log is not None:
            log.close_handles()
    return outcome


def _operate(log: PartitionLog, operation: list[Any], now_ms: int) -> Json:
    verb, offset = operation
    result: Json = {"op": operation}
    if verb == "truncate":
        result["changed"] = log.truncate_to(offset, now_ms=now_ms)
    elif verb == "truncate_fully":
        log.truncation.truncate_fully_and_start_at(offset, now_ms=now_ms)
    else:
        raise ValueError(f"unknown operation {verb!r}")
    result["state"] = describe_log(log)
    return result


# Judging


def differences(expected: Json, actual: Json, ignore: frozenset[str]) -> list[str]:
    """Return one line for each place where our outcome differs from Kafka's."""
    found: list[str] = []
    if "error" in actual:
        return [f"refused here: {actual['error']}: {actual['message']}"]
    for key in ("loaded", "then", "files_after_close"):
        compare(expected.get(key), actual.get(key), key, found, ignore)
    return found


def unhealed(case: Json, directory: Path, before: dict[str, bytes], actual: Json) -> list[str]:
    """Say what is wrong with our end of a case that Kafka refused: neither a healed log nor one clear error."""
    if "error" in actual:
        is_clear = bool(actual["message"]) and "\n" not in actual["message"]
        lost = [
            name
            for name, content in _logs(directory).items()
            if not before.get(name, b"").startswith(content)
        ]
        problems = [] if is_clear else [f"no clear error: {actual['error']}: {actual['message']!r}"]
        return problems + [f"{name} was overwritten before the refusal" for name in lost]
    problems, last_offset = [], -1
    logs = sorted(_logs(directory).items())
    for number, (name, content) in enumerate(logs):
        # A split makes several segments of one, so each must be a part of an old one.
        if not any(content in old for old in before.values()):
            problems.append(f"{name} is no part of what it was")
        next_base = int(logs[number + 1][0].partition(".")[0]) if number + 1 < len(logs) else None
        if case["clean"] or (next_base is not None and next_base <= case["recovery_point"]):
            # The segment is trusted and not looked at, as in Kafka.
            continue
        end = 0
        is_at_fault = name in case["kafka"]["message"]
        for batch in framed_batches(content):
            # In a segment about which Kafka does not complain, it keeps a step back between two index
            # entries.
            is_looked_at = is_at_fault or end == 0
            if not batch.is_valid() or (batch.last_offset <= last_offset and is_looked_at):
                problems.append(f"{name} still holds damage at byte {batch.position}")
            last_offset, end = batch.last_offset, batch.position + batch.size_bytes
        if end != len(content):
            problems.append(f"{name} ends in {len(content) - end} bytes that are no batch")
    return problems


def framed_batches(content: bytes) -> Iterator[RecordBatch]:
    """Yield the batches that are whole by their size fields, of any magic, as Kafka reads a file (FR8)."""
    at = 0
    while at + LOG_OVERHEAD + MIN_SIZE_FIELD <= len(content):
        size_bytes = LOG_OVERHEAD + int.from_bytes(content[at + 8 : at + 12], "big", signed=True)
        if size_bytes < LOG_OVERHEAD + MIN_SIZE_FIELD or at + size_bytes > len(content):
            return
        yield RecordBatch(content, at, size_bytes)
        at += size_bytes


def _logs(directory: Path) -> dict[str, bytes]:
    """Return the logs by the name that each has once it is live."""
    paths = [*directory.glob("*.log"), *directory.glob("*.log.swap")]
    return {path.name.removesuffix(".swap"): path.read_bytes() for path in paths}


@final
class Judge:
    """Runs each case in a fresh directory and counts."""

    def __init__(
        self, root: Path, work: Path, options: Options, write: Callable[[str], None] = print
    ) -> None:
        self._root, self._work, self._options, self._write = root, work, options, write
        self.cases = self.differing = self.refused = self.unhealed = 0

    def judge(self, case: Json) -> Json:
        """Run the case and write its differences. Returns our outcome."""
        directory = prepare(case, self._root, self._work)
        before = _logs(directory)
        self.cases += 1
        try:
            actual = run_case(case, directory)
        except CRASHES as error:
            actual = {"error": "crash", "message": f"{type(error).__name__}: {error}"}
        if "error" in case["kafka"]:
            self.refused += 1
            problems = (
                unhealed(case, directory, before, actual)
                if actual.get("error") != "crash"
                else [actual["message"]]
            )
            self.unhealed += bool(problems)
        else:
            problems = differences(case["kafka"], actual, self._options.ignore)
            self.differing += bool(problems)
        for problem in problems:
            self._write(f"{case['id']} {case['source']} {problem}")
        shutil.rmtree(directory, ignore_errors=True)
        return actual

    @property
    def summary(self) -> str:
        return f"{self.cases} cases, {self.differing} differ, {self.refused} refused by Kafka"


def read_cases(path: Path, options: Options) -> Iterator[Json]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            case = json.loads(line)
            if options.wants(case):
                yield case


# The self-test


def _structural_lies(expected: Json) -> Iterator[tuple[str, Json]]:
    """Yield copies with one thing too much or too little: a file, a segment, an index entry, an epoch, a producer."""
    yield from lies_about(expected, "loaded")
    told = copy.deepcopy(expected)
    told["then"] = [*told.get("then", []), {"op": ["truncate", 0]}]
    yield "an operation missing", told


def self_test(cases: list[Json], root: Path, work: Path, options: Options) -> list[str]:
    """Falsify each kind of field once, in a case that holds without it. Returns the kinds that went unnoticed.

    Kinds that the options leave out of the comparison are not falsified.
    """
    judge = Judge(root, work, options, write=lambda line: None)
    seen: set[str] = set()
    unnoticed = []
    structural_done = False
    for case in cases:
        expected = case["kafka"]
        actual = judge.judge(case)
        if "error" in expected or differences(expected, actual, options.ignore):
            continue
        if not structural_done:
            structural_done = True
            for kind, lie in _structural_lies(expected):
                is_ignored = "producers" in options.ignore and "producer" in kind
                if not is_ignored and not differences(lie, actual, options.ignore):
                    unnoticed.append(kind)
                seen.add(kind)
        for path in leaves(expected):
            kind = kind_of(path)
            is_ignored = ("producers" in options.ignore and "producers" in path) or (
                "snapshots" in options.ignore and kind.startswith("files_after_close.snapshot")
            )
            if kind in seen or is_ignored or "op" in path:
                continue
            seen.add(kind)
            if not differences(falsified(expected, path), actual, options.ignore):
                unnoticed.append(kind)
        for kind, lie in () if "snapshots" in options.ignore else snapshot_lies(actual):
            if kind not in seen:
                seen.add(kind)
                unnoticed += [] if differences(expected, lie, options.ignore) else [kind]
    if not seen:
        unnoticed.append("everything: no case holds")
    print(f"self-test: {len(seen)} kinds of field falsified, {len(unnoticed)} unnoticed")
    return unnoticed


def _split(text: str) -> list[str]:
    return [part.strip().removeprefix(".") for part in text.split(",") if part.strip()]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tests.golden.recovery_cases", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("root", type=Path)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--sources", type=_split, default=[], help="topics, comma separated")
    parser.add_argument("--without-damage-to", type=_split, default=[], help="file name suffixes")
    parser.add_argument("--ignore", type=_split, default=[], help="producers, snapshots")
    parser.add_argument("--self-test", action="store_true")
    given = parser.parse_args(arguments)
    if unknown := set(given.ignore) - {"producers", "snapshots"}:
        parser.error(f"--ignore: {', '.join(sorted(unknown))}: producers and snapshots can be ignored")
    options = Options(
        sources=frozenset(given.sources),
        without_damage_to=tuple(given.without_damage_to),
        ignore=frozenset(given.ignore),
    )
    with tempfile.TemporaryDirectory(prefix="recovery-cases-", dir=scratch()) as work:
        if given.self_test:
            unnoticed = self_test(list(read_cases(given.cases, options)), given.root, Path(work), options)
            for kind in unnoticed:
                print(f"unnoticed: {kind}")
            return 1 if unnoticed else 0
        judge = Judge(given.root, Path(work), options)
        for case in read_cases(given.cases, options):
            judge.judge(case)
        if judge.unhealed:
            print(f"{judge.unhealed} refused by Kafka end here in neither a healed log nor one clear error")
        print(judge.summary)
        return 1 if judge.differing or judge.unhealed else 0


if __name__ == "__main__":
    sys.exit(main())
