"""The catalogue of bugs: each removes one protection, or brings back an older, wrong version of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.core.messages import NO_EPOCH
from cluster.core.replica.fetch import ParkedFetch
from cluster.core.replica.isr import PendingShrinkIsr, committed_isr
from cluster.core.replica.leader import Leader
from cluster.core.replica.leader_appends import LeaderAppends
from cluster.core.replica.progress import FollowerProgress
from sim.bugs.client_bugs import CLIENT_BUGS
from sim.bugs.connection_bugs import CONNECTION_BUGS
from sim.bugs.controller_bugs import CONTROLLER_BUGS
from sim.bugs.fetch_bugs import FETCH_BUGS
from sim.bugs.planting import Bug, Replacement
from sim.bugs.replica_bugs import REPLICA_BUGS
from storage.log import PartitionLog
from storage.segment import LogSegment
from storage.segment.file_records import TimestampAndOffset

Original = Callable[..., Any]

_APPENDS = "cluster.core.replica.leader_appends:LeaderAppends"


def _does_nothing(original: Original) -> Original:
    return lambda *arguments, **named: None


def _keeps_batch(original: Original) -> Original:
    def truncate_to(
        segment: LogSegment, offset: int, now_ms: int, kept: TimestampAndOffset | None = None
    ) -> int:
        found = segment.translate_offset(offset)
        if found is None:
            return int(original(segment, offset, now_ms, kept))
        # Whoever looked for the greatest timestamp before the cut has not looked into the batch that stays.
        batch = next(iter(segment.records.batches(found.position)))
        return int(original(segment, batch.next_offset, now_ms))

    return truncate_to


def _high_watermark(original: Original) -> Original:
    def on_new_epoch(strategy: object, log: PartitionLog) -> int:
        return log.high_watermark

    return on_new_epoch


def _no_epoch(original: Original) -> Original:
    def last_fetched_epoch(strategy: object, log: PartitionLog) -> int:
        return NO_EPOCH

    return last_fetched_epoch


def _safe_once_appended(original: Original) -> Original:
    def is_safe(handler: object, acks: int, leader: Leader, required_offset: int) -> bool:
        return leader.own_end.offset >= required_offset

    return is_safe


def _calls_back_twice(original: Original) -> Original:
    def call_back(appends: LeaderAppends, now_ms: int) -> None:
        appends.done.extend(list(appends.done))
        original(appends, now_ms)

    return call_back


def _never(original: Original) -> Original:
    return lambda *arguments: False


def _at_high_watermark_only(original: Original) -> Original:
    def has_reached_epoch(leader: Leader, follower: FollowerProgress) -> bool:
        return follower.log_end_offset >= leader.log.high_watermark

    return has_reached_epoch


def _committed_only(original: Original) -> Original:
    def counted_isr(leader: Leader) -> frozenset[int]:
        if isinstance(leader.isr, PendingShrinkIsr):
            return leader.isr.committed.isr - leader.isr.leavers
        return committed_isr(leader.isr).isr

    return counted_isr


def _never_above_a_segment(original: Original) -> Original:
    def maybe_roll(appends: object, checked: object, now_ms: int, may_exceed_segment: bool) -> bool:
        return bool(original(appends, checked, now_ms, False))

    return maybe_roll


def _as_asked(original: Original) -> Original:
    def park(purgatory: object, operation: object, watched: object, deadline_ms: int) -> int:
        if isinstance(operation, ParkedFetch):
            deadline_ms += operation.request.max_wait_ms
        return int(original(purgatory, operation, watched, deadline_ms))

    return park


CATALOGUE: tuple[Bug, ...] = (
    Bug(
        name="recovery-skips-crc",
        story="Batches are taken as sound without a check of their checksum.",
        replacements=(Replacement(target="storage.batch.view:RecordBatch.check_valid", make=_does_nothing),),
        found_by="torn-tail-power-loss",
    ),
    Bug(
        name="truncation-keeps-batch",
        story="truncate_to keeps the batch that holds the offset.",
        replacements=(
            Replacement(target="storage.segment.segment:LogSegment.truncate_to", make=_keeps_batch),
        ),
        found_by="divergence-truncation",
    ),
    Bug(
        name="truncate-to-high-watermark",
        story="In each new epoch a follower truncates to its high watermark, not by epoch (KIP-101, KAFKA-1211).",
        replacements=(
            Replacement(
                target="cluster.core.replica.truncation:InFetchTruncation.on_new_epoch", make=_high_watermark
            ),
            Replacement(
                target="cluster.core.replica.truncation:InFetchTruncation.last_fetched_epoch", make=_no_epoch
            ),
        ),
        found_by="leader-crash",
    ),
    Bug(
        name="fetch-without-epoch-check",
        story="A leader counts a follower's fetch of another leader epoch (KIP-320).",
        replacements=(Replacement(target="cluster.core.fencing:check_leader_epoch", make=_does_nothing),),
        found_by="stale-leader-epoch",
    ),
    Bug(
        name="ack-before-high-watermark",
        story="A request with acks=all is answered as soon as the leader has appended the records.",
        replacements=(Replacement(target=f"{_APPENDS}.is_safe", make=_safe_once_appended),),
        found_by="leader-crash",
    ),
    Bug(
        name="append-called-back-twice",
        story="The outcome of an append is told twice, so that a request is answered twice.",
        replacements=(Replacement(target=f"{_APPENDS}.call_back", make=_calls_back_twice),),
        found_by="leader-crash",
    ),
    Bug(
        name="append-outlives-leadership",
        story="An append waits on after its leader epoch, and is answered by a later one (PRO-5, KAFKA-1148).",
        replacements=(Replacement(target=f"{_APPENDS}.has_lost_leadership", make=_never),),
        found_by="late-acknowledgement",
    ),
    Bug(
        name="join-before-epoch-start",
        story="A follower joins the ISR before it has reached the start of the leader's epoch (KAFKA-7128).",
        replacements=(
            Replacement(
                target="cluster.core.replica.leader:Leader.has_reached_epoch", make=_at_high_watermark_only
            ),
        ),
    ),
    Bug(
        name="shrink-before-accepted",
        story="The high watermark ignores a replica that leaves the ISR before the controller agrees (KIP-497).",
        replacements=(
            Replacement(target="cluster.core.replica.leader:Leader.counted_isr", make=_committed_only),
        ),
        found_by="cut-leader-acks-1",
    ),
    *CLIENT_BUGS,
    *CONNECTION_BUGS,
    *CONTROLLER_BUGS,
    *REPLICA_BUGS,
    *FETCH_BUGS,
    Bug(
        name="fetch-waits-as-asked",
        story="A fetch waits beyond the broker's own limit, for as long as its client asks (C8).",
        replacements=(Replacement(target="cluster.core.replica.purgatory:Purgatory.park", make=_as_asked),),
        found_by="fetch-waits-as-asked",
    ),
    Bug(
        name="fetch-outlives-its-client",
        story="A fetch that waits stays in the core after its client has left (C8).",
        replacements=(
            Replacement(target="cluster.core.replica.fetch:FetchHandler.forget", make=_does_nothing),
        ),
        found_by="bad-network",
    ),
    Bug(
        name="follower-refuses-large-set",
        story="A follower refuses a set above segment.bytes, which was lowered after the leader's append (C7).",
        replacements=(
            Replacement(target="storage.log.appends:Appends._maybe_roll", make=_never_above_a_segment),
        ),
        found_by="follower-refuses-large-set",
    ),
)
