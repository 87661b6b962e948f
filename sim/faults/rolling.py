"""Restarts brokers in order, one after the other: each waits until the one before is in sync again."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import final

from sim.checkers.ghost import Ghost, PartitionGhost
from sim.faults.nodes import NodeFaults
from sim.faults.targets import Site, Targets
from sim.hosts.node import Node
from sim.scenario.link_steps import RollingRestart
from sim.scenario.model import TopicModel
from sim.world.time import Actor

# The interval at which a broker that was restarted is looked at.
_LOOK_US = 50_000


@final
class InSync:
    """The partitions in whose in-sync sets a broker was when this was made."""

    def __init__(self, ghost: Ghost, topics: Mapping[str, TopicModel], broker: int) -> None:
        self._ghost, self._broker = ghost, broker
        names = [f"{name}-{number}" for name, topic in topics.items() for number in range(topic.partitions)]
        self._partitions: list[tuple[str, PartitionGhost]] = [
            (name, found) for name in names if broker in (found := ghost.partition(name)).isr
        ]

    def is_back(self) -> bool:
        """Whether the broker is in all these sets now; those of topics that were deleted since do not count."""
        return all(
            self._broker in partition.isr
            for name, partition in self._partitions
            if self._ghost.partition(name) is partition
        )


@final
class _Roll:
    """One rolling restart: the brokers that it has not come to yet, and the one that it waits for."""

    __slots__ = ("before", "left", "node", "starts", "step", "until_us")

    def __init__(self, step: RollingRestart, nodes: Sequence[Node]) -> None:
        self.step, self.left = step, deque(nodes)
        self.node = nodes[0]
        self.before: InSync | None = None
        # How often the node has started when it is back.
        self.starts = 0
        self.until_us = 0


@final
class RollingRestarts:
    """Carries rolling restarts out beside the other steps; they end when everything is healed."""

    def __init__(self, site: Site, targets: Targets, actor: Actor, nodes: NodeFaults) -> None:
        self._site, self._targets, self._actor, self._nodes = site, targets, actor, nodes

    def rolling_restart(self, step: RollingRestart) -> bool:
        """Begin with the first broker of the target."""
        nodes = self._targets.nodes(step.rolling_restart, step)
        self._targets.bind(step, nodes)
        if nodes:
            self._site.tell(f"restart one after the other: {', '.join(node.name for node in nodes)}")
            self._go_on(_Roll(step, nodes))
        return bool(nodes)

    def _go_on(self, roll: _Roll) -> None:
        """Stop the next broker, and look after it from now on; one that is down is only waited for."""
        if not roll.left:
            self._site.tell("no broker is left to restart")
            return
        node = roll.node = roll.left.popleft()
        roll.before = InSync(self._site.ghost, self._site.topics, node.node_id)
        roll.starts = node.starts + node.is_up
        roll.until_us = self._site.world.now_us + roll.step.patience
        if node.is_up:
            self._site.tell(f"stop, in order, {node.name}")
            node.stop(then=lambda: self._nodes.start_after(node, roll.step.down))
        else:
            self._site.tell(f"stop, in order, {node.name}: it is down already")
        self._site.world.after(self._actor, _LOOK_US, self._look, roll)

    def _look(self, roll: _Roll) -> None:
        if not self._nodes.is_striking:
            return
        assert roll.before is not None, roll.step
        node = roll.node
        if node.is_up and node.starts >= roll.starts and roll.before.is_back():
            self._go_on(roll)
        elif self._site.world.now_us >= roll.until_us:
            self._site.tell(f"{node.name} is not in sync again after {roll.step.patience / 1e6:g} s")
            self._go_on(roll)
        else:
            self._site.world.after(self._actor, _LOOK_US, self._look, roll)
