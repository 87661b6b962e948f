"""The election of a partition's leader: rules ELE-1 to ELE-5.

Kafka: PartitionChangeBuilder.electLeader, without eligible leader replicas (KIP-966).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cluster.core.messages import NO_LEADER
from cluster.core.metadata.image import PartitionRegistration

# Whether a broker is registered, unfenced and not in controlled shutdown.
IsActive = Callable[[int], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """The outcome of an election, with the ISR from now on. `clean` is False for a leader from outside the old ISR."""

    leader: int
    isr: tuple[int, ...]
    clean: bool = True


class LeaderElection:
    """The controller's way of electing; each method is one rule, and can be replaced from outside."""

    def elect(
        self, partition: PartitionRegistration, isr: tuple[int, ...], is_active: IsActive, *, unclean: bool
    ) -> Election:
        """Elects the present leader if it is valid, else the first valid replica in assignment order (ELE-3).

        Without any, `unclean` allows a leader from outside `isr` (ELE-4); else there is no leader and `isr` stays.
        """
        assert isr, partition
        if self.is_valid_leader(partition.leader, isr, is_active):
            return Election(leader=partition.leader, isr=isr)
        for replica in partition.replicas:
            if self.is_valid_leader(replica, isr, is_active):
                return Election(leader=replica, isr=isr)
        if unclean:
            for replica in partition.replicas:
                if is_active(replica):
                    # The first replica that is active becomes the only member (ELE-4).
                    return Election(leader=replica, isr=(replica,), clean=False)
        # The ISR stays, so that one of its members can lead later (ELE-3).
        return Election(leader=NO_LEADER, isr=isr)

    def is_valid_leader(self, replica: int, isr: tuple[int, ...], is_active: IsActive) -> bool:
        """Returns whether the replica is in sync and active, and so may lead (ELE-2)."""
        return replica in isr and is_active(replica)

    def isr_without(self, partition: PartitionRegistration, broker_id: int) -> tuple[int, ...]:
        """Returns the ISR without the broker; the last member is never removed (ELE-5)."""
        remaining = tuple(member for member in partition.isr if member != broker_id)
        return remaining or partition.isr
