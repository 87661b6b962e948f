"""Plants known mistakes into copies of the checkout, one each, and shows which tests and scenarios notice.

    python tools/mutants.py [NAME...] [--list] [--jobs N]

A copy has all tracked files and all new ones that are not ignored, as they are now. Exit status: 0 every mistake was
noticed, 1 some mistake was not, 2 the tool could not work: a text to replace is missing, or sound code fails a watcher.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mistakes import MISTAKES, Edit, Mistake

PACKAGES = ("storage", "cluster", "sim", "replog")
PYTEST = (
    "pytest",
    "-q",
    "--tb=no",
    "-rfE",
    "-p",
    "no:cacheprovider",
    "-o",
    "addopts=--import-mode=importlib",
)
# The exit statuses of pytest and of replog.
NO_FAILURES, FAILURES = 0, 1
HELD, VIOLATED = 0, 1
LONGEST_SECONDS = 600


class ToolError(Exception):
    """The tool cannot decide whether a mistake is noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The watchers (tests and scenarios) of one mistake that noticed it, and those that did not."""

    mistake: Mistake
    noticed_by: tuple[str, ...]
    silent: tuple[str, ...]
    seconds: float


def copy_checkout(root: Path, target: Path) -> None:
    """Copy the files of the checkout at `root` into `target`. Raises ToolError unless git knows `root`."""
    listed = subprocess.run(
        ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"),
        cwd=root, capture_output=True, check=False,
    )  # fmt: skip
    if listed.returncode != 0:
        raise ToolError(f"{root} is not a checkout: {listed.stderr.decode().strip()}")
    for name in listed.stdout.decode().split("\0"):
        source = root / name
        if name and source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


def plant(copy: Path, edit: Edit) -> None:
    """Make one edit in a copy. Raises ToolError unless the file has the old text exactly once."""
    path = copy / edit.path
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    count = text.count(edit.old)
    if count != 1:
        raise ToolError(f"{edit.path} has the text {count} times, not once:\n{edit.old}")
    path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")


def run_python(copy: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run Python in a copy, whose modules come before the installed ones."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
    environment |= {"PYTHONPATH": str(copy), "PYTHONHASHSEED": "0"}
    return subprocess.run(
        (sys.executable, *arguments),
        cwd=copy, env=environment, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False,
    )  # fmt: skip


def check_modules(copy: Path) -> None:
    """Raise ToolError if a test in the copy would run other code than the copy's."""
    script = f"import {', '.join(PACKAGES)}; print({', '.join(f'{name}.__file__' for name in PACKAGES)}, sep='\\n')"
    shown = run_python(copy, ("-c", script))
    files = shown.stdout.split("\n")[: len(PACKAGES)]
    if shown.returncode != 0 or any(not Path(file).is_relative_to(copy) for file in files):
        raise ToolError(f"the copy's modules are not the imported ones: {shown.stdout}{shown.stderr}")


def failing_tests(copy: Path, tests: Iterable[str]) -> dict[str, None]:
    """Returns those of `tests` that fail, in order and without parameters."""
    wanted = tuple(dict.fromkeys(tests))
    if not wanted:
        return {}
    done = run_python(copy, ("-m", *PYTEST, *wanted))
    if done.returncode not in (NO_FAILURES, FAILURES):
        raise ToolError(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    failed: dict[str, None] = {}
    for line in done.stdout.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            failed[line.split(" ")[1].split("[")[0]] = None
    assert bool(failed) == (done.returncode == FAILURES), done.stdout
    return failed


def is_violated(copy: Path, scenario: str) -> bool:
    """Whether the run of `scenario`, a name with `@` and a seed, ends as violated. Raises ToolError if it fails."""
    name, _, seed = scenario.partition("@")
    arguments = ("-m", "replog", "sim", "run", f"scenarios/{name}.yaml", "--seed", seed, "--no-story")
    done = run_python(copy, arguments)
    if done.returncode not in (HELD, VIOLATED) or "verdict: " not in done.stdout:
        raise ToolError(
            f"{scenario} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.returncode == VIOLATED


def check_watchers(base: Path, mistakes: Sequence[Mistake]) -> None:
    """Raise ToolError if a watcher fails on sound code: its failure would then prove nothing."""
    failing = list(failing_tests(base, (test for mistake in mistakes for test in mistake.tests)))
    scenarios = dict.fromkeys(scenario for mistake in mistakes for scenario in mistake.scenarios)
    failing += [scenario for scenario in scenarios if is_violated(base, scenario)]
    if failing:
        raise ToolError("these fail without any mistake: " + ", ".join(failing))


def judge(base: Path, mistake: Mistake) -> Found:
    """Plant one mistake into a new copy of `base`, and run its watchers."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix=f"mutant-{mistake.name}-") as directory:
        copy = Path(directory).resolve()
        shutil.copytree(base, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        for edit in mistake.edits:
            plant(copy, edit)
        check_modules(copy)
        noticed = [*failing_tests(copy, mistake.tests)]
        noticed += [scenario for scenario in mistake.scenarios if is_violated(copy, scenario)]
    silent = [watcher for watcher in (*mistake.tests, *mistake.scenarios) if watcher not in noticed]
    return Found(
        mistake=mistake, noticed_by=tuple(noticed), silent=tuple(silent), seconds=time.perf_counter() - began
    )


def lines_of(found: Found) -> list[str]:
    """Returns the lines of the table for one mistake."""
    shown = [watcher.rpartition("/")[2] for watcher in found.noticed_by] or ["NOBODY"]
    shown += [f"(silent: {watcher.rpartition('/')[2]})" for watcher in found.silent]
    name, seconds = found.mistake.name, f"{found.seconds:.1f}"
    first = f"{name:<30} {seconds:>7}  {shown[0]}"
    return [first, *(" " * 40 + more for more in shown[1:])]


def main() -> int:
    """Try the chosen mistakes or list them; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="NAME", help="the mistakes to try; all by default")
    parser.add_argument("--list", action="store_true", help="show the mistakes and what they break")
    parser.add_argument(
        "--jobs", type=int, default=min(4, os.cpu_count() or 1), help="copies tried at the same time"
    )
    arguments = parser.parse_args()
    known = {mistake.name: mistake for mistake in MISTAKES}
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"unknown mistake {unknown[0]!r}: known are {', '.join(known)}")
    chosen = [known[name] for name in arguments.names] or list(MISTAKES)
    if arguments.list:
        for mistake in chosen:
            print(f"{mistake.name:<30} {mistake.rule}")
        return 0
    try:
        return try_all(chosen, max(1, arguments.jobs))
    except ToolError as error:
        print(error, file=sys.stderr)
        return 2


def try_all(chosen: Sequence[Mistake], jobs: int) -> int:
    """Try the mistakes, print the table; returns the exit status. Raises ToolError."""
    root = Path(__file__).resolve().parent.parent
    unnoticed = 0
    with tempfile.TemporaryDirectory(prefix="mutant-base-") as directory:
        base = Path(directory).resolve()
        copy_checkout(root, base)
        check_modules(base)
        check_watchers(base, chosen)
        print(f"{'mistake':<30} {'seconds':>7}  noticed by", flush=True)
        with ThreadPoolExecutor(jobs) as pool:
            for found in pool.map(lambda mistake: judge(base, mistake), chosen):
                print("\n".join(lines_of(found)), flush=True)
                unnoticed += not found.noticed_by
    print(f"{len(chosen)} mistakes, {len(chosen) - unnoticed} noticed, {unnoticed} not")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
