"""The scenario that a plan of faults is drawn for, and the targets that its faults choose from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from sim.scenario.model import Scenario
from sim.swarm.choices import Choices, Part
from sim.swarm.profiles import Profile, may_lose_writes

# How long a process is down, in milliseconds: also less than a session, and much longer.
DOWN_MS = (1, 50, 300, 800, 800, 3_000, 3_000, 8_000)
# The family of faults that strike when nothing aims at what they take away any more, so early that clients go on.
LAST = "last"
# How long a link or a process is away: parts and multiples of a session of 1.8 s.
AWAY_MS = (100, 500, 1_000, 1_800, 2_500, 5_400)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """A scenario without steps. `lasting` are the topics that no step deletes: faults may aim at their leaders."""

    scenario: Scenario
    profile: Profile
    lasting: tuple[str, ...]

    @property
    def brokers(self) -> int:
        return self.scenario.cluster.brokers

    @property
    def deletable(self) -> tuple[str, ...]:
        """The topics that steps may delete and create."""
        return tuple(name for name in self.scenario.topics if name not in self.lasting)

    @property
    def may_lose_writes(self) -> bool:
        """Whether a power loss may take what a broker's disk had not synced."""
        return may_lose_writes(self.scenario, self.profile)

    def partition(self, choices: Choices, *, lasting: bool = False) -> str:
        """Returns one partition, as `t/0`; with `lasting` one of a topic that no step deletes."""
        names = self.lasting if lasting else tuple(self.scenario.topics)
        name = choices.pick(names, "topic")
        return f"{name}/{choices.below(self.scenario.topics[name].partitions, 'partition')}"

    def broker(self, choices: Choices) -> str:
        """Returns a broker: the leader or a follower of a partition, or one by its number."""
        numbered = f"broker {1 + choices.below(self.brokers, 'number')}"
        role = choices.pick(("leader", "leader", "leader", "follower", "broker", "broker"), "role")
        if role == "broker" or not self.lasting:
            return numbered
        partition = self.partition(choices.within("role"), lasting=True)
        if role == "follower" and self.replicas(partition) < 3:
            return numbered
        return f"{role}({partition})"

    def replicas(self, partition: str) -> int:
        return self.scenario.topics[partition.rpartition("/")[0]].replicas

    def is_compacted(self, topic: str) -> bool:
        """Returns whether brokers compact the logs of the topic."""
        return "compact" in str(self.scenario.topics[topic].config.get("cleanup.policy"))

    def node(self, choices: Choices) -> str:
        """Returns a broker or the controller."""
        return "controller" if choices.chance(12, "controller") else self.broker(choices)

    def client(self, choices: Choices) -> str:
        """Returns a producer or a consumer."""
        kind = choices.pick(("producer", "consumer"), "kind")
        models = self.scenario.producers if kind == "producer" else self.scenario.consumers
        return f"{kind} {1 + choices.below(sum(model.clients for model in models), 'client')}"


# Draws one fault: its steps, of which the first has no time yet.
DrawFault = Callable[[Ground, Choices], list[Part]]


def always(ground: Ground) -> bool:
    return True


def has_lasting(ground: Ground) -> bool:
    """Whether a fault may aim at a leader."""
    return bool(ground.lasting)


def has_followers(ground: Ground) -> bool:
    """Whether every partition that a fault may aim at has three replicas or more."""
    return has_lasting(ground) and all(ground.scenario.topics[name].replicas >= 3 for name in ground.lasting)


def has_unclean(ground: Ground) -> bool:
    """Whether every partition that a fault may aim at has replicas, of which each may be elected."""
    topics = [ground.scenario.topics[name] for name in ground.lasting]
    return bool(topics) and all(
        topic.replicas >= 2 and topic.config.get("unclean.leader.election.enable") for topic in topics
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A kind of fault: its name for `--only`, the family that shapes of plans weigh, and how it is drawn.

    `percent` is the share of seeds in which it is on, `most` how often it then strikes at most. It strikes first so
    early that `lasts_ms` are left for what follows.
    """

    name: str
    family: str
    percent: int
    most: int
    draw: DrawFault
    is_possible: Callable[[Ground], bool] = always
    lasts_ms: int = 0


# What most chains need to come to their end.
_LASTS_MS = 2_500


def chain(
    name: str,
    draw: DrawFault,
    *,
    percent: int = 40,
    most: int = 2,
    possible: Callable[[Ground], bool] = has_lasting,
    lasts_ms: int = _LASTS_MS,
) -> Fault:
    """Returns a chain of faults that aim at a state; it counts as one fault."""
    return Fault(
        name=name,
        family="chain",
        percent=percent,
        most=most,
        draw=draw,
        is_possible=possible,
        lasts_ms=lasts_ms,
    )
