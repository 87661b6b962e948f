"""The leader's proposals of in-sync replicas: at most one in flight for each partition, repeated if its answer is lost.

Kafka: AlterPartitionManager, Partition.submitAlterPartition.
"""

from __future__ import annotations

from typing import final

from cluster.core import fencing
from cluster.core.errors import ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import AlterPartitionRequest, AlterPartitionResponse, IsrMember, ResponseBody
from cluster.core.replica.context import ReplicaContext
from cluster.core.replica.isr import CommittedIsr, PendingExpandIsr, PendingIsr, committed_isr, joined
from cluster.core.replica.leader import Leader
from cluster.core.replica.progress import FollowerProgress
from cluster.core.replica.replica import Replica

LAG_TIMER = "isr.lag"
RETRY_TIMER = "isr.retry:"

# Definite refusals, which withdraw the proposal (ISR-6).
_REJECTED = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
# The proposal is superseded, or perhaps done: the larger ISR stays until metadata says more (ISR-6).
_SUPERSEDED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


@final
class IsrChanges:
    """Proposes changes of the ISR for all partitions led here, and adopts what is committed."""

    def __init__(self, context: ReplicaContext) -> None:
        self._context = context

    def start(self, now_ms: int) -> None:
        self._arm_lag_timer(now_ms)

    def _arm_lag_timer(self, now_ms: int) -> None:
        # The members are checked twice within the lag time (ISR-2).
        at_ms = now_ms + max(1, self._context.config.replica_lag_time_max_ms // 2)
        self._context.outbox.set_timer(LAG_TIMER, at_ms, self._on_lag_timer)

    def _on_lag_timer(self, now_ms: int) -> None:
        self._arm_lag_timer(now_ms)
        for replica in tuple(self._context.replicas.values()):
            self.maybe_shrink(now_ms, replica)
            if replica.leader is not None:
                # Who is no member, and was caught up until it died, is waited for until it lags: nothing but time says
                # so, and no append may come (Kafka waits for one).
                self._context.advance_high_watermark(replica, now_ms)

    def maybe_expand(self, now_ms: int, replica: Replica, follower: FollowerProgress) -> bool:
        """Proposes that `follower` joins, if it may and nothing else is proposed (ISR-5). Returns whether it did."""
        leader = replica.leader
        proposal = None if leader is None else leader.expansion(follower)
        if leader is None or proposal is None:
            return False
        self._propose(now_ms, replica, leader, proposal)
        return True

    def maybe_shrink(self, now_ms: int, replica: Replica) -> bool:
        """Proposes that all lagging members leave, if nothing else is proposed (ISR-5). Returns whether it did."""
        leader = replica.leader
        proposal = None if leader is None else leader.shrinkage(now_ms)
        if leader is None or proposal is None:
            return False
        self._propose(now_ms, replica, leader, proposal)
        return True

    def _propose(self, now_ms: int, replica: Replica, leader: Leader, proposal: PendingIsr) -> None:
        assert leader.isr is proposal.committed, (leader.isr, proposal)
        assert leader.proposal_call is None, (replica.name, leader.proposal_call)
        leader.isr = proposal
        self._context.outbox.observe(
            "isr.proposed",
            topic_partition=replica.name,
            leader_epoch=leader.leader_epoch,
            isr=joined(proposal.proposed),
            partition_epoch=proposal.committed.partition_epoch,
        )
        self._send(now_ms, replica, leader, proposal)

    def _send(self, now_ms: int, replica: Replica, leader: Leader, proposal: PendingIsr) -> None:
        assert self._context.broker_id in proposal.proposed, (replica.name, proposal)
        assert leader.proposal_call is None, (replica.name, leader.proposal_call)
        own = IsrMember(broker_id=self._context.broker_id, broker_epoch=self._context.broker_epoch)
        request = AlterPartitionRequest(
            header=self._context.header,
            broker_id=own.broker_id,
            broker_epoch=own.broker_epoch,
            topic_partition=replica.topic_partition,
            topic_id=replica.topic_id,
            leader_epoch=leader.leader_epoch,
            partition_epoch=proposal.committed.partition_epoch,
            new_isr=tuple(sorted([own, *proposal.followers], key=lambda member: member.broker_id)),
            attempt=leader.proposals_sent,
        )
        leader.proposals_sent += 1

        def then(at_ms: int, body: ResponseBody | TransportError) -> None:
            self._on_answer(at_ms, replica, leader, proposal, body)

        config = self._context.config
        leader.proposal_call = self._context.outbox.send(
            config.controller_id, request, timeout_ms=config.controller_socket_timeout_ms, then=then
        )

    def _on_answer(
        self,
        now_ms: int,
        replica: Replica,
        leader: Leader,
        proposal: PendingIsr,
        body: ResponseBody | TransportError,
    ) -> None:
        assert leader.proposal_call is not None, (replica.name, proposal)
        leader.proposal_call = None
        # The answer belongs to an older leader epoch, which is over.
        if replica.leader is not leader:
            return
        match body:
            case AlterPartitionResponse(error=ErrorCode.NONE):
                self.on_accepted(now_ms, replica, leader, body)
            case AlterPartitionResponse(error=error) if error in _REJECTED:
                if leader.isr is proposal:
                    leader.revert_proposal()
                    self._context.touch(replica.topic_partition)
                    if error is ErrorCode.INELIGIBLE_REPLICA and isinstance(proposal, PendingExpandIsr):
                        self._turn_away(now_ms, replica, leader, proposal.joiner)
            case AlterPartitionResponse(error=error) if error in _SUPERSEDED:
                pass
            case _:
                self._retry_later(now_ms, replica, leader, proposal)
        # What follows is proposed later, by a fetch or a timer.
        assert leader.proposal_call is None, (replica.name, leader.proposal_call)

    def _turn_away(self, now_ms: int, replica: Replica, leader: Leader, joiner: int) -> None:
        """Stops waiting for a joiner that the controller refused: after its fetch, its disk failed or it was fenced."""
        follower = leader.followers.get(joiner)
        if follower is not None:
            follower.left()
            self._context.advance_high_watermark(replica, now_ms)

    def on_accepted(
        self, now_ms: int, replica: Replica, leader: Leader, body: AlterPartitionResponse
    ) -> None:
        """Adopts an accepted proposal, if its leader epoch equals the replica's and its partition epoch is not lower.

        Any other answer is out of date (ISR-6, KAFKA-12751).
        """
        assert replica.leader is leader, replica.name
        is_of_epoch = fencing.is_same_leader_epoch(body.leader_epoch, leader.leader_epoch)
        if not is_of_epoch or fencing.is_older_partition_epoch(body.partition_epoch, replica.partition_epoch):
            return
        if not fencing.is_newer_partition_epoch(body.partition_epoch, replica.partition_epoch):
            if not isinstance(leader.isr, CommittedIsr) and frozenset(body.isr) == leader.isr.committed.isr:
                # The controller has committed the same ISR before, so nothing has changed.
                leader.revert_proposal()
            return
        replica.partition_epoch = body.partition_epoch
        self.adopt(now_ms, replica, leader, body.isr, body.partition_epoch)
        adopted = committed_isr(leader.isr).partition_epoch
        assert adopted == replica.partition_epoch, (replica.name, adopted, replica.partition_epoch)

    def adopt(
        self, now_ms: int, replica: Replica, leader: Leader, isr: tuple[int, ...], partition_epoch: int
    ) -> None:
        """Adopts a committed ISR from an answer or from metadata; whichever of the two arrives second changes
        nothing."""
        if not leader.adopt_isr(isr, partition_epoch):
            return
        self._context.outbox.observe(
            "isr.committed",
            topic_partition=replica.name,
            leader_epoch=leader.leader_epoch,
            isr=joined(frozenset(isr)),
            partition_epoch=partition_epoch,
        )
        # A smaller ISR may commit more at once (HWM-5, KAFKA-13091).
        self._context.advance_high_watermark(replica, now_ms)
        self._context.touch(replica.topic_partition)

    def _retry_later(self, now_ms: int, replica: Replica, leader: Leader, proposal: PendingIsr) -> None:
        """Sends the proposal again after the back-off, without a limit: its outcome is unknown (ISR-6).

        It names the same lives of its followers, so that the controller refuses who has begun another since (KIP-903).
        """

        def retry(at_ms: int) -> None:
            if replica.leader is leader and leader.isr is proposal and leader.proposal_call is None:
                self._send(at_ms, replica, leader, proposal)

        key = f"{RETRY_TIMER}{replica.topic_partition}"
        self._context.outbox.set_timer(key, now_ms + self._context.config.retry_backoff_ms, retry)
