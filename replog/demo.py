"""The second half of `make demo`: three real brokers, a real text, and a leader that is killed half-way.

The exit status is 0 only if every claim held: each acknowledged line is consumed once and in order, and the replicas'
batches are equal byte for byte, after its restart also those of the killed one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import hashlib
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from cluster.core.client.config import OffsetReset, ProducerConfig
from cluster.core.client.effects import EndOfPartition, Fetched
from cluster.core.errors import ClusterError
from cluster.core.messages import PartitionMetadata, ReplicaDescription, TopicPartition
from cluster.local.layout import CONTROLLER_PORT_DISTANCE, DEFAULT_PORT, HOST
from cluster.local.python_path import python_path
from cluster.shell.clients import AsyncAdmin, AsyncConsumer, AsyncProducer, DeliveryError, RecordMetadata
from cluster.shell.server import PortInUse, check_port_free
from storage.batch import iterate_batches

NODES = 3
LINES = 100_000
TOPIC = "library"
PLACE = TopicPartition(TOPIC, 0)
# Small, so that the log has several segments.
SEGMENT_BYTES = 1 << 20
# Kafka's own session timeout is 9 s: too long to wait for here.
SESSION = ("broker.session.timeout.ms=2000", "broker.heartbeat.interval.ms=300")
# A small buffer: lines are sent as earlier ones are acknowledged, not all at once.
PACED = ProducerConfig(buffer_memory=256 << 10)
# More lines than can have been in flight when the leader was killed.
KILLED_IN_FLIGHT = 5_000
DEADLINE_S = 60.0


class ClaimBroken(Exception):
    """A claim of the demo did not hold."""


def say(text: str) -> None:
    print(text, flush=True)


def since(started: float) -> str:
    return f"{time.perf_counter() - started:.1f} s"


def library_lines(count: int) -> list[bytes]:
    """Returns at least `count` lines of the Python standard library's source, file by file in order of name."""
    lines: list[bytes] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        lines += path.read_bytes().splitlines()
        if len(lines) >= count:
            return lines
    raise ClaimBroken(f"the standard library here has only {len(lines)} lines of source")


def bootstrap_of(port: int) -> str:
    """Returns the addresses of all brokers: whichever is killed, a later client finds the others."""
    return ",".join(f"{HOST}:{port + number}" for number in range(NODES))


def free_port() -> int:
    """Returns a port that is free, as are the next ones for the other nodes and the controller's."""
    for port in range(DEFAULT_PORT, DEFAULT_PORT + CONTROLLER_PORT_DISTANCE, 10):
        with contextlib.suppress(PortInUse):
            for number in (*range(port, port + NODES), port + CONTROLLER_PORT_DISTANCE):
                check_port_free(HOST, number)
            return port
    raise ClaimBroken("found no free ports")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "replog", *arguments]


@contextlib.contextmanager
def cluster(data: Path, port: int) -> Iterator[None]:
    """Run `replog up` as a child process, and stop it with SIGTERM at the end.

    Raises ClaimBroken if it does not become ready, or does not stop with status 0 and without pid files.
    """
    config = [part for pair in SESSION for part in ("--config", pair)]
    arguments = ["up", "--nodes", str(NODES), "--port", str(port), "--data", str(data), *config]
    started = time.perf_counter()
    environment = os.environ | python_path(os.environ)
    up = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, env=environment)
    try:
        assert up.stdout is not None
        line = up.stdout.readline().decode().strip()
        if line != f"ready {HOST}:{port}":
            raise ClaimBroken(f"replog up printed {line!r} instead of its ready line")
        say(f"  {line}, {since(started)} after the start")
        yield
        up.send_signal(signal.SIGTERM)
        if up.wait(DEADLINE_S) != 0 or list(data.glob("*/pid")):
            raise ClaimBroken(
                f"replog up ended with status {up.returncode}, pid files {list(data.glob('*/pid'))}"
            )
    finally:
        if up.poll() is None:
            up.send_signal(signal.SIGTERM)
            up.wait(DEADLINE_S)


@final
@dataclass
class Run:
    """The lines of one run, and which of them were acknowledged or failed."""

    data: Path
    bootstrap: str
    lines: list[bytes]
    # The offset of each acknowledged line, by its number.
    acknowledged: dict[int, int] = field(default_factory=dict)
    failed: list[DeliveryError] = field(default_factory=list)
    _wanted: int = 0
    _reached: asyncio.Event = field(default_factory=asyncio.Event)

    def on_end(self, number: int, future: asyncio.Future[RecordMetadata]) -> None:
        """Note that the line `number` was acknowledged or failed."""
        assert number not in self.acknowledged, (number, self.acknowledged[number])
        if isinstance(error := future.exception(), DeliveryError):
            self.failed.append(error)
        else:
            self.acknowledged[number] = future.result().offset
            if len(self.acknowledged) >= self._wanted:
                self._reached.set()
        ended = len(self.acknowledged) + len(self.failed)
        assert ended <= len(self.lines), (ended, len(self.lines))

    async def produce(self, producer: AsyncProducer) -> None:
        """Send all lines; their acknowledgements arrive later."""
        for number, line in enumerate(self.lines):
            future = await producer.send(TOPIC, line)
            future.add_done_callback(functools.partial(self.on_end, number))
            if number % 64 == 0:
                await asyncio.sleep(0)

    async def until_acknowledged(self, count: int) -> None:
        """Wait until `count` lines, or all of them, are acknowledged."""
        self._wanted = min(count, len(self.lines))
        self._reached.clear()
        if len(self.acknowledged) < self._wanted:
            await self._reached.wait()

    async def consume(self) -> list[bytes]:
        """Returns every value from the log start to the high watermark. Raises ClaimBroken at a gap."""
        values: list[bytes] = []
        async with asyncio.timeout(DEADLINE_S), AsyncConsumer(self.bootstrap) as consumer:
            consumer.assign([(PLACE, OffsetReset.EARLIEST)])
            while True:
                match await consumer.next_event():
                    case Fetched(records=records):
                        for record in records:
                            if record.offset != len(values) or record.value is None:
                                raise ClaimBroken(f"consumed offset {record.offset}, expected {len(values)}")
                            values.append(bytes(record.value))
                    case EndOfPartition():
                        return values
                    case _:
                        pass

    def node_pid(self, node: int) -> int:
        return int((self.data / f"node-{node}" / "pid").read_text())

    def log_digest(self, node: int, high_watermark: int) -> tuple[str, int, int]:
        """Read the node's batches below the high watermark from its files.

        Returns their SHA-256, their number, and the number of segments.
        """
        directory = self.data / f"node-{node}" / f"{TOPIC}-0"
        digest, batches = hashlib.sha256(), 0
        segments = sorted(directory.glob("*.log"))
        for path in segments:
            for batch in iterate_batches(path.read_bytes()):
                if batch.base_offset < high_watermark:
                    batch.check_valid()
                    digest.update(batch.tobytes())
                    batches += 1
        return digest.hexdigest(), batches, len(segments)


async def partition_state(admin: AsyncAdmin) -> tuple[PartitionMetadata, dict[int, ReplicaDescription]]:
    described = await admin.describe((TOPIC,))
    assert described.metadata is not None
    held = {answer.broker_id: item for answer in described.replicas for item in answer.replicas}
    return described.metadata.topics[0].partitions[0], held


async def until_caught_up(admin: AsyncAdmin, nodes: Iterable[int]) -> int:
    """Wait until the ISR consists of the nodes and all have the same log end; returns it, which is the high watermark.

    Raises ClaimBroken at the deadline.
    """
    wanted = frozenset(nodes)
    deadline = time.perf_counter() + DEADLINE_S
    while time.perf_counter() < deadline:
        with contextlib.suppress(ClusterError):
            partition, held = await partition_state(admin)
            ends = {held[node].log_end_offset for node in wanted if node in held}
            marks = {held[node].high_watermark for node in wanted if node in held}
            if (
                frozenset(partition.isr) == wanted
                and wanted <= held.keys()
                and len(ends) == 1
                and ends == marks
            ):
                return ends.pop()
        await asyncio.sleep(0.1)
    raise ClaimBroken(f"nodes {sorted(wanted)} were not all in sync after {DEADLINE_S:.0f} s")


async def produce_and_kill(run: Run, admin: AsyncAdmin) -> int:
    """Send all lines, and kill the leader once half are acknowledged, with requests in flight. Returns its id."""
    async with asyncio.timeout(DEADLINE_S), AsyncProducer(run.bootstrap, PACED) as producer:
        sending = asyncio.ensure_future(run.produce(producer))
        await run.until_acknowledged(len(run.lines) // 2)
        partition, _ = await partition_state(admin)
        os.kill(run.node_pid(partition.leader), signal.SIGKILL)
        started, count = time.perf_counter(), len(run.acknowledged)
        say(f"  {count:,} lines acknowledged: node {partition.leader}, the leader, is killed with SIGKILL")
        await run.until_acknowledged(count + KILLED_IN_FLIGHT)
        waited = since(started)
        after, _ = await partition_state(admin)
        say(
            f"  node {after.leader} leads in epoch {after.leader_epoch} and acknowledges, {waited} after the kill"
        )
        await sending
    return partition.leader


def check_consumed(run: Run, consumed: list[bytes]) -> None:
    """Raise ClaimBroken unless all lines were acknowledged, and were consumed once and in order."""
    if run.failed:
        raise ClaimBroken(f"{len(run.failed)} lines were not acknowledged, the first: {run.failed[0]}")
    if len(run.acknowledged) != len(run.lines):
        raise ClaimBroken(f"only {len(run.acknowledged)} of {len(run.lines)} lines were acknowledged")
    if consumed != run.lines:
        at = next(
            (i for i, pair in enumerate(zip(consumed, run.lines, strict=False)) if pair[0] != pair[1]), None
        )
        raise ClaimBroken(f"consumed {len(consumed)} lines of {len(run.lines)}; the first that differs: {at}")
    if [run.acknowledged[number] for number in range(len(run.lines))] != list(range(len(run.lines))):
        raise ClaimBroken("an offset that was acknowledged for one line holds another line")


def check_same_bytes(run: Run, nodes: Iterable[int], high_watermark: int) -> None:
    """Raise ClaimBroken unless the nodes' batches below the high watermark are equal byte for byte."""
    digests = {}
    for node in nodes:
        digest, batches, segments = run.log_digest(node, high_watermark)
        digests[node] = digest
        say(f"  node {node}: {batches} batches in {segments} segments, SHA-256 {digest[:32]}…")
    if len(set(digests.values())) != 1:
        raise ClaimBroken(f"the replicas differ: {digests}")


async def show(run: Run) -> None:
    """Show the four claims in turn. Raises ClaimBroken at the first that does not hold."""
    async with AsyncAdmin(run.bootstrap) as admin:
        configs = {"min.insync.replicas": "2", "segment.bytes": str(SEGMENT_BYTES)}
        await admin.create_topic(TOPIC, replication_factor=NODES, configs=configs)
        if not await admin.until_led(TOPIC):
            raise ClaimBroken(f"the topic has no leader after {DEADLINE_S:.0f} s")
        say(
            f"topic {TOPIC}: one partition on {NODES} brokers; acks=all needs 2 of them (min.insync.replicas=2)"
        )
        say(f"\n1. Producing {len(run.lines):,} lines with acks=all, and killing the leader half-way.")
        started = time.perf_counter()
        killed = await produce_and_kill(run, admin)
        took = since(started)
        say(f"  {len(run.acknowledged):,} lines acknowledged, {len(run.failed)} failed, in {took}")
        alive = [node for node in range(1, NODES + 1) if node != killed]
        say("\n2. Consuming from the beginning: every acknowledged line must come once, in order.")
        check_consumed(run, await run.consume())
        say(f"  {len(run.lines):,} lines consumed: the text, line by line; nothing lost, nothing twice")
        say(f"\n3. Comparing the files of the live nodes {alive}, from log start to high watermark.")
        check_same_bytes(run, alive, await until_caught_up(admin, alive))
        say(
            f"\n4. Starting node {killed} again: it recovers, truncates what was never committed, and catches up."
        )
        started = time.perf_counter()
        restart = command("nodes", "start", str(killed), "--data", str(run.data))
        environment = os.environ | python_path(os.environ)
        process = await asyncio.create_subprocess_exec(*restart, stdout=subprocess.DEVNULL, env=environment)
        if await process.wait() != 0:
            raise ClaimBroken(f"node {killed} did not start again")
        high_watermark = await until_caught_up(admin, range(1, NODES + 1))
        say(f"  back in the ISR after {since(started)}")
        check_same_bytes(run, range(1, NODES + 1), high_watermark)


def main() -> int:
    """Run the demo on a new cluster in a temporary directory; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--file", type=Path, help="the text to send; by default the standard library's source"
    )
    given = parser.parse_args()
    started = time.perf_counter()
    lines = library_lines(LINES) if given.file is None else given.file.read_bytes().splitlines()
    say(f"Three real brokers and a controller, each a process of its own; {len(lines):,} lines of real text.")
    with tempfile.TemporaryDirectory(prefix="replog-demo-") as directory:
        data, port = Path(directory, "cluster"), free_port()
        try:
            with cluster(data, port):
                asyncio.run(show(Run(data=data, bootstrap=bootstrap_of(port), lines=lines)))
        except (ClaimBroken, ClusterError, TimeoutError) as error:
            say(f"\nNOT HELD: {str(error) or type(error).__name__}")
            return 1
    say(f"\nHeld: all of it, in {since(started)}. The cluster is stopped and its files are deleted.")
    return 0


if __name__ == "__main__":
    if not __debug__:
        sys.exit("asserts guard the log: run without -O")
    sys.exit(main())
