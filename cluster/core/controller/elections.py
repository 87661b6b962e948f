"""Who leads a partition: rules ELE-1 to ELE-5. Kafka: PartitionChangeBuilder (electLeader, without ELR)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cluster.core.messages import NO_LEADER
from cluster.core.metadata.image import PartitionRegistration

# Whether a broker is registered, unfenced and not in controlled shutdown.
IsActive = Callable[[int], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """The outcome: `isr` is the partition's from now on; `clean` is False when the leader is from outside
    it.
    """

    leader: int
    isr: tuple[int, ...]
    clean: bool = True


class LeaderElection:
    """The strategy of the controller; its methods are its rules, each replaceable from outside."""

    def elect(
        self, partition: PartitionRegistration, isr: tuple[int, ...], is_active: IsActive, *, unclean: bool
    ) -> Election:
        """ONLINE, and UNCLEAN where allowed: the present leader stays if valid, else the first valid in AR
        order.
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
                    # ELE-4: whoever is alive becomes the only member.
                    return Election(leader=replica, isr=(replica,), clean=False)
        # ELE-3: the ISR is kept.
        return Election(leader=NO_LEADER, isr=isr)

    def is_valid_leader(self, replica: int, isr: tuple[int, ...], is_active: IsActive) -> bool:
        """ELE-2, without ELR."""
        return replica in isr and is_active(replica)

    def isr_without(self, partition: PartitionRegistration, broker_id: int) -> tuple[int, ...]:
        """ELE-5: without ELR the last member is never removed."""
        remaining = tuple(member for member in partition.isr if member != broker_id)
        return remaining or partition.isr
