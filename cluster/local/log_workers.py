"""Runs one piece of work for each partition, in parallel processes, with a progress bar on a terminal."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from storage.disk.filesystem import FileSystem, basename, join

if TYPE_CHECKING:
    from rich.progress import Progress

Result = TypeVar("Result")

# Below this size of data a second process takes longer to start than it saves.
SMALL_BYTES = 64 * 1024 * 1024


def default_jobs(file_system: FileSystem, paths: Sequence[str]) -> int:
    """Returns the number of processors, at most one job per partition; 1 for little data.

    A directory that cannot be read does not count: the work itself reports the reason.
    """
    size_bytes = 0
    for path in paths:
        try:
            for name in file_system.list(path):
                if name.endswith(".log"):
                    size_bytes += file_system.stat(join(path, name)).size_bytes
        except OSError:
            continue
    return 1 if size_bytes < SMALL_BYTES else max(1, min(len(paths), os.cpu_count() or 1))


def for_each_partition(
    work: Callable[[str], Result], paths: Sequence[str], *, jobs: int, title: str
) -> Generator[Result, None, None]:
    """Yields the result of `work` for each of `paths`, in their order, as soon as it and those before it are done.

    With more than one job, `work` and its results are sent between processes, so `work` must be a function of a module
    or a partial of one. The processes end with this one, at once when it is interrupted or closed: they have ended when
    `close` returns. Raises ChildProcessError where one of them is killed.
    """
    with ExitStack() as stack:
        bar = _progress(stack, len(paths), title)
        results: Iterator[Result]
        if jobs <= 1 or len(paths) <= 1:
            results = map(work, paths)
        else:
            results = _side_by_side(stack, work, paths, min(jobs, len(paths)))
        for path, result in zip(paths, results, strict=True):
            if bar is not None:
                # The caller prints the result on a line of its own.
                bar.stop()
            yield result
            if bar is not None:
                bar.update(bar.task_ids[0], advance=1, name=basename(path))
                bar.start()


def _side_by_side(
    stack: ExitStack, work: Callable[[str], Result], paths: Sequence[str], count: int
) -> Iterator[Result]:
    # A fork starts at once. While other threads run, which may hold locks, only a new interpreter is safe.
    is_alone = threading.active_count() == 1 and sys.platform == "linux"
    context = multiprocessing.get_context("fork" if is_alone else "spawn")
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(max_workers=count, mp_context=context, initializer=_begin_worker)
    stack.callback(pool.shutdown, cancel_futures=True)
    # The signal is blocked until the workers are ready for it.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        results = pool.map(work, paths)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def end_at_once(error_type: object, *_: object) -> None:
        """Terminates the workers on an error: the remaining work may take minutes, and may be cut off anywhere."""
        if error_type is not None:
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()

    stack.push(end_at_once)
    return _results(results, paths)


def _results(results: Iterator[Result], paths: Sequence[str]) -> Iterator[Result]:
    for path in paths:
        try:
            yield next(results)
        except BrokenProcessPool as error:
            message = "a process that worked on partitions was killed, perhaps because memory ran out"
            raise ChildProcessError(f"{path}: {message}") from error


def _begin_worker() -> None:
    """Prepares a worker process to end silently on Ctrl-C and, for whatever reason, with its parent.

    Without its parent it would wait for work for ever, and a forked one would hold the lock of the log directory.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    # One that is ignored, as by nohup, stays so.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _progress(stack: ExitStack, count: int, title: str) -> Progress | None:
    """Returns a progress bar of partitions on a terminal; None in a pipe, where the printed results are enough."""
    if not sys.stderr.isatty() or count < 2:
        return None
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    progress = stack.enter_context(
        Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[name]}"),
            console=Console(stderr=True),
            transient=True,
        )
    )
    progress.add_task(title, total=count, name="")
    return progress
