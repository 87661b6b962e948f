"""An error at any call within a deletion, a rename of a log's directory, or a round of the cleaner.

As in `tests/storage/log/test_fail_anywhere.py`: the first time the first call of a function of storage raises, then the
second, and so on, until the operation passes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from sim.disk import SimDisk
from sim.disk.life import Life
from storage.directory.manager import LogManager
from storage.disk.filesystem import dirname
from storage.errors import StorageError
from storage.log import PartitionLog
from storage.topics import DELETE_SUFFIX
from tests.storage.cleaner.compacted_logs import CleanedLog, run
from tests.storage.directory.directories import DIRECTORY, started
from tests.storage.log.failing_calls import FailingCalls, Struck, StruckInStorage
from tests.storage.log.test_fail_anywhere import difference, state_of
from tests.storage.logs import NOW_MS, SMALL, append_each, new_disk, open_log, produced

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
ERRORS = (Struck, StruckInStorage)
NEW_NAME = "t-0.0123456789abcdef0123456789abcdef-stray"


@pytest.fixture(autouse=True)
def quiet() -> Any:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def each_failure(
    error: type[Exception], stride: int, start: Callable[[], Callable[[FailingCalls], None]]
) -> list[str]:
    """Strike each `stride`-th call; `start` prepares, and returns what runs and then judges. Returns what was wrong."""
    wrong: list[str] = []
    number = 1
    while True:
        calls, attempt = FailingCalls(number, error), start()
        try:
            attempt(calls)
        except Exception as problem:
            wrong.append(f"{number} {calls.place}: {type(problem).__name__}: {str(problem)[:300]}")
        if not calls.place:
            return wrong
        number += stride


def struck(calls: FailingCalls, operation: Callable[[], object]) -> None:
    with suppress(Struck, StorageError):
        calls.during(operation)


# A rename


def check_rename(disk: SimDisk, log: PartitionLog) -> None:
    before = state_of(reopened(disk, log.local.directory))
    if log.online.reason is not None:
        with pytest.raises(StorageError, match="is offline"):
            log.append_as_leader(produced(), leader_epoch=1, now_ms=NOW_MS)
        return
    assert state_of(log) == before, difference(before, state_of(log))
    # Files that are made or renamed from now on are in the same directory.
    for epoch in (1, 2):
        log.append_as_leader(
            produced(producer_id=epoch, producer_epoch=0, sequence=0), leader_epoch=epoch, now_ms=NOW_MS
        )
        log.flushes.roll(now_ms=NOW_MS)
    log.truncate_to(log.log_end_offset - 1, now_ms=NOW_MS)
    log.flushes.flush()
    assert dirname(log.epochs.path) == log.local.directory
    after = state_of(reopened(disk, log.local.directory))
    assert after == state_of(log), difference(after, state_of(log))


def reopened(disk: SimDisk, directory: str) -> PartitionLog:
    return open_log(disk.snapshot().file_system(Life()), SMALL, directory=directory)


def rename_failures(error: type[Exception], stride: int) -> list[str]:
    filled = new_disk()
    log = open_log(filled.file_system(Life()), SMALL, directory=f"{DIRECTORY}/t-0")
    append_each(log, 10)
    log.close_handles()

    def start() -> Callable[[FailingCalls], None]:
        disk = filled.snapshot()
        opened = open_log(disk.file_system(Life()), SMALL, directory=f"{DIRECTORY}/t-0")

        def attempt(calls: FailingCalls) -> None:
            struck(calls, lambda: opened.rename_directory(NEW_NAME))
            names = disk.snapshot().file_system(Life()).list(DIRECTORY)
            assert names in (["t-0"], [NEW_NAME]), names
            if opened.online.reason is None:
                assert opened.local.directory == f"{DIRECTORY}/{names[0]}", opened.local.directory
                check_rename(disk, opened)

        return attempt

    return each_failure(error, stride, start)


# Deletions


def deletions() -> dict[str, Callable[[LogManager], object]]:
    def by_a_job(logs: LogManager) -> None:
        job = logs.begin_deletion("t", 0)
        if job is not None:
            job()

    def later(logs: LogManager) -> None:
        logs.delete_later("t", 0, NOW_MS)
        logs.delete_due(NOW_MS + SMALL.file_delete_delay_ms)

    return {"at once": lambda logs: logs.delete("t", 0), "by a job": by_a_job, "later": later}


def deletion_failures(
    delete: Callable[[LogManager], object], error: type[Exception], stride: int
) -> list[str]:
    filled = new_disk()
    logs = started(filled)
    for partition in (0, 1):
        append_each(logs.create("t", partition), 10)
    logs.close_handles()

    def start() -> Callable[[FailingCalls], None]:
        disk = filled.snapshot()
        opened = started(disk)

        def attempt(calls: FailingCalls) -> None:
            struck(calls, lambda: delete(opened))
            check_deletion(disk, opened)

        return attempt

    return each_failure(error, stride, start)


def check_deletion(disk: SimDisk, logs: LogManager) -> None:
    """A start has the log whole or not at all, and the other one; so has this manager, whose next deletion works."""
    loaded = started(disk.snapshot())
    assert set(loaded.logs) in ({"t-0", "t-1"}, {"t-1"}), set(loaded.logs)
    for log in loaded.logs.values():
        assert log.log_end_offset == 10, log
    known = logs.get("t", 0)
    if known is not None and known.online.reason is None:
        assert known.log_end_offset == 10
        assert "t-0" in loaded.logs, "the log is known, but a start does not find it"
        assert logs.delete("t", 0)
    if logs.get("t", 0) is None:
        # The name is free, here and after a start.
        append_each(logs.create("t", 0), 3)
        again = started(disk.snapshot())
        assert again.logs["t-0"].log_end_offset == 3
    names = disk.snapshot().file_system(Life()).list(DIRECTORY)
    assert all(
        not name.startswith("t-") or name in ("t-0", "t-1") or name.endswith(DELETE_SUFFIX) for name in names
    )


# A round of the cleaner


def filled_log() -> CleanedLog:
    cleaned = CleanedLog()
    for number in range(25):
        cleaned.put(number % 4, (number % 3, None if number % 7 == 0 else "x" * 60))
    cleaned.in_transaction(9, 1, 2)
    cleaned.abort(9)
    cleaned.in_transaction(8, 3)
    cleaned.commit(8)
    cleaned.roll()
    cleaned.put(5)
    return cleaned


Values = dict[bytes, bytes | None]


def check_round(cleaned: CleanedLog, before: Values, after: Values) -> None:
    """The log has each key's last value; of an aborted transaction only what a round has not reached."""
    log = cleaned.log
    loaded = open_log(cleaned.disk.snapshot().file_system(Life()), cleaned.config)
    if log.online.reason is None:
        assert state_of(log) == state_of(loaded), difference(state_of(loaded), state_of(log))
        cleaned.clean()
        again = open_log(cleaned.disk.snapshot().file_system(Life()), cleaned.config)
        assert state_of(log) == state_of(again), difference(state_of(again), state_of(log))
        loaded = again
        assert cleaned.last_values() == after
    cleaned.log = loaded
    found = cleaned.last_values()
    assert found.keys() >= after.keys()
    assert all(value in (before[key], after.get(key)) for key, value in found.items())
    assert loaded.log_end_offset == log.log_end_offset


def round_failures(error: type[Exception], stride: int) -> list[str]:
    sound = filled_log()
    before = sound.last_values()
    sound.clean()
    after = sound.last_values()

    def start() -> Callable[[FailingCalls], None]:
        cleaned = filled_log()

        def attempt(calls: FailingCalls) -> None:
            struck(calls, lambda: run(cleaned.prepare()))
            check_round(cleaned, before, after)

        return attempt

    return each_failure(error, stride, start)


@pytest.mark.slow
@pytest.mark.parametrize("error", ERRORS)
def test_rt15_an_error_at_any_call_of_a_rename_leaves_a_log_that_knows_its_place(
    error: type[Exception],
) -> None:
    assert rename_failures(error, 1) == []


@pytest.mark.slow
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("way", deletions())
def test_rt13_an_error_at_any_call_of_a_deletion_leaves_the_log_whole_or_gone(
    way: str, error: type[Exception]
) -> None:
    assert deletion_failures(deletions()[way], error, 1) == []


@pytest.mark.slow
@pytest.mark.parametrize("error", ERRORS)
def test_cl22_an_error_at_many_calls_of_a_round_leaves_the_last_value_of_each_key(
    error: type[Exception],
) -> None:
    assert round_failures(error, 7) == []


@pytest.mark.parametrize("error", ERRORS)
def test_ap16_an_error_at_some_calls_leaves_a_directory_that_knows_what_it_holds(
    error: type[Exception],
) -> None:
    wrong = rename_failures(error, 9) + round_failures(error, 499)
    for delete in deletions().values():
        wrong += deletion_failures(delete, error, 29)
    assert wrong == []
