"""Measures three real nodes and a controller beside the bare pull of `pull.py`: batches a second with acks=all, the
CPU time of a batch, time to ready, memory.

Clients, nodes and controller share this machine's cores, as in the measurement of real Kafka. The product and the pull
take turns, and a round's ratio is between two turns that follow each other.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import final

from bench.children import Child, Nodes, code_of, cpu_s, resident_bytes
from bench.pull import Pull
from bench.table import Line

LOAD = str(Path(__file__).with_name("load.py"))
ROOT = Path(__file__).parents[1]
ROUNDS = 5
ROUND_S = 2.0
WARM_UP_S = 1.0
BATCH_BYTES = 16 << 10
# By the size of a batch: what is in it, and the least share of the pull's batches a second. The aim is 0.6.
SIZES = {
    BATCH_BYTES: ("16 KiB batches", 0.46),
    (1 << 10) + 100: ("one 1 KiB record a batch", 0.45),
    128 << 10: ("128 KiB batches", 0.45),
}
KAFKA_BATCHES_PER_S = 1_270
KAFKA_READY_S = 8.0
KAFKA_GIB = 2.9


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one turn of a loaded system showed: batches a second, and the CPU time of all its processes for a batch."""

    per_s: float
    cpu_us: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A running system and a client that loads it."""

    client: Child
    pids: list[int]

    def turn(self, seconds: float) -> Turn:
        """Loads the system for `seconds`."""
        pids = [*self.pids, self.client.pid]
        before_s = cpu_s(pids)
        found = self.client.ask(do="rate", seconds=seconds)
        used_s = cpu_s(pids) - before_s
        return Turn(per_s=found["batches"] / found["seconds"], cpu_us=1e6 * used_s / found["batches"])


def load(nodes: Nodes, batch_bytes: int, *, tree: Path = ROOT, blocking: bool = False) -> Child:
    """Returns a producer's process for the cluster, with the code of the checkout `tree`."""
    options = ["--batch-bytes", str(batch_bytes), *(["--blocking"] if blocking else [])]
    return Child(["-P", LOAD, nodes.bootstrap, *options], env=code_of(tree))


def run() -> list[Line]:
    """Measure each size of batches beside the pull, and the blocking producer beside the asyncio one: 2 minutes."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="replog-bench-"))
        pull = stack.enter_context(Pull())
        started = time.perf_counter()
        nodes = stack.enter_context(Nodes(Path(directory, "data")))
        ready_s = time.perf_counter() - started
        lines: list[Line] = []
        for batch_bytes in SIZES:
            lines += _beside_pull(nodes, pull, batch_bytes)
        lines.append(_pull_with_setting(pull))
        lines.append(_blocking(nodes))
        memory_gib = resident_bytes(nodes.pids) / (1 << 30)
    return [
        *lines,
        _at_most("`up --nodes 3` to ready", ready_s, "s", KAFKA_READY_S),
        _at_most("memory of all five processes after it", memory_gib, "GiB", KAFKA_GIB),
    ]


def _beside_pull(nodes: Nodes, pull: Pull, batch_bytes: int) -> list[Line]:
    with load(nodes, batch_bytes) as client, pull.client(batch_bytes) as pull_client:
        pairs = alternate(System(client=client, pids=nodes.pids), System(client=pull_client, pids=pull.pids))
    what, mark = SIZES[batch_bytes]
    ours, bare = zip(*pairs, strict=True)
    return [
        Line(
            what=f"three nodes, acks=all, {what}",
            value=statistics.median(each.per_s for each in ours),
            unit="batches/s",
            peer=f"Kafka {KAFKA_BATCHES_PER_S:,}" if batch_bytes == BATCH_BYTES else "",
            detail=f"rounds: {_rounds(ours)}; CPU of a batch {_cpu_us(ours):,.0f} us",
        ),
        Line(
            what="  over the bare pull",
            value=statistics.median(one.per_s / other.per_s for one, other in pairs),
            unit="of its batches/s",
            target=mark,
            detail=f"rounds: {_rounds(bare)}; CPU of a batch {_cpu_us(bare):,.0f} us",
        ),
        Line(
            what="  the same by CPU",
            value=statistics.median(other.cpu_us / one.cpu_us for one, other in pairs),
            unit="of its batches a CPU second",
        ),
    ]


def alternate(one: System, other: System) -> list[tuple[Turn, Turn]]:
    """Loads both in turns after a turn each to warm up; returns the pairs of turns."""
    one.client.read()
    other.client.read()
    one.turn(WARM_UP_S)
    other.turn(WARM_UP_S)
    return [(one.turn(ROUND_S), other.turn(ROUND_S)) for _ in range(ROUNDS)]


def _pull_with_setting(pull: Pull) -> Line:
    """Measure what the nodes' setting of gRPC alone brings, which the floor is without."""
    with (
        Pull(with_setting=True) as other,
        other.client(BATCH_BYTES) as ours,
        pull.client(BATCH_BYTES) as bare,
    ):
        pairs = alternate(System(client=ours, pids=other.pids), System(client=bare, pids=pull.pids))
    return Line(
        what="bare pull with the nodes' setting of gRPC, 16 KiB batches",
        value=statistics.median(one.per_s / other.per_s for one, other in pairs),
        unit="of the bare pull's batches/s",
        detail=f"rounds: {_rounds(one for one, _ in pairs)}; CPU of a batch {_cpu_us(one for one, _ in pairs):,.0f} us",
    )


def _blocking(nodes: Nodes) -> Line:
    with load(nodes, BATCH_BYTES, blocking=True) as blocking, load(nodes, BATCH_BYTES) as asyncio_one:
        pairs = alternate(
            System(client=blocking, pids=nodes.pids), System(client=asyncio_one, pids=nodes.pids)
        )
    return Line(
        what="blocking producer over the asyncio one, 16 KiB batches",
        value=statistics.median(one.per_s / other.per_s for one, other in pairs),
        unit="of its batches/s",
        detail=f"CPU of a batch {_cpu_us(one for one, _ in pairs):,.0f} us",
    )


def _rounds(turns: Iterable[Turn]) -> str:
    return ", ".join(f"{each.per_s:,.0f}" for each in turns)


def _cpu_us(turns: Iterable[Turn]) -> float:
    return statistics.median(each.cpu_us for each in turns)


def _at_most(what: str, value: float, unit: str, mark: float) -> Line:
    return Line(what=what, value=value, unit=unit, target=mark, lower_is_better=True, peer=f"Kafka {mark:g}")
