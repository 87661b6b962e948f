"""Compares this checkout with another commit: three nodes, acks=all, in processes of each that take turns.

`python -m bench paired --before REV [--batch-bytes N] [--rounds N] [--blocking]`. Each round starts a cluster and a
client with the code of each, and loads them in short turns. On a machine with other work the CPU time of a batch, of
all processes together, is steadier than the batches a second.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.children import Nodes, code_of
from bench.cluster import BATCH_BYTES, ROOT, ROUNDS, WARM_UP_S, System, Turn, load
from bench.table import Line

TURN_S = 0.5
# An even number, so that each is first as often as the other.
TURNS = 8
# Not slower than before: what is below this is noise on a machine of two cores.
MARK = 0.97


def run(arguments: Sequence[str]) -> list[Line]:
    """Measure as the command line says: about 20 seconds a round."""
    parser = argparse.ArgumentParser(prog="python -m bench paired")
    parser.add_argument("--before", required=True, metavar="REV", help="the commit to compare with")
    parser.add_argument("--batch-bytes", type=int, default=BATCH_BYTES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--blocking", action="store_true", help="load with the blocking producer")
    given = parser.parse_args(arguments)
    with worktree(given.before) as before:
        pairs = []
        for number in range(given.rounds):
            # Each is first in every second round.
            trees = (before, ROOT) if number % 2 == 0 else (ROOT, before)
            turns = measured(trees, given.batch_bytes, given.blocking)
            pairs.append((turns[before], turns[ROOT]))
    return _lines(given.before, pairs)


@contextmanager
def worktree(revision: str) -> Iterator[Path]:
    """Checks the commit out into a directory of its own, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="replog-before-") as directory:
        tree = Path(directory, "tree")
        _git("worktree", "add", "--detach", str(tree), revision)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> None:
    """Runs git. Ends the command with one line where git fails, as for a commit that is not there."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: git {arguments[0]} {arguments[1]}: {done.stderr.strip().splitlines()[-1]}")


def measured(trees: Sequence[Path], batch_bytes: int, blocking: bool) -> dict[Path, Turn]:
    """Starts a cluster and a producer with the code of each tree, and loads them in turns; returns what each showed."""
    with ExitStack() as stack:
        systems = {tree: _started(stack, tree, batch_bytes, blocking) for tree in trees}
        for system in systems.values():
            system.turn(WARM_UP_S)
        turns: dict[Path, list[Turn]] = {tree: [] for tree in trees}
        # Other work on the machine comes and goes: short turns let it meet both alike.
        for tree in [*trees, *reversed(trees)] * (TURNS // 2):
            turns[tree].append(systems[tree].turn(TURN_S))
        return {tree: _combined(found) for tree, found in turns.items()}


def _started(stack: ExitStack, tree: Path, batch_bytes: int, blocking: bool) -> System:
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="replog-bench-"))
    nodes = stack.enter_context(Nodes(Path(directory, "data"), env=code_of(tree)))
    client = stack.enter_context(load(nodes, batch_bytes, tree=tree, blocking=blocking))
    client.read()
    return System(client=client, pids=nodes.pids)


def _combined(turns: Sequence[Turn]) -> Turn:
    """Returns several turns of the same length as one."""
    batches = sum(turn.per_s for turn in turns)
    cpu_us = sum(turn.per_s * turn.cpu_us for turn in turns) / batches
    return Turn(per_s=batches / len(turns), cpu_us=cpu_us)


def _lines(revision: str, pairs: Sequence[tuple[Turn, Turn]]) -> list[Line]:
    name = revision[:12]
    rates = [after.per_s / before.per_s for before, after in pairs]
    costs = [after.cpu_us / before.cpu_us for before, after in pairs]
    return [
        Line(
            what=f"batches/s over those of {name}",
            value=statistics.median(rates),
            unit="times",
            target=MARK,
            detail=_detail([(before.per_s, after.per_s) for before, after in pairs], "batches/s"),
        ),
        Line(
            what=f"CPU of a batch over that of {name}",
            value=statistics.median(costs),
            unit="times",
            target=1 / MARK,
            lower_is_better=True,
            detail=_detail([(before.cpu_us, after.cpu_us) for before, after in pairs], "us"),
        ),
    ]


def _detail(pairs: Sequence[tuple[float, float]], unit: str) -> str:
    return "; ".join(f"{before:,.0f} -> {after:,.0f}" for before, after in pairs) + f" {unit}"
