"""What leaders do with their proposals to the controller: one at a time, kept until its outcome is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, final

from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Response
from cluster.core.messages import AlterPartitionRequest, AlterPartitionResponse, TopicPartition
from sim.checkers.base import Jury, Life

# The errors after which the controller has not made the change, and will not make it.
_REFUSALS = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
# Those after which what it builds on is known to be out of date.
_SUPERSEDED = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION})
# How long an answer may wait for the events before it.
SLACK_US = 1_000_000


class LeaderView(Protocol):
    """The part of a replica that is read; the sets are empty unless it leads."""

    @property
    def topic_id(self) -> str: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def partition_epoch(self) -> int: ...

    @property
    def maximal_isr(self) -> tuple[int, ...]: ...

    @property
    def committed_isr(self) -> tuple[int, ...]: ...


@final
@dataclass(slots=True, kw_only=True)
class Proposal:
    """The last proposal of a leader, and the replicas that its high watermark waited for when it was sent."""

    call: int
    # Epochs begin again in a topic that is created again.
    topic_id: str
    leader_epoch: int
    partition_epoch: int
    waits_for: tuple[int, ...]
    is_accepted: bool = False
    # The controller has another leader, or another in-sync set: only metadata help.
    is_superseded: bool = False
    refused_us: int | None = None
    # When the call failed, which says nothing of its outcome.
    lost_us: int | None = None

    @property
    def builds_on(self) -> tuple[str, int, int]:
        return self.topic_id, self.leader_epoch, self.partition_epoch


@final
class Proposals:
    """Judges each proposal of an in-sync set, and what its leader makes of the answer.

    It proposes a change of what it knows, and not again one that the controller has called out of date. Each has a
    larger number than those before in its leader epoch: by it the controller knows a late copy. The leader of an epoch
    has no other proposal without an answer (I5): two at a time could reach the controller in the other order, and the
    leader would not know which set is committed. As long as the outcome is unknown, the leader waits for all that may
    be in sync: those of the committed set, and the joiner (ISR-6, KIP-497). It waits no longer for a joiner that was
    refused, or that joins a set which is not the committed one any more. Once a leader has a definite answer it waits
    for the committed set alone. Without an answer it proposes the same again, after its back-off: nobody else can, and
    it makes no other proposal before it knows.
    """

    name = "one-proposal"
    outcome_name = "proposal-outcomes"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # The partition, leader epoch and topic id of each proposal that has no answer, by life and call.
        self._open: dict[Life, dict[int, tuple[TopicPartition, int, str]]] = {}
        # The last proposal of each leader, by life and partition.
        self._last: dict[Life, dict[TopicPartition, Proposal]] = {}
        # The number of the last proposal of each topic and leader epoch, by life and partition.
        self._numbers: dict[Life, dict[TopicPartition, tuple[str, int, int]]] = {}

    @property
    def are_open(self) -> bool:
        """Whether any proposal may have no answer."""
        return bool(self._open)

    @property
    def are_watched(self) -> bool:
        """Whether any leader has made a proposal whose outcome is not settled yet."""
        return bool(self._last)

    def on_sent(
        self,
        life: Life,
        call: int,
        body: AlterPartitionRequest,
        waits_for: tuple[int, ...] = (),
        known: LeaderView | None = None,
    ) -> None:
        """Receives a proposal as it leaves the core, which waits for these replicas since.

        `known` is what the leader knows at the end of the step; None where it leads no more.
        """
        if known is not None:
            self._judge_change(life, body, known)
        self._judge_number(life, body)
        proposals = self._open.setdefault(life, {})
        proposed = (body.topic_partition, body.leader_epoch, body.topic_id)
        if proposed in proposals.values():
            what = (
                f"broker {life[0]} proposes an ISR in epoch {proposed[1]} beside a proposal without an answer"
            )
            self._jury.report(self.name, f"{proposed[0]}: {what}")
        assert call not in proposals, (life, call)
        proposals[call] = proposed
        self._last.setdefault(life, {})[body.topic_partition] = Proposal(
            call=call,
            topic_id=body.topic_id,
            leader_epoch=body.leader_epoch,
            partition_epoch=body.partition_epoch,
            waits_for=waits_for,
        )

    def _judge_change(self, life: Life, body: AlterPartitionRequest, known: LeaderView) -> None:
        """Judge whether a proposal changes what its leader knows to be committed, and may still be new."""
        last = self._last.get(life, {}).get(body.topic_partition)
        builds_on = (body.topic_id, body.leader_epoch, body.partition_epoch)
        what = ""
        if sorted(member.broker_id for member in body.new_isr) == sorted(known.committed_isr):
            what = f"the in-sync set that is committed, {known.committed_isr}"
        elif body.partition_epoch != known.partition_epoch:
            what = f"on partition epoch {body.partition_epoch}; it knows {known.partition_epoch}"
        elif last is not None and last.is_superseded and builds_on == last.builds_on:
            what = f"again on partition epoch {body.partition_epoch}, which the controller calls out of date"
        if what:
            self._jury.report(self.name, f"{body.topic_partition}: broker {life[0]} proposes {what}")

    def _judge_number(self, life: Life, body: AlterPartitionRequest) -> None:
        """Judge whether the controller can tell a proposal from a late copy of one before, which it must not take."""
        numbers = self._numbers.setdefault(life, {})
        before = numbers.get(body.topic_partition)
        now = numbers[body.topic_partition] = (body.topic_id, body.leader_epoch, body.attempt)
        if before is not None and before[:2] == now[:2] and before[2] >= now[2]:
            what = f"makes proposal {now[2]} of epoch {now[1]} after proposal {before[2]}"
            self._jury.report(self.name, f"{body.topic_partition}: broker {life[0]} {what}")

    def on_answered(self, life: Life, call: int, body: object = None) -> None:
        """Receives the end of a call, by its answer or by a failure."""
        proposals = self._open.get(life)
        proposed = None if proposals is None else proposals.pop(call, None)
        if proposals is not None and not proposals:
            del self._open[life]
        last = None if proposed is None else self._last.get(life, {}).get(proposed[0])
        if last is None or last.call != call:
            return
        if not isinstance(body, AlterPartitionResponse):
            last.lost_us = self._jury.now_us()
        else:
            last.is_accepted = body.error is ErrorCode.NONE
            last.is_superseded = body.error in _SUPERSEDED
            last.refused_us = self._jury.now_us() if body.error in _REFUSALS else None

    def on_step(
        self, life: Life, events: Iterable[Event], replicas: Mapping[TopicPartition, LeaderView]
    ) -> None:
        """Judge what a leader has made of an answer in the step that took it, which leaves `replicas` as they are."""
        for event in events:
            if type(event) is not Response or not isinstance(event.body, AlterPartitionResponse):
                continue
            topic_partition, error = event.body.topic_partition, event.body.error
            last, replica = self._last.get(life, {}).get(topic_partition), replicas.get(topic_partition)
            is_settled = error is ErrorCode.NONE or error in _REFUSALS
            if not is_settled or last is None or last.call != event.call or replica is None:
                continue
            waits_for, committed = list(replica.maximal_isr), list(replica.committed_isr)
            if _is_of(last, replica) and waits_for != committed:
                what = f"waits for {waits_for} after {error.name}; committed is {committed}"
                self._jury.report(self.outcome_name, f"{topic_partition}: leader {life[0]} {what}")

    def on_end(self, node: int) -> None:
        """Forget the proposals of the node's lives that have ended."""
        for life in [life for life in self._open if life[0] == node]:
            del self._open[life]
        for life in [life for life in self._last if life[0] == node]:
            del self._last[life]
        for life in [life for life in self._numbers if life[0] == node]:
            del self._numbers[life]

    def look(
        self, life: Life, replicas: Mapping[TopicPartition, LeaderView], *, calm_since_us: int,
        backoff_us: int = 0,
    ) -> None:  # fmt: skip
        """Judge the leaders of a node at the end of a step; it stood still until `calm_since_us`.

        It repeats `backoff_us` after a call has failed.
        """
        lasting = self._last.get(life)
        if not lasting:
            return
        for topic_partition, last in list(lasting.items()):
            replica = replicas.get(topic_partition)
            if replica is None or not replica.maximal_isr or not _is_of(last, replica):
                del lasting[topic_partition]
                continue
            what = self._wrong_outcome(last, replica, calm_since_us, backoff_us)
            if what:
                self._jury.report(self.outcome_name, f"{topic_partition}: leader {life[0]} {what}")
            if what or last.is_accepted or replica.partition_epoch != last.partition_epoch:
                del lasting[topic_partition]
        if not lasting:
            del self._last[life]

    def _wrong_outcome(self, last: Proposal, replica: LeaderView, calm_since_us: int, backoff_us: int) -> str:
        """Returns what the leader has made of its last proposal, if it is wrong."""
        waits_for, committed = list(replica.maximal_isr), list(replica.committed_isr)
        epochs = f"in partition epoch {replica.partition_epoch}"
        if replica.partition_epoch != last.partition_epoch:
            if waits_for != committed:
                since = f"as it proposed in {last.partition_epoch}"
                return f"waits for {waits_for} {epochs}, {since}; committed is {committed}"
        elif last.refused_us is not None:
            late_us = self._jury.now_us() - max(last.refused_us, calm_since_us)
            if waits_for != committed and late_us > SLACK_US:
                return f"waits for {waits_for} {epochs}; that was refused, and committed is {committed}"
        elif not last.is_accepted and waits_for != list(last.waits_for):
            return (
                f"waits for {waits_for} {epochs}; it may have {list(last.waits_for)}, which was not refused"
            )
        elif last.lost_us is not None:
            late_us = self._jury.now_us() - max(last.lost_us, calm_since_us) - backoff_us
            if late_us > SLACK_US:
                return f"does not repeat its proposal {epochs}, which had no answer"
        return ""


def _is_of(last: Proposal, replica: LeaderView) -> bool:
    return (replica.topic_id, replica.leader_epoch) == (last.topic_id, last.leader_epoch)
