"""In-sync replicas as the leader knows them: committed, or committed with one proposal on its way (KIP-497).

Pending and committed are different types, so that neither is mistaken for the other. A proposal keeps the lives that
its followers were in when it was made: sent again, it must not name a life in which nobody has looked whether the
follower may join (KIP-903). Kafka: Partition.PartitionState.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.core.messages import IsrMember


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedIsr:
    """The in-sync replicas that the controller has committed, as of `partition_epoch`."""

    isr: frozenset[int]
    partition_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingExpandIsr:
    """A proposal that `joiner` joins; the controller may already have admitted it.

    `followers` are the proposed members but the leader, with the broker epochs of the fetches that counted then.
    """

    committed: CommittedIsr
    joiner: int
    followers: tuple[IsrMember, ...]

    @property
    def proposed(self) -> frozenset[int]:
        return self.committed.isr | {self.joiner}


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingShrinkIsr:
    """A proposal that `leavers` leave; the controller may not have agreed yet. `followers` are as in an expansion."""

    committed: CommittedIsr
    leavers: frozenset[int]
    followers: tuple[IsrMember, ...]

    @property
    def proposed(self) -> frozenset[int]:
        return self.committed.isr - self.leavers


PendingIsr = PendingExpandIsr | PendingShrinkIsr
IsrState = CommittedIsr | PendingIsr


def committed_isr(state: IsrState) -> CommittedIsr:
    return state if isinstance(state, CommittedIsr) else state.committed


def maximal_isr(state: IsrState) -> frozenset[int]:
    """Returns the replicas that the high watermark waits for: a joiner at once, a leaver until it has left (HWM-2)."""
    match state:
        case CommittedIsr(isr=isr):
            return isr
        case PendingExpandIsr():
            return state.proposed
        case PendingShrinkIsr(committed=committed):
            return committed.isr


def joined(isr: frozenset[int]) -> str:
    """Returns the ids in ascending order, separated by commas, as observers read them."""
    return ",".join(map(str, sorted(isr)))
