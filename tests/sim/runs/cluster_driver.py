"""A simulated cluster driven step by step: the run of `replog sim run`, with a test in the place of the scenario."""

from __future__ import annotations

from typing import Literal, final

from cluster.core.broker.broker import Broker
from cluster.core.messages import TopicPartition
from sim.disk import PowerLoss
from sim.hosts.node import Node
from sim.run import Run, RunResult
from sim.scenario.model import parse_scenario
from sim.world.time import without_garbage_collection

PARTITION = TopicPartition("t", 0)
Who = Literal["leader", "controller"] | int

SCENARIO = """\
scenario: cluster-machine
converge: 40s
cluster:
  settings:
    replica.lag.time.max.ms: 2000
topics:
  t:
    partitions: 1
    replicas: 3
    config:
      min.insync.replicas: {min_isr}
      flush.messages: {flush_messages}
      unclean.leader.election.enable: {unclean}
      segment.bytes: 8192
      index.interval.bytes: 300
producers:
  - {{topic: t, rate: 1/s, acks: all}}
  - {{topic: t, rate: 1/s, acks: 1}}
consumers:
  - {{topic: t}}
"""


@final
class ClusterDriver:
    """Brokers 1 to 3 and a controller, all up and in sync, with the topic `t`. Time passes only in `pass_time`.

    A fault that does not apply, such as a kill of a node that is down, does nothing.
    """

    def __init__(
        self, seed: int, *, min_isr: int = 2, flush_promised: bool = False, unclean: bool = False
    ) -> None:
        text = SCENARIO.format(
            min_isr=min_isr,
            flush_messages=1 if flush_promised else (1 << 63) - 1,
            unclean=str(unclean).lower(),
        )
        self.run = Run(parse_scenario(text), seed)
        self.run.begin()
        self._pass_us(self.run.scenario.warm_up)
        assert self.run.cluster.producers[0].core is not None, "the topic was not made"
        for producer in self.run.cluster.producers:
            # From here on it sends only what the test asks for.
            producer.finish()

    @property
    def violations(self) -> list[str]:
        return [
            f"{found.at_us / 1e6:.3f} s: {found.checker}: {found.what}" for found in self.run.jury.violations
        ]

    @property
    def story(self) -> str:
        return "\n".join(self.run.story.lines)

    def number(self, who: Who) -> Who:
        """Return the broker that leads now if `who` is "leader", else `who`."""
        return self.node(who).node_id if who == "leader" else who

    def node(self, who: Who) -> Node:
        if who == "controller":
            return self.run.cluster.controller
        leader = self.run.ghost.partition(str(PARTITION)).leader
        return self.run.cluster.brokers[max(leader, 1) if who == "leader" else int(who)]

    # Time and load

    def pass_time(self, milliseconds: int) -> None:
        self._pass_us(milliseconds * 1_000)

    def _pass_us(self, duration_us: int) -> None:
        with without_garbage_collection():
            self.run.world.run_to(self.run.world.now_us + duration_us)

    def produce(self, records: int, *, acks_all: bool) -> None:
        producer = self.run.cluster.producers[0 if acks_all else 1]
        for _ in range(records):
            producer.send_one()

    # Processes

    def kill(self, who: Who) -> None:
        node = self.node(who)
        if node.is_up:
            self.run.chronicle.tell(f"kill {node.name}")
            node.crash()

    def kill_at_job(self, who: Who, side: Literal["before", "after"], kind: str) -> None:
        """Kill the node at its next job of that kind: `flush`, `checkpoint`, …"""
        node = self.node(who)
        if node.is_up:
            self.run.chronicle.tell(f"will kill {node.name} {side} its next {kind}")
            node.arm_crash_point(side, kind, node.crash)

    def lose_power(self, who: Who, keep: PowerLoss) -> None:
        node = self.node(who)
        if node.is_up:
            self.run.chronicle.tell(f"power loss (keep {keep}) at {node.name}")
            node.lose_power(keep)

    def tear_next_append(self, who: Who, byte: int, keep: PowerLoss | None) -> None:
        """Let a broker write only `byte` bytes of its next batch.

        Then its process dies or, with `keep`, its machine.
        """
        node = self.node(who)
        if not isinstance(node.core, Broker) or PARTITION not in node.core.replicas():
            return
        self.run.chronicle.tell(
            f"{node.name} will write {byte} bytes of its next batch and die (keep {keep})"
        )

        def end() -> None:
            node.crash() if keep is None else node.lose_power(keep)

        node.arm_partial_write(str(PARTITION), byte, end)

    def stop(self, who: Who) -> None:
        self.run.chronicle.tell(f"stop, in order, {self.node(who).name}")
        self.node(who).stop()

    def restart(self, who: Who) -> None:
        node = self.node(who)
        if not node.is_up:
            self.run.chronicle.tell(f"start {node.name} again")
            node.start()

    def pause(self, who: Who) -> None:
        node = self.node(who)
        if node.is_up:
            self.run.chronicle.tell(f"pause {node.name}")
            node.pause()

    def resume(self, who: Who) -> None:
        node = self.node(who)
        if node.is_up and node.paused:
            self.run.chronicle.tell(f"{node.name} goes on")
            node.resume()

    # Links

    def cut(self, start: Who, end: Who, *, both_ways: bool) -> None:
        """Cut the link from `start` to `end`, and the one back if `both_ways`."""
        ends = (self.node(start), self.node(end))
        if ends[0] is not ends[1]:
            self.run.chronicle.tell(f"cut {ends[0].name} {'<->' if both_ways else '->'} {ends[1].name}")
            for pair in (ends, ends[::-1]) if both_ways else (ends,):
                self.run.cluster.network.link(pair[0].node_id, pair[1].node_id).cuts = 1

    def isolate(self, who: Who) -> None:
        """Cut the node from all other nodes. Clients still reach it."""
        for other in (1, 2, 3, "controller"):
            self.cut(who, other, both_ways=True)

    def heal(self, who: Who) -> None:
        """Heal every link of the node."""
        node = self.node(who)
        self.run.chronicle.tell(f"heal {node.name}")
        for link in self.run.cluster.network.links():
            if node.node_id in (link.source, link.target):
                link.heal()

    # The end

    def end(self) -> RunResult:
        """Heal everything, wait for agreement, and judge the history."""
        with without_garbage_collection():
            return self.run.end("see the steps of the test")
