"""Bugs in what leaders make of fetches, and of who is in sync: each removes or turns round one comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cluster.core.errors import ErrorCode
from cluster.core.messages import AlterPartitionResponse, EpochEnd, FetchPartition
from cluster.core.replica.fetch import ParkedFetch
from cluster.core.replica.isr import CommittedIsr, PendingIsr
from cluster.core.replica.leader import Leader
from cluster.core.replica.progress import FollowerProgress
from cluster.core.replica.replica import Replica
from sim.bugs.planting import Bug, Make, Replacement

Original = Callable[..., Any]

_REPLICA = "cluster.core.replica"


def _if_the_epoch_is_lacking(original: Original) -> Original:
    def find_divergence(handler: object, replica: Replica, asked: FetchPartition) -> EpochEnd | None:
        found: EpochEnd | None = original(handler, replica, asked)
        return found if found is not None and found.epoch < asked.last_fetched_epoch else None

    return find_divergence


def _if_the_epoch_is_known(original: Original) -> Original:
    def find_divergence(handler: object, replica: Replica, asked: FetchPartition) -> EpochEnd | None:
        found: EpochEnd | None = original(handler, replica, asked)
        return found if found is not None and found.end_offset < asked.fetch_offset else None

    return find_divergence


def _if_it_has_fetched(original: Original) -> Original:
    def is_caught_up(
        follower: FollowerProgress, leader_end_offset: int, now_ms: int, lag_time_max_ms: int
    ) -> bool:
        return now_ms - follower.last_fetch_ms <= lag_time_max_ms

    return is_caught_up


def _never(original: Original) -> Original:
    return lambda *arguments: False


def _whatever_the_epoch(original: Original) -> Original:
    def is_quiet(handler: object, replica: Replica, parked: ParkedFetch) -> bool:
        present = replace(parked, views=tuple(replica.view for _ in parked.views))
        return bool(original(handler, replica, present))

    return is_quiet


def _withdraws_whatever_the_error(original: Original) -> Original:
    def on_answer(
        changes: object, now_ms: int, replica: Replica, leader: Leader, proposal: PendingIsr, body: object
    ) -> None:
        original(changes, now_ms, replica, leader, proposal, body)
        is_refused = isinstance(body, AlterPartitionResponse) and body.error is not ErrorCode.NONE
        if is_refused and leader.isr is proposal and leader.proposal_call is None:
            leader.revert_proposal()

    return on_answer


def _keeps_the_joiner(original: Original) -> Original:
    def revert_proposal(leader: Leader) -> None:
        assert not isinstance(leader.isr, CommittedIsr), leader.isr

    return revert_proposal


def _bug(name: str, story: str, target: str, make: Make, found_by: str = "") -> Bug:
    replacement = Replacement(target=f"{_REPLICA}.{target}", make=make)
    return Bug(name=name, story=story, replacements=(replacement,), found_by=found_by)


FETCH_BUGS: tuple[Bug, ...] = (
    _bug(
        "leader-tells-of-lacking-epochs-only",
        "A fetch beyond the end of its last epoch is answered as if the logs agreed (LED-4).",
        "fetch:FetchHandler.find_divergence",
        _if_the_epoch_is_lacking,
        "leader-tells-of-lacking-epochs-only",
    ),
    _bug(
        "leader-ignores-lacking-epochs",
        "A fetch that names an epoch which the leader lacks is answered as if the logs agreed (KIP-279).",
        "fetch:FetchHandler.find_divergence",
        _if_the_epoch_is_known,
        "leader-ignores-lacking-epochs",
    ),
    _bug(
        "leader-keeps-laggers",
        "A follower that fetches counts as caught up, however far behind it is (ISR-2).",
        "progress:FollowerProgress.is_caught_up",
        _if_it_has_fetched,
    ),
    _bug(
        "leader-keeps-the-silent",
        "No follower ever lags: one that its leader does not hear stays in sync (ISR-2).",
        "leader:Leader.is_lagging",
        _never,
        "leader-keeps-the-silent",
    ),
    _bug(
        "fetch-outlives-its-epoch",
        "A fetch that waits goes on waiting when its leader epoch is over (PRO-8).",
        "fetch:FetchHandler._is_quiet",
        _whatever_the_epoch,
        "fetch-outlives-its-epoch",
    ),
    _bug(
        "leader-withdraws-superseded",
        "A proposal is withdrawn after any error, also one after which it may have been accepted (ISR-6).",
        "isr_changes:IsrChanges._on_answer",
        _withdraws_whatever_the_error,
        "lost-isr-answer",
    ),
    _bug(
        "leader-keeps-refused-joiner",
        "A leader goes on waiting for a joiner that the controller has refused (ISR-6).",
        "leader:Leader.revert_proposal",
        _keeps_the_joiner,
        "late-isr-proposal",
    ),
)
