"""Judges whether brokers do what is due towards the controller and their leaders, or set a timer for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import final

from cluster.core.broker.broker import Broker
from cluster.core.broker.lifecycle import FIRST_LEAVE_DELAY_MS, HEARTBEAT_TIMER, REGISTER_TIMER, BrokerState
from cluster.core.broker.metadata_observer import RETRY_TIMER as METADATA_TIMER
from cluster.core.effects import CancelTimer, Observe, RunJob, Send, SetTimer, Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, JobDone, Request, Response, TimerFired
from cluster.core.messages import (
    NO_LEADER,
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    FetchMetadataRequest,
    FetchMetadataResponse,
    FetchRequest,
    FetchResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RequestBody,
    TopicPartition,
)
from cluster.core.replica.fetcher import WAIT_TIMER
from cluster.core.replica.flushes import RETRY_TIMER as FLUSH_RETRY_TIMER
from cluster.core.replica.follower import FetchState
from cluster.core.replica.isr import CommittedIsr
from cluster.core.replica.isr_changes import RETRY_TIMER as PROPOSAL_TIMER
from cluster.core.replica.leader import promises_flush
from cluster.core.replica.replica import Replica
from sim.checkers.base import Jury, Life

# What a heartbeat wishes: to stay fenced, and to shut down.
Wishes = tuple[bool, bool]
NEVER_MS = -(1 << 62)
# What ends a life for the controller, so that the broker has to register again.
_LOST_LIVES = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


# What settles a proposal, one way or the other (ISR-6).
_SETTLING = (
    ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA, ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST, ErrorCode.NEW_LEADER_ELECTED,
)  # fmt: skip


@final
class _Account:
    """What a life of a broker has on its way and in its timers, by what has left it and what has come."""

    def __init__(self) -> None:
        self.timers: dict[str, int] = {}
        self.registration: int | None = None
        # Since the first registration was answered.
        self.is_registered = False
        self.heartbeat: int | None = None
        self.wishes: Wishes = (True, False)
        # A replica has gone offline since the last heartbeat left.
        self.is_offline_due = False
        # Whether the last answered heartbeat failed.
        self.has_failed = False
        # The step has taken the controller's word that it does not know the life which the heartbeat named.
        self.is_unknown = False
        self.metadata: int | None = None
        self.has_begun = False
        # The step has taken metadata, or what stands for them.
        self.is_told = False
        # The fetch on its way to each leader.
        self.fetches: dict[int, int] = {}
        # The partition, topic id and leader epoch of each proposal on its way, and of those whose outcome is unknown.
        self.proposals: dict[int, tuple[TopicPartition, str, int]] = {}
        self.unanswered: dict[TopicPartition, tuple[str, int]] = {}
        # The partitions that a leader has refused because the epoch of the fetch is over.
        self.fenced: set[TopicPartition] = set()
        # Those in whose in-sync set the broker was as it began to stop; None before.
        self.held_at_stop: frozenset[TopicPartition] | None = None
        # The request for producer ids that has no answer.
        self.allocation: int | None = None
        # The jobs that check a slice of what producers have sent.
        self.checks: set[int] = set()
        self.has_gone_back, self._last_ms = False, NEVER_MS

    def begin_step(self, now_ms: int) -> None:
        """Receives the time of the broker's clock; after it has gone back once, no span of the life is judged."""
        self.has_gone_back = self.has_gone_back or now_ms < self._last_ms
        self._last_ms = now_ms
        self.is_told = self.is_unknown = False

    def on_sent(self, to: int, call: int, body: RequestBody) -> None:
        match body:
            case FetchRequest():
                self.fetches[to] = call
            case FetchMetadataRequest():
                self.metadata, self.has_begun = call, True
            case BrokerHeartbeatRequest():
                self.heartbeat, self.wishes = call, (body.want_fence, body.want_shutdown)
                self.is_offline_due = False
            case RegisterBrokerRequest():
                self.registration = call
            case AllocateProducerIdsRequest():
                self.allocation = call
            case AlterPartitionRequest():
                self.proposals[call] = body.topic_partition, body.topic_id, body.leader_epoch
                self.unanswered.pop(body.topic_partition, None)

    def on_event(self, event: Event) -> None:
        """Receives what the broker took in the step, before its effects."""
        if type(event) is TimerFired:
            self.timers.pop(event.key, None)
        elif type(event) is Response:
            self._on_answer(event)
        elif type(event) is JobDone:
            self.checks.discard(event.job)

    def _on_answer(self, answer: Response) -> None:
        body = answer.body
        if type(body) is FetchResponse:
            over = ErrorCode.FENCED_LEADER_EPOCH
            self.fenced.update([each.topic_partition for each in body.partitions if each.error is over])
        if answer.call == self.heartbeat:
            self.heartbeat = None
            body = answer.body
            error = body.error if isinstance(body, BrokerHeartbeatResponse) else None
            self.has_failed, self.is_unknown = error is not ErrorCode.NONE, error in _LOST_LIVES
        elif answer.call == self.registration:
            self.registration = None
            body = answer.body
            if isinstance(body, RegisterBrokerResponse) and body.error is ErrorCode.NONE:
                self.is_registered = True
        elif answer.call == self.metadata:
            self.metadata = None
            body = answer.body
            self.is_told = isinstance(body, FetchMetadataResponse) and body.error is ErrorCode.NONE
        elif answer.call == self.allocation:
            self.allocation = None
        elif answer.call in self.proposals:
            topic_partition, topic_id, epoch = self.proposals.pop(answer.call)
            if not isinstance(answer.body, AlterPartitionResponse) or answer.body.error not in _SETTLING:
                self.unanswered[topic_partition] = topic_id, epoch
        else:
            for leader, call in self.fetches.items():
                if call == answer.call:
                    del self.fetches[leader]
                    break

    def on_effect(self, effect: object) -> None:
        if type(effect) is SetTimer:
            self.timers[effect.key] = effect.at_ms
        elif type(effect) is CancelTimer:
            self.timers.pop(effect.key, None)
        elif type(effect) is RunJob and effect.kind == "validate":
            self.checks.add(effect.job)


@final
class IdleBrokers:
    """Eleven rules for each step of a broker, by what has left it and what has come.

    It registers, or is registered. A registered one has a heartbeat on its way, or a timer for the next. Where its
    wishes differ from those of its last heartbeat, or a replica has gone offline, the next one leaves at once, or
    as soon as the one on its way is answered. It asks for the next metadata as soon as it has applied the last. A
    leader from which it follows a partition that may be fetched has a fetch of it on its way, or is asked when the
    back-off ends; one that it fetches no more until it learns of a newer epoch was refused because that one is over
    (FET-10). As it stops, it fetches nothing of which it has left the in-sync set (ROL-6). A log of which each
    append is promised to be flushed is being flushed until its end is. A proposal without an outcome has its own
    timer, after which it is made again. As long as appends wait for their checks, some are checked; as long as
    producers wait for ids, the controller is asked for some. A broker whose timer is lost lives on: nobody hears
    from it again, or it follows no more.
    """

    name = "idle-brokers"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        self._accounts: dict[Life, _Account] = {}

    def on_sent(self, life: Life, to: int, call: int, body: RequestBody) -> None:
        """Receives a request as it leaves a broker, also at its start, which is no step."""
        self._account(life).on_sent(to, call, body)

    def _account(self, life: Life) -> _Account:
        account = self._accounts.get(life)
        if account is None:
            # Earlier lives of the broker have ended.
            self._accounts = {key: each for key, each in self._accounts.items() if key[0] != life[0]}
            account = self._accounts[life] = _Account()
        return account

    def on_step(
        self, life: Life, core: Broker, now_ms: int, events: Iterable[Event], effects: Iterable[object]
    ) -> None:
        """Judge a broker after a step, at the time of its clock, before its effects are carried out."""
        account = self._account(life)
        account.begin_step(now_ms)
        for event in events:
            account.on_event(event)
        told = set()
        has_beaten = False
        for effect in effects:
            if type(effect) is Stop:
                return
            if type(effect) is Send:
                account.on_sent(effect.to, effect.call, effect.body)
                has_beaten = has_beaten or type(effect.body) is BrokerHeartbeatRequest
            elif type(effect) is Observe:
                told.add(effect.kind)
            else:
                account.on_effect(effect)
        if core.lifecycle.state is BrokerState.PENDING_SHUTDOWN:
            self._judge_leaving(life, account, core, effects)
        # The heartbeat that tells of it leaves at the end of the step, if none is on its way.
        if "replica.offline" in told and not has_beaten:
            account.is_offline_due = True
        if core.lifecycle.state is BrokerState.SHUTTING_DOWN:
            return
        if account.unanswered:
            for what in _of_proposals(account, core, now_ms):
                self._report(life, what)
        if not account.checks and core.waits_for_checks:
            self._report(life, "has appends that wait for their checks, and checks none")
        if account.allocation is None and core.waits_for_ids:
            self._report(life, "has producers that wait for ids, and asks for none")
        is_damaged = "metadata.damaged" in told
        for what in _left_undone(account, core, now_ms, is_damaged=is_damaged):
            self._report(life, what)
        # A broker that leaves need not begin to follow.
        is_leaving = core.lifecycle.state is BrokerState.PENDING_SHUTDOWN
        if not is_leaving and any(type(event) is not Request for event in events):
            for what in (*_of_fetchers(account, core, now_ms), *_of_flushes(account, core)):
                self._report(life, what)

    def _judge_leaving(self, life: Life, account: _Account, core: Broker, effects: Iterable[object]) -> None:
        """Judges what a broker that stops fetches: nothing of a partition whose in-sync set it has left (ROL-6)."""
        if account.held_at_stop is None:
            held = [each for each in core.image.partitions() if life[0] in each.isr]
            account.held_at_stop = frozenset([each.topic_partition for each in held])
            return
        for effect in effects:
            if type(effect) is not Send or type(effect.body) is not FetchRequest:
                continue
            for asked in effect.body.partitions:
                known = core.image.partition(asked.topic_partition)
                is_out = known is not None and life[0] not in known.isr
                if is_out and asked.topic_partition in account.held_at_stop:
                    self._report(life, f"stops, has left the ISR of {asked.topic_partition}, and fetches it")

    def _report(self, life: Life, what: str) -> None:
        self._jury.report(self.name, f"broker {life[0]} {what}")


def _left_undone(account: _Account, core: Broker, now_ms: int, *, is_damaged: bool) -> Iterator[str]:
    registers = account.registration is not None or REGISTER_TIMER in account.timers
    if account.has_begun and not registers:
        if not account.is_registered:
            yield "does not register"
        elif account.is_unknown and account.heartbeat is None:
            # An answer about an earlier life is followed by a heartbeat of this one.
            yield "is not known to the controller any more, and does not register again"
        elif account.heartbeat is None:
            yield from _of_heartbeats(account, core, now_ms)
    if account.has_begun and account.metadata is None:
        if account.is_told and not is_damaged:
            yield "has taken metadata, and does not ask for more"
        elif METADATA_TIMER not in account.timers:
            yield "neither asks for metadata nor has set a timer for it"


def _of_heartbeats(account: _Account, core: Broker, now_ms: int) -> Iterator[str]:
    due_ms = account.timers.get(HEARTBEAT_TIMER)
    if due_ms is None:
        yield "neither sends a heartbeat nor has set a timer for it"
        return
    is_leaving = core.lifecycle.state is BrokerState.PENDING_SHUTDOWN
    if account.has_failed or (is_leaving and due_ms <= now_ms + FIRST_LEAVE_DELAY_MS):
        return
    wishes = (core.lifecycle.wants_fence(), is_leaving)
    if wishes != account.wishes:
        yield f"wishes {_text(wishes)}, has told {_text(account.wishes)}, and sends no heartbeat"
    elif account.is_offline_due:
        yield "has a replica offline, and sends no heartbeat that tells of it"


def _text(wishes: Wishes) -> str:
    wants_fence, wants_shutdown = wishes
    return f"{'to be fenced' if wants_fence else 'to serve'}{' and to leave' if wants_shutdown else ''}"


def _of_fetchers(account: _Account, core: Broker, now_ms: int) -> Iterator[str]:
    """Yields the leaders that are not asked, and forgets the fetches to those from which nothing is followed."""
    followed: dict[int, list[Replica]] = {}
    for replica in core.replicas().values():
        if replica.follower is not None and replica.follower.leader_id != NO_LEADER:
            followed.setdefault(replica.follower.leader_id, []).append(replica)
    yield from _of_fenced(account, followed.values())
    account.fetches = {leader: call for leader, call in account.fetches.items() if leader in followed}
    backoff_ms = core.config.replica_fetch_backoff_ms
    for leader, replicas in followed.items():
        if leader not in account.fetches and (due := _first_due(replicas)) is not None:
            timer_ms = account.timers.get(f"{WAIT_TIMER}{leader}")
            if timer_ms is None:
                yield f"does not fetch from broker {leader}, and has set no timer for it; {due} is to be fetched"
            elif timer_ms > now_ms + backoff_ms and not account.has_gone_back:
                yield f"fetches from broker {leader} in {timer_ms - now_ms} ms, after a back-off of {backoff_ms}"


def _of_fenced(account: _Account, followed: Iterable[Iterable[Replica]]) -> Iterator[str]:
    """Yields the replicas that are fetched no more, although no leader has said that their epoch is over (FET-10)."""
    fenced: set[TopicPartition] = set()
    for replicas in followed:
        for replica in replicas:
            if replica.follower is not None and replica.follower.state is FetchState.FENCED:
                fenced.add(replica.topic_partition)
                if replica.topic_partition not in account.fenced:
                    yield f"waits for a newer epoch of {replica.name}, and nobody has said that this one is over"
    account.fenced &= fenced


def _of_proposals(account: _Account, core: Broker, now_ms: int) -> Iterator[str]:
    """Yields the partitions whose proposal has no outcome and is not made again; forgets those that are settled."""
    backoff_ms = core.config.retry_backoff_ms
    for topic_partition, role in list(account.unanswered.items()):
        if not _is_proposing(core.replicas().get(topic_partition), role):
            del account.unanswered[topic_partition]
            continue
        timer_ms = account.timers.get(f"{PROPOSAL_TIMER}{topic_partition}")
        if timer_ms is None:
            yield f"has had no answer to its proposal for {topic_partition}, and has set no timer to make it again"
        elif timer_ms > now_ms + backoff_ms and not account.has_gone_back:
            yield f"makes its proposal for {topic_partition} again in {timer_ms - now_ms} ms, not {backoff_ms}"


def _is_proposing(replica: Replica | None, role: tuple[str, int]) -> bool:
    """Whether a replica still leads in that role, its topic's id and leader epoch, and waits to propose again."""
    leader = None if replica is None else replica.leader
    if replica is None or leader is None or (replica.topic_id, leader.leader_epoch) != role:
        return False
    return leader.proposal_call is None and not isinstance(leader.isr, CommittedIsr)


def _of_flushes(account: _Account, core: Broker) -> Iterator[str]:
    """Yields the logs for whose flush fetches and answers wait in vain: none runs, and no timer begins another one."""
    for replica in core.replicas().values():
        local, follower = replica.log.local, replica.follower
        if local.recovery_point >= local.log_end_offset or replica.is_flushing:
            continue
        # Where nobody leads, nobody waits: the next role begins with a flush.
        if replica.leader is None and (follower is None or follower.leader_id == NO_LEADER):
            continue
        is_tried_later = f"{FLUSH_RETRY_TIMER}{replica.name}" in account.timers
        if promises_flush(replica.log) and not is_tried_later and replica.log.online.reason is None:
            end = local.log_end_offset
            yield f"flushes no more of {replica.name} than up to {local.recovery_point}; {end} is promised"


def _first_due(replicas: Iterable[Replica]) -> str | None:
    """Returns a replica that may be fetched; None if there is none, or if one of them has a promised flush to end."""
    due = None
    for replica in replicas:
        follower, local = replica.follower, replica.log.local
        if follower is not None and follower.state is FetchState.FETCHING:
            if promises_flush(replica.log) and local.recovery_point < local.log_end_offset:
                return None
            due = due or replica.name
    return due
