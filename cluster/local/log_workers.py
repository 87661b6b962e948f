"""One piece of work a partition, in processes side by side, with progress on a terminal."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from storage.disk.filesystem import FileSystem, basename, join

if TYPE_CHECKING:
    from rich.progress import Progress

Result = TypeVar("Result")

SMALL_BYTES = 64 * 1024 * 1024
"""Below this a second process takes longer to start than it saves."""


def default_jobs(file_system: FileSystem, paths: Sequence[str]) -> int:
    """The processors, or 1 for little data. What cannot be read does not count: who works on it says why."""
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
) -> Iterator[Result]:
    """The results in the order of `paths`, each as soon as it and those before it are there.

    With more than one job `work` and its results go between processes: a function of a module, or a partial of one.
    They end with this one, at once where it is interrupted. ChildProcessError where one is killed.
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
                # The result is printed on a line of its own.
                bar.stop()
            yield result
            if bar is not None:
                bar.update(bar.task_ids[0], advance=1, name=basename(path))
                bar.start()


def _side_by_side(
    stack: ExitStack, work: Callable[[str], Result], paths: Sequence[str], count: int
) -> Iterator[Result]:
    # A fork is there at once; with threads about, which may hold locks, only a process from scratch is safe.
    is_alone = threading.active_count() == 1 and sys.platform == "linux"
    context = multiprocessing.get_context("fork" if is_alone else "spawn")
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(max_workers=count, mp_context=context, initializer=_begin_worker)
    stack.callback(pool.shutdown, cancel_futures=True)
    # Until the workers are ready for the signal.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        results = pool.map(work, paths)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def end_at_once(error_type: object, *_: object) -> None:
        """What is left of the work may take minutes, and each step of it may end anywhere."""
        if error_type is not None:
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()

    stack.push(end_at_once)
    return _told(results, paths)


def _told(results: Iterator[Result], paths: Sequence[str]) -> Iterator[Result]:
    for path in paths:
        try:
            yield next(results)
        except BrokenProcessPool as error:
            message = "a process that worked on partitions was killed, for want of memory perhaps"
            raise ChildProcessError(f"{path}: {message}") from error


def _begin_worker() -> None:
    """Ctrl-C ends it without a word. So does the end of its parent, however that came: it would wait for work for ever,
    and a forked one would hold the lock of the log directory.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _progress(stack: ExitStack, count: int, title: str) -> Progress | None:
    """Tells of a partition that is done; in a pipe the results themselves are enough."""
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
