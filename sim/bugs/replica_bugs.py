"""Bugs in what leaders and followers do: each removes one rule of roles, the ISR, fetches or truncation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cluster.core.broker.maintenance import LogMaintenance
from cluster.core.errors import ErrorCode
from cluster.core.messages import EpochEnd, FetchPartition, FetchPartitionResponse
from cluster.core.replica.fetcher import Fetchers
from cluster.core.replica.isr import PendingIsr
from cluster.core.replica.leader import Leader
from cluster.core.replica.leader_appends import LeaderAppends, WaitingAppend
from cluster.core.replica.outcomes import Outcome
from cluster.core.replica.replica import Replica
from cluster.core.replica.sliced_appends import SlicedAppend
from sim.bugs.planting import Bug, Make, Replacement
from storage.log import PartitionLog
from storage.validation.work import APPEND_WORK

Original = Callable[..., Any]

_REPLICA = "cluster.core.replica"


def _says(answer: object) -> Make:
    return lambda original: lambda *arguments, **named: answer


def _takes_silence_for_refusal(original: Original) -> Original:
    def retry_later(
        changes: object, now_ms: int, replica: Replica, leader: Leader, proposal: PendingIsr
    ) -> None:
        if leader.isr is proposal:
            leader.revert_proposal()

    return retry_later


def _names_present_lives(original: Original) -> Original:
    def send(changes: object, now_ms: int, replica: Replica, leader: Leader, proposal: PendingIsr) -> None:
        proposal = replace(proposal, followers=leader._present_lives(proposal.proposed))
        leader.isr = proposal
        original(changes, now_ms, replica, leader, proposal)

    return send


def _answers_after_the_end(original: Original) -> Original:
    def outcome_of(appends: LeaderAppends, waiting: WaitingAppend) -> Outcome | None:
        replica = appends._context.replicas.get(waiting.appended.topic_partition)
        if appends.has_lost_leadership(replica, waiting):
            return waiting.appended
        outcome: Outcome | None = original(appends, waiting)
        return outcome

    return outcome_of


def _own_end(original: Original) -> Original:
    def truncation_point(strategy: object, log: PartitionLog, diverging: EpochEnd) -> int:
        return log.reads.end_offset_for_epoch(diverging.epoch)[1]

    return truncation_point


def _takes_high_watermark_first(original: Original) -> Original:
    def on_diverging(
        fetchers: Fetchers, now_ms: int, replica: Replica, answer: FetchPartitionResponse
    ) -> None:
        fetchers.adopt_high_watermark(replica, answer.high_watermark)
        original(fetchers, now_ms, replica, answer)

    return on_diverging


def _unless_refused(original: Original) -> Original:
    def is_promise(handler: object, answer: FetchPartitionResponse) -> bool:
        return answer.error is ErrorCode.NONE

    return is_promise


def _unless_diverging(original: Original) -> Original:
    def is_promise(handler: object, answer: FetchPartitionResponse) -> bool:
        return answer.diverging is None

    return is_promise


def _counts_refusals(original: Original) -> Original:
    def finish(appends: LeaderAppends, now_ms: int, append: SlicedAppend) -> bool:
        if append.validation is None and append.failure is None:
            if appends.work.left <= 0:
                return False
            if appends._led(append.topic_partition) is None:
                appends.work.left -= APPEND_WORK
        return bool(original(appends, now_ms, append))

    return finish


def _starts_again(original: Original) -> Original:
    def on_out_of_range(
        fetchers: Fetchers, now_ms: int, replica: Replica, follower: object, answer: FetchPartitionResponse
    ) -> None:
        fetchers._truncations.truncate_fully(now_ms, replica, max(0, answer.log_start_offset))

    return on_out_of_range


def _starts_again_at_divergence(original: Original) -> Original:
    def on_diverging(
        fetchers: Fetchers, now_ms: int, replica: Replica, answer: FetchPartitionResponse
    ) -> None:
        fetchers._truncations.truncate_fully(now_ms, replica, max(0, answer.log_start_offset))

    return on_diverging


def _whatever_the_epoch(original: Original) -> Original:
    def is_current(fetchers: object, now_ms: int, replica: Replica, asked: FetchPartition) -> bool:
        follower = replica.follower
        has_same_end = replica.log.local.log_end_offset == asked.fetch_offset
        return follower is not None and follower.is_ready(now_ms) and has_same_end

    return is_current


def _bug(name: str, story: str, target: str, make: Make, found_by: str) -> Bug:
    return Bug(
        name=name,
        story=story,
        replacements=(Replacement(target=f"{_REPLICA}.{target}", make=make),),
        found_by=found_by,
    )


def _blames_the_abort(original: Original) -> Original:
    def on_slice_done(maintenance: LogMaintenance, now_ms: int, error: Exception | None) -> None:
        running = maintenance._round
        is_aborted = running is not None and maintenance.cleaner_of(running.log).is_aborted(running.key)
        original(maintenance, now_ms, None if is_aborted else error)

    return on_slice_done


REPLICA_BUGS: tuple[Bug, ...] = (
    Bug(
        name="abort-excuses-disk",
        story="A disk error in a compaction that a cut has overtaken is taken for one of the cut.",
        replacements=(
            Replacement(
                target="cluster.core.broker.maintenance:LogMaintenance._on_slice_done", make=_blames_the_abort
            ),
        ),
        found_by="overtaken-compaction",
    ),
    # No scenario finds it, because drawn and bundled producers do not use up a step's work: the run with less work that
    # does is `tests/sim/runs/test_refused_sets.py`.
    Bug(
        name="refusals-are-work",
        story="A step that refuses more sets than it may append begins their checks again and again, without an end.",
        replacements=(
            Replacement(target=f"{_REPLICA}.leader_appends:LeaderAppends._finish", make=_counts_refusals),
        ),
    ),
    _bug(
        "leader-commits-below-min-isr",
        "The high watermark rises although too few replicas are in sync (KAFKA-15583).",
        "leader:Leader.is_under_min_isr",
        _says(False),
        "too-few-in-sync",
    ),
    _bug(
        "leader-appends-with-too-few",
        "Records for all in-sync replicas are appended although too few are in sync (PRO-2).",
        "leader_appends:LeaderAppends.check_enough_in_sync",
        _says(None),
        "too-few-in-sync",
    ),
    _bug(
        "leader-takes-silence-for-refusal",
        "A proposal whose answer is lost is withdrawn, although the controller may have accepted it (ISR-6).",
        "isr_changes:IsrChanges._retry_later",
        _takes_silence_for_refusal,
        "lost-isr-answer",
    ),
    _bug(
        "proposal-follows-the-joiner",
        "A proposal made again names the joiner in a life in which it may have lost what it had (KIP-903).",
        "isr_changes:IsrChanges._send",
        _names_present_lives,
        "proposal-follows-the-joiner",
    ),
    _bug(
        "leader-notes-no-epoch-start",
        "A leader does not note where its epoch starts (KAFKA-7415).",
        "roles:Roles.begin_leader_epoch",
        _says(None),
        "leader-crash",
    ),
    _bug(
        "leader-answers-after-its-epoch",
        "A produce request that waits is acknowledged when its leader epoch ends (KAFKA-1148).",
        "leader_appends:LeaderAppends.outcome_of",
        _answers_after_the_end,
        "bad-network",
    ),
    _bug(
        "follower-truncates-to-its-own-end",
        "A follower cuts to the end that it knows of an epoch, also where the leader's is lower.",
        "truncation:InFetchTruncation.truncation_point",
        _own_end,
        "divergence-truncation",
    ),
    _bug(
        "follower-takes-high-watermark-first",
        "A follower raises its high watermark before it truncates (KAFKA-14704).",
        "fetcher:Fetchers.on_diverging",
        _takes_high_watermark_first,
        "divergence-truncation",
    ),
    _bug(
        "leader-counts-diverging-fetch",
        "A fetch whose log differs from the leader's counts as progress (KAFKA-13141).",
        "fetch:FetchHandler.is_promise",
        _unless_refused,
        "leader-counts-diverging-fetch",
    ),
    _bug(
        "leader-counts-refused-fetch",
        "A fetch that is refused counts as progress (KAFKA-8400).",
        "fetch:FetchHandler.is_promise",
        _unless_diverging,
        "",
    ),
    _bug(
        "leader-answers-latest-too-early",
        "A new leader names a latest offset before it knows what its predecessor has committed (KIP-207).",
        "list_offsets:ListOffsetsHandler.check_knows_committed_end",
        _says(None),
        "leader-answers-latest-too-early",
    ),
    Bug(
        name="follower-starts-again-where-logs-differ",
        story="A follower whose log ends after the leader's, or differs from it, drops all of it (KAFKA-2143).",
        # Leader epochs find nearly every such log before its end is out of range.
        replacements=(
            Replacement(target=f"{_REPLICA}.fetcher:Fetchers.on_out_of_range", make=_starts_again),
            Replacement(target=f"{_REPLICA}.fetcher:Fetchers.on_diverging", make=_starts_again_at_divergence),
        ),
    ),
    _bug(
        "follower-uses-late-answers",
        "A follower uses the answer to a fetch of an earlier leader epoch (KAFKA-7786).",
        "fetcher:Fetchers.is_current",
        _whatever_the_epoch,
        "",
    ),
)
