from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sim.checkers.base import Checker, Judge
from sim.checkers.ghost import Ghost, PartitionGhost
from sim.checkers.sightings import PartitionState, Recorded, Settled


@final
class ElectedByRule(Checker):
    """A leader comes from the ISR, unless the topic allows unclean elections (E2).

    It is always an active broker, and one that can read its log as far as the controller knows (ELE-2). A leader that
    is in sync and active stays, else the first such replica in the order of the assignment leads (ELE-3): judged after
    all records of the decision, where every broker can read all that it has. Nobody leads only where nobody may
    (ELE-4). From outside the ISR it is the first active one of the assignment, and only where no member is active: an
    unclean election excuses losses, so it has to be one that nothing could spare. With an election only those leave
    the ISR who are not active, or cannot read that topic's log.
    """

    name = "elections"

    def __init__(self, ghost: Ghost) -> None:
        super().__init__(ghost)
        # The state before the decision, by partition, where the decision names another leader.
        self._before: dict[str, PartitionState] = {}
        # The same, also where a broker may have told the controller that it cannot read something.
        self._led: dict[str, PartitionState] = {}

    def judges(self) -> Mapping[type, Judge]:
        return {Recorded: self._on_recorded, Settled: self._on_settled}

    def _on_recorded(self, partition: PartitionGhost, sighting: Recorded) -> str | None:
        before, after = sighting.before, sighting.after
        if before is not None and before.leader != after.leader:
            self._led.setdefault(partition.name, before)
        if before is not None and before.leader != after.leader and not sighting.may_be_offline:
            self._before.setdefault(partition.name, before)
        if after.leader < 0 or (before is not None and before.leader_epoch == after.leader_epoch):
            return None
        who = f"{partition.name}: broker {after.leader} was elected for epoch {after.leader_epoch}"
        if after.leader not in sighting.active:
            return f"{who}; active are {list(sighting.active)}"
        if after.leader in sighting.offline:
            return f"{who}, and has told the controller that it cannot read the partition"
        if before is not None and after.leader not in before.isr and not sighting.allows_unclean:
            return f"{who} from outside the ISR {list(before.isr)}; the topic allows no unclean election"
        return None

    def _on_settled(self, partition: PartitionGhost, sighting: Settled) -> str | None:
        leader = sighting.state.leader
        led = self._led.pop(partition.name, None)
        if led is not None and (driven := _driven_out(led, sighting)):
            epoch = sighting.state.leader_epoch
            return f"{partition.name}: active broker {driven[0]} left the ISR with the election for epoch {epoch}"
        if led is not None and (wrong := _wrongly_unclean(led, sighting)):
            return f"{partition.name}: {wrong}"
        if leader >= 0 and leader not in sighting.active:
            return f"{partition.name}: broker {leader} still leads; active are {list(sighting.active)}"
        if leader < 0 and not sighting.may_be_offline and (able := _able(sighting)):
            return f"{partition.name}: nobody leads, although broker {able[0]} is active and may"
        before = self._before.pop(partition.name, None)
        return None if before is None else self._other_choice(partition.name, before, sighting)

    def _other_choice(self, name: str, before: PartitionState, sighting: Settled) -> str | None:
        """Returns who should lead instead of the new leader, if anybody."""
        state = sighting.state
        usable = [each for each in state.replicas if each in state.isr and each in sighting.active]
        is_unclean = state.leader >= 0 and state.leader not in before.isr
        if not usable or is_unclean:
            return None
        expected = before.leader if before.leader in usable else usable[0]
        if state.leader == expected:
            return None
        return (
            f"{name}: broker {state.leader} was elected for epoch {state.leader_epoch}, not broker {expected}: in sync "
            f"and active are {usable}, before broker {before.leader} led"
        )


def _able(sighting: Settled) -> list[int]:
    """Returns the active replicas that may lead: those in sync, or all where the topic allows unclean elections."""
    state = sighting.state
    may_lead = state.replicas if sighting.allows_unclean else state.isr
    return [replica for replica in may_lead if replica in sighting.active]


def _wrongly_unclean(before: PartitionState, sighting: Settled) -> str:
    """Returns why the leader had not to come from outside the ISR, or not to be this one; empty if it had."""
    leader = sighting.state.leader
    if leader < 0 or leader in before.isr:
        return ""
    who = f"broker {leader} was elected for epoch {sighting.state.leader_epoch} from outside the ISR {list(before.isr)}"
    able = [each for each in sighting.active if each not in sighting.named_by]
    if spared := [member for member in before.isr if member in able]:
        return f"{who}, although broker {spared[0]} is in sync and active"
    # It may read again what it could not once, and so has to be counted itself.
    usable = [each for each in sighting.state.replicas if each == leader or each in able]
    first = usable[0] if usable else leader
    return f"{who}; broker {first} is active, and before it in the assignment" if first != leader else ""


def _driven_out(before: PartitionState, sighting: Settled) -> list[int]:
    """Returns the members that an election of one of them took out of the ISR although they are active and can read."""
    state = sighting.state
    if state.leader not in before.isr:
        return []
    left = [member for member in before.isr if member not in state.isr]
    return [member for member in left if member in sighting.active and member not in sighting.named_by]
