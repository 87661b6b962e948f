"""Measures the latency of three nodes at 200 batches of 16 KiB a second, and where it goes.

The nodes and the client are processes of `traced.py`, whose notes have one clock. Each batch is followed through them
by its offset: the client, the leader, the follower that was the later one to ask for what comes after it, and back. The
spans of a batch add up to its latency.
"""

from __future__ import annotations

import bisect
import json
import socket
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, final

from bench.children import Child
from bench.cluster import BATCH_BYTES
from bench.pull import Pull
from bench.table import Line
from cluster.core.messages import CONTROLLER_ID
from cluster.rpc.methods import PRODUCE, REPLICA_FETCH

PER_S = 200
SECONDS = 10.0
NODES = 3
# The slowest batches that the second column of the profile is made of.
SLOW_SHARE = 0.02
SPANS = (
    "client: record, wait for a place in flight, request",
    "gRPC and network: client to leader",
    "leader: request, wait for its turn, checks",
    "leader: append",
    "leader: waiting fetches are answered",
    "gRPC and network: leader to follower",
    "follower: answer, checks",
    "follower: append",
    "follower: next fetch",
    "gRPC and network: follower to leader",
    "leader: high watermark, acknowledgement",
    "gRPC and network: leader to client",
    "client: answer, future",
)
# The spans between a leader's append and the fetch that raises its high watermark.
WAIT_FOR_HIGH_WATERMARK = SPANS[4:10]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The notes of one node: when gRPC passed on messages of the streams, and its appends by their last offset."""

    produce_in: list[int]
    produce_out: list[int]
    # As a leader.
    fetch_in: list[int]
    fetch_out: list[int]
    # Begin, end, last offset.
    appends: list[tuple[int, int, int]]

    def first_with(self, offset: int) -> tuple[int, int]:
        """Returns begin and end of the append that brought the record at `offset`."""
        index = bisect.bisect_left(self.appends, offset, key=lambda append: append[2])
        began, ended, last_offset = self.appends[index]
        assert last_offset >= offset, (last_offset, offset)
        return began, ended


def run() -> list[Line]:
    """Measure the cluster, then the bare pull, and print the profile: 30 seconds."""
    with tempfile.TemporaryDirectory(prefix="replog-bench-") as directory:
        found_ms = _measure(Path(directory))
        spans = [_ms(moments) for moments in _batches(Path(directory))]
    with Pull() as pull, pull.client(BATCH_BYTES) as client:
        client.read()
        bare_ms = client.ask(do="latency", per_s=PER_S, seconds=SECONDS)
    _show_profile(spans)
    what = f"three nodes, acks=all, 16 KiB, {PER_S} a second"
    return [
        _line(f"{what}: median", found_ms, 0.5, bare_ms),
        _line(f"{what}: p99", found_ms, 0.99, bare_ms),
    ]


def _measure(directory: Path) -> list[float]:
    """Runs nodes and client; their notes are in `directory` after it. Returns the client's own figures."""
    ports = _free_ports(NODES + 1)
    with ExitStack() as stack:
        for node_id, port in zip((CONTROLLER_ID, *range(1, NODES + 1)), ports, strict=True):
            place = ["--port", str(port), "--directory", str(directory / f"node-{node_id}")]
            controller = ["--controller", f"127.0.0.1:{ports[0]}", "--lifeline"]
            arguments = ["node", "--node-id", str(node_id), *place, *controller]
            notes = str(directory / f"{node_id}.json")
            log = stack.enter_context((directory / f"{node_id}.txt").open("w"))
            node = stack.enter_context(Child(["-m", "bench.traced", notes, *arguments], stderr=log))
            ready = node.read()
            assert ready["event"] == "ready", ready
        arguments = ["client", f"127.0.0.1:{ports[1]}", "--batch-bytes", str(BATCH_BYTES)]
        with Child(["-m", "bench.traced", str(directory / "client.json"), *arguments]) as client:
            client.read()
            found: list[float] = client.ask(do="latency", per_s=PER_S, seconds=SECONDS)
    return found


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _batches(directory: Path) -> list[list[int]]:
    """Returns for each batch the moments between its spans, from its send to its acknowledgement."""
    client = json.loads((directory / "client.json").read_text())
    notes = [json.loads((directory / f"{number}.json").read_text()) for number in range(1, NODES + 1)]
    leaders = [each for each in notes if each["append as_leader"]]
    assert len(leaders) == 1, "the leadership moved"
    followers = [_node(each, "append as_follower") for each in notes if each is not leaders[0]]
    leader = _node(leaders[0], "append as_leader")
    # The client's records have the offsets 0, 1, 2 …, in the order of their sends; the first is the warm-up's.
    acked = {offset: moment for moment, offset in client["acked"]}
    assert sorted(acked) == list(range(len(client["sent"]))), (len(acked), len(client["sent"]))
    to_leader, from_leader = client[f"out {PRODUCE}"], client[f"in {PRODUCE}"]
    return [
        _moments(leader, followers, to_leader, from_leader, offset, client["sent"][offset], acked[offset])
        for offset in range(PER_S, len(acked))
    ]


def _node(notes: dict[str, Any], append: str) -> Node:
    return Node(
        produce_in=notes.get(f"in {PRODUCE}", []),
        produce_out=notes.get(f"out {PRODUCE}", []),
        fetch_in=notes.get(f"in {REPLICA_FETCH}", []),
        fetch_out=notes.get(f"out {REPLICA_FETCH}", []),
        appends=[(began, ended, offset) for began, ended, offset in notes[append]],
    )


def _moments(
    leader: Node,
    followers: Sequence[Node],
    to_leader: list[int],
    from_leader: list[int],
    offset: int,
    sent: int,
    acked: int,
) -> list[int]:
    """Follows one batch: from its append at the leader back to its send, and onward to its acknowledgement."""
    append, appended = leader.first_with(offset)
    received = _last(leader.produce_in, append)
    written = _last(to_leader, received)

    def asked_again(follower: Node) -> int:
        return _next(follower.fetch_out, follower.first_with(offset)[1])

    # Acknowledged once both have it.
    slower = max(followers, key=asked_again)
    copy, copied = slower.first_with(offset)
    fetched = _last(slower.fetch_in, copy)
    answered = _last(leader.fetch_out, fetched)
    asked = asked_again(slower)
    known = _next(leader.fetch_in, asked)
    confirmed = _next(leader.produce_out, known)
    read = _next(from_leader, confirmed)
    return [
        *(sent, written, received, append, appended, answered, fetched),
        *(copy, copied, asked, known, confirmed, read, acked),
    ]


def _last(moments: list[int], before: int) -> int:
    return moments[bisect.bisect_right(moments, before) - 1]


def _next(moments: list[int], after: int) -> int:
    return moments[bisect.bisect_left(moments, after)]


def _ms(moments: Sequence[int]) -> list[float]:
    return [(end - begin) / 1e6 for begin, end in pairwise(moments)]


def _show_profile(batches: list[list[float]]) -> None:
    """Print the mean of each span, over all batches and over the slowest ones."""
    from rich.console import Console
    from rich.table import Table

    slow = sorted(batches, key=sum)[-max(1, int(len(batches) * SLOW_SHARE)) :]
    table = Table(
        title=f"where the time of a batch goes, {len(batches)} batches, means in ms", title_justify="left"
    )
    table.add_column("span")
    for heading in ("all", "share", f"slowest {SLOW_SHARE:.0%}", "share"):
        table.add_column(heading, justify="right")
    for span, everywhere, slowly in zip(SPANS, _means(batches), _means(slow), strict=True):
        table.add_row(span, *_cells(everywhere, batches), *_cells(slowly, slow))
    table.add_section()
    waits = [SPANS.index(span) for span in WAIT_FOR_HIGH_WATERMARK]
    total, total_slow = sum(_means(batches)), sum(_means(slow))
    waited, waited_slow = (sum(_means(each)[index] for index in waits) for each in (batches, slow))
    table.add_row(
        "of it, the wait for the high watermark", *_cells(waited, batches), *_cells(waited_slow, slow)
    )
    table.add_row("all", *_cells(total, batches), *_cells(total_slow, slow))
    Console(width=160).print(table)


def _means(batches: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.fmean(column) for column in zip(*batches, strict=True)]


def _cells(value: float, batches: Sequence[Sequence[float]]) -> tuple[str, str]:
    return f"{value:.3f}", f"{value / sum(_means(batches)):.0%}"


def _line(what: str, found_ms: list[float], quantile: float, bare_ms: list[float]) -> Line:
    return Line(
        what=what,
        value=_quantile(found_ms, quantile),
        unit="ms",
        lower_is_better=True,
        detail=f"the bare pull {_quantile(bare_ms, quantile):.2f} ms; {len(found_ms):,} batches",
    )


def _quantile(values: list[float], quantile: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * quantile))]


if __name__ == "__main__":
    sys.exit("run `python -m bench latency`")
