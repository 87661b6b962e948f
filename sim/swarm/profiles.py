"""The profiles of drawn runs: how much the faults of a run may take from a cluster, and what it has to keep.

| profile | faults | what must hold |
| --- | --- | --- |
| `within` | those that every promise survives | every rule, agreement at the end, and no excuse for a loss |
| `edge` | the same, and the controller is away for long | the same |
| `beyond` | any: lost disks of all replicas, unclean elections | every rule; an excuse where Kafka promises nothing |

The controller is one node, so `edge` is its absence: no election, no new topic and no change of an in-sync set then.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from sim.scenario.disk_steps import DiskStep
from sim.scenario.link_steps import FlipBits
from sim.scenario.model import Scenario, TopicModel
from sim.scenario.steps import AlterTopic, KillInside, PartialWrite, Power
from sim.swarm.choices import Choices

_UNCLEAN = "unclean.leader.election.enable"


class Profile(Enum):
    """The budget of a run's faults."""

    WITHIN = "within"
    EDGE = "edge"
    BEYOND = "beyond"

    @property
    def excuses(self) -> bool:
        """Whether acknowledged records may be lost where Kafka does not promise to keep them."""
        return self is Profile.BEYOND


# Of a hundred seeds.
SHARES = ((Profile.WITHIN, 71), (Profile.EDGE, 15), (Profile.BEYOND, 14))


def shares_text() -> str:
    """Returns the shares of the profiles, in their order, in words."""
    *first, last = (str(share) for _, share in SHARES)
    return f"{', '.join(first)} and {last} in a hundred"


def draw_profile(choices: Choices) -> Profile:
    hundred = [profile for profile, share in SHARES for _ in range(share)]
    assert len(hundred) == 100, len(hundred)
    return choices.pick(hundred, "profile")


def may_lose_writes(scenario: Scenario, profile: Profile) -> bool:
    """Whether the disks of brokers may lose what was not synced.

    Unless losses are excused, that is only so where each acknowledgement waits for a flush: a topic with
    `flush.messages` 1, and no producer that is content with the leader's memory (`acks: 1`).
    """
    if profile.excuses:
        return True
    return all(map(_is_flushed, scenario.topics.values())) and all(
        producer.acks != 1 for producer in scenario.producers
    )


def _is_flushed(topic: TopicModel) -> bool:
    return str(topic.config.get("flush.messages")) == "1"


def over_budget(scenario: Scenario, profile: Profile) -> Iterator[str]:
    """Yields what a scenario asks for that is outside the profile's budget; a drawn one has none."""
    if profile.excuses:
        return
    for name, topic in scenario.topics.items():
        if topic.config.get(_UNCLEAN):
            yield f"topic {name} allows unclean elections"
    for number, step in enumerate(scenario.steps, start=1):
        if isinstance(step, AlterTopic) and _UNCLEAN in step.config:
            yield f"step {number}: topic {step.alter_topic} may allow unclean elections"
        if isinstance(step, DiskStep) and step.loses_synced:
            yield f"step {number}: {step.verb} of {step.target_text} may take what was synced"
        if isinstance(step, FlipBits) and step.where == "anywhere":
            yield f"step {number}: a bit flips on {step.target_text} where no checksum covers it"
    if may_lose_writes(scenario, profile):
        return
    for number, step in enumerate(scenario.steps, start=1):
        if isinstance(step, Power) and step.keep != "all" and step.power.kind != "controller":
            yield f"step {number}: a power loss of {step.power.text} that keeps {step.keep}"
        elif (
            isinstance(step, PartialWrite | KillInside)
            and step.keep not in (None, "all")
            and step.target_text != "controller"
        ):
            yield f"step {number}: a {step.verb.replace('_', ' ')} and a power loss that keeps {step.keep}"
