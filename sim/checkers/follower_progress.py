"""A second account of what each leader knows of its followers, and of the high watermark that follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, final

from sim.checkers.base import Jury

_NO_LIVES: Mapping[int, int] = MappingProxyType({})
# Before any time: the follower has never been caught up, or not since the controller removed it.
NEVER_MS = -(1 << 62)


class Progress(NamedTuple):
    """What a leader knows of a follower: the end of its log, when it was caught up last, and the life that fetched.

    The end is -1 before the first fetch in a leader epoch.
    """

    log_end_offset: int
    caught_up_ms: int
    broker_epoch: int


class LeaderState(NamedTuple):
    """The state of a leader of one epoch at the end of a step, as values."""

    leader_epoch: int
    partition_epoch: int
    committed: frozenset[int]
    # Those of the proposal that has no outcome: who is to join, who is to leave.
    joiners: frozenset[int]
    leavers: frozenset[int]
    followers: Mapping[int, Progress]
    log_end_offset: int
    # The log end that the leader counts for itself: where a flush is promised, what is flushed.
    own_end_offset: int
    is_flush_promised: bool
    # When a flush of the log ended last: a clock that is coarse shows some ends as one.
    flushed_ms: int
    high_watermark: int
    min_insync_replicas: int
    lag_time_max_ms: int
    # The broker epochs of the active followers that are neither committed members nor joiners.
    active: Mapping[int, int]
    # Where the leader epoch begins in the leader's log; -1 if the log does not say it.
    epoch_start_offset: int = -1
    # The joiners that are not active by the metadata at the end of the step.
    inactive_joiners: frozenset[int] = frozenset()
    is_compacted: bool = False
    # Whether a proposal is on its way to the controller, also one that has its outcome already.
    has_proposed: bool = False


class CountedFetch(NamedTuple):
    """A follower's fetch that the leader has neither refused nor found to diverge."""

    broker: int
    fetch_offset: int
    broker_epoch: int


class StepSeen(NamedTuple):
    """What a step did to a partition that its broker leads, beside the fetches."""

    now_ms: int
    fetches: Sequence[CountedFetch] = ()
    # Whether the step began the leader epoch.
    is_new: bool = False
    # Whether the step took more than one event: a roll for the last may have flushed what the first has appended.
    is_long: bool = False
    # Whether it took fetches and other requests, so that the order of appends and fetches is not known.
    is_mixed: bool = False
    has_appended: bool = False
    # Whether the controller refused the joiner of the proposal because it may not join.
    refused_joiner: bool = False
    # Whether all that the step may have appended was to be answered by all in-sync replicas.
    is_for_all: bool = False
    # The broker epoch of each follower that a proposal of the step names.
    named_lives: Mapping[int, int] = _NO_LIVES
    # Whether that proposal is one that the leader has made before.
    is_repeated: bool = False
    # Whether its timer had the leader look who lags.
    looks_at_lag: bool = False

    @property
    def is_quiet(self) -> bool:
        """Whether nothing was done to the partition itself: then only its state can have changed."""
        is_touched = self.is_new or self.has_appended or self.refused_joiner or self.looks_at_lag
        return not (self.fetches or self.named_lives or is_touched)


@final
@dataclass(slots=True)
class Follower:
    """The account of one follower: its progress, and what the leader knew at its fetch before."""

    progress: Progress
    fetched_ms: int = NEVER_MS
    leader_end: int = 0
    # Whether that end may be one of the same step, from before or after an append.
    is_unsure: bool = False


@final
class LeaderAccount:
    """The account of one leader epoch of one broker."""

    __slots__ = ("followers", "named_lives", "state")

    def __init__(self, state: LeaderState) -> None:
        self.state = state
        # Those of the last proposal.
        self.named_lives: Mapping[int, int] = _NO_LIVES
        self.followers = {broker: Follower(progress) for broker, progress in state.followers.items()}

    def count(self, fetch: CountedFetch, step: StepSeen, state: LeaderState) -> bool:
        """Counts a fetch: caught up now, or at the fetch before, or neither (ISR-1). Returns whether the end rose."""
        known, leader_end = self.followers[fetch.broker], state.log_end_offset
        before = known.progress
        assert fetch.fetch_offset >= 0, fetch
        caught_up_ms = before.caught_up_ms
        if step.is_mixed or (known.is_unsure and fetch.fetch_offset < leader_end):
            # An append before a fetch or after it decides whether the follower is caught up.
            caught_up_ms = state.followers[fetch.broker].caught_up_ms
        elif fetch.fetch_offset >= leader_end:
            caught_up_ms = max(caught_up_ms, step.now_ms)
        elif fetch.fetch_offset >= known.leader_end:
            caught_up_ms = max(caught_up_ms, known.fetched_ms)
        known.progress = Progress(fetch.fetch_offset, caught_up_ms, fetch.broker_epoch)
        known.fetched_ms, known.leader_end, known.is_unsure = step.now_ms, leader_end, step.is_mixed
        return fetch.fetch_offset > before.log_end_offset

    def forget_caught_up(self, brokers: frozenset[int]) -> None:
        """Notes that the controller does not have these in the ISR: only another fetch makes them caught up again."""
        for broker in sorted(brokers):
            known = self.followers.get(broker)
            if known is not None:
                known.progress = known.progress._replace(caught_up_ms=NEVER_MS)

    def waits_for(
        self, broker: int, state: LeaderState, now_ms: int, lives_before: Mapping[int, int] = _NO_LIVES
    ) -> bool:
        """Returns whether the high watermark waits for the follower: a member, or who is about to join (HWM-1).

        `lives_before` are lives in which followers have fetched before: there it waits for who is active in either.
        """
        if broker in state.committed or broker in state.joiners:
            return True
        known = self.followers[broker].progress
        is_at_end = known.log_end_offset == state.log_end_offset
        is_caught_up = is_at_end or now_ms - known.caught_up_ms <= state.lag_time_max_ms
        lives = (known.broker_epoch, lives_before.get(broker, known.broker_epoch))
        return is_caught_up and state.active.get(broker, -1) in lives

    def lives(self) -> dict[int, int]:
        """Returns the broker epoch in which each follower has fetched last."""
        return {broker: each.progress.broker_epoch for broker, each in self.followers.items()}

    def due(
        self, state: LeaderState, own_end: int, now_ms: int, lives_before: Mapping[int, int] = _NO_LIVES
    ) -> int:
        """Returns the high watermark that the leader may have by now; it may be below the one that it has."""
        is_short = len(state.committed) < min(state.min_insync_replicas, len(self.followers) + 1)
        return 0 if is_short else self.reached(state, own_end, now_ms, lives_before)

    def reached(
        self, state: LeaderState, own_end: int, now_ms: int, lives_before: Mapping[int, int] = _NO_LIVES
    ) -> int:
        """Returns the offset (exclusive) up to which all have fetched that the high watermark waits for.

        `own_end` is the log end that the leader counts for itself.
        """
        reached = own_end
        for broker, known in self.followers.items():
            if known.progress.log_end_offset < reached and self.waits_for(
                broker, state, now_ms, lives_before
            ):
                reached = known.progress.log_end_offset
        return reached


@final
class FollowerProgress:
    """Judges what leaders know of their followers by the fetches that they answered, and how high they commit.

    A leader epoch begins without any progress, and with the members of the ISR as caught up (ISR-8). A fetch counts if
    it is neither refused nor found to diverge (LED-6); a member that the controller removed without being asked is not
    caught up before another fetch. A step that lets the high watermark rise, as the election of one who waits for
    nobody does, lets it rise as far as the members and those about to join allow (HWM-1, HWM-5). Nothing is appended
    for all in-sync replicas where these are too few to commit it (PRO-2), and nothing is committed then (HWM-3), nor
    what a replica lacks that the high watermark waits for: a member, or who is about to join (HWM-1, HWM-2). A
    proposal names each follower in the life whose fetch has counted last, whatever the metadata says of it since, and
    is made again with the same lives (ISR-4, KIP-903). Who joins has reached the start of the leader epoch and the high
    watermark (ISR-3, KAFKA-7128), and is active (KIP-841). Who leaves has not been caught up for longer than the lag
    time, and is not at the log end (ISR-2). Who may join is proposed as it fetches, if nothing else is on its way.
    """

    name = "follower-progress"
    due_name = "high-watermark-due"
    enough_name = "enough-to-append"
    few_name = "min-in-sync"
    early_name = "high-watermark-early"
    lives_name = "proposed-lives"
    joiners_name = "proposed-joiners"
    leavers_name = "proposed-leavers"
    late_name = "late-joiners"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # By broker, life and partition, with the object that the broker leads by: a new one is another epoch's.
        self._accounts: dict[tuple[int, int, str], tuple[object, LeaderAccount]] = {}

    def on_follows(self, key: tuple[int, int, str]) -> None:
        """Receives that a broker does not lead the partition; `key` is the broker, its life and the partition."""
        self._accounts.pop(key, None)

    def on_end(self, broker: int) -> None:
        """Forget the lives of the broker that have ended."""
        self._accounts = {key: each for key, each in self._accounts.items() if key[0] != broker}

    def on_step(self, key: tuple[int, int, str], leader: object, state: LeaderState, step: StepSeen) -> None:
        """Receives the state of a leader at the end of a step that may have changed it."""
        token, account = self._accounts.get(key, (None, None))
        if account is None or token is not leader or account.state.leader_epoch != state.leader_epoch:
            begun = LeaderAccount(state)
            if step.is_new:
                self._judge_new(key, state, step)
            if step.is_new and not step.is_long:
                self._judge_due(key, state, begun.due(state, state.own_end_offset, step.now_ms))
            self._accounts[key] = (leader, begun)
            return
        if step.is_quiet and state == account.state:
            return
        if step.has_appended and step.is_for_all:
            self._judge_enough(key, account.state, state)
        if state.high_watermark > account.state.high_watermark:
            self._judge_rise(key, account.state, state)
        self._judge_lives(key, account, state, step)
        # An append may have come before a fetch in a new life, after which nothing rises.
        lives_before = account.lives() if step.is_mixed else _NO_LIVES
        may_rise = self._follow(account, state, step)
        self._compare(key, account, state)
        if state.high_watermark > account.state.high_watermark and not state.is_compacted:
            self._judge_early(key, account, state, step)
        self._judge_joiners(key, account.state, state, step)
        self._judge_leavers(key, account.state, state, step)
        if step.fetches and not (step.is_long or state.has_proposed or account.state.has_proposed):
            self._judge_left_out(key, state, step.fetches[-1])
        if may_rise or step.has_appended:
            is_known = not (step.is_long and state.is_flush_promised)
            own_end = state.own_end_offset if is_known else account.state.own_end_offset
            self._judge_due(key, state, account.due(state, own_end, step.now_ms, lives_before))
        account.state = state

    def _judge_new(self, key: tuple[int, int, str], state: LeaderState, step: StepSeen) -> None:
        for broker, progress in state.followers.items():
            caught_up_ms = step.now_ms if broker in state.committed else NEVER_MS
            if not step.is_long and progress.caught_up_ms != caught_up_ms:
                due = _text(progress._replace(caught_up_ms=caught_up_ms))
                self._report(
                    self.name, key, state, f"begins with {_text(progress)} of broker {broker}, not {due}"
                )
            if progress.log_end_offset >= 0:
                what = f"begins with broker {broker} at {progress.log_end_offset}, before its first fetch"
                self._report(self.name, key, state, what)

    def _follow(self, account: LeaderAccount, state: LeaderState, step: StepSeen) -> bool:
        """Brings the account up to date. Returns whether the high watermark may rise by it."""
        before = account.state
        self._follow_replicas(account, state)
        if state.partition_epoch != before.partition_epoch:
            account.forget_caught_up(before.committed - state.committed - before.leavers)
        elif step.refused_joiner:
            account.forget_caught_up(before.joiners)
        # It waits no longer for a joiner that may not join, nor for one that is no member and lags by now.
        has_given_up = step.looks_at_lag or (
            step.refused_joiner and bool(before.joiners) and not state.joiners
        )
        may_rise = state.partition_epoch != before.partition_epoch or has_given_up
        for fetch in step.fetches:
            if fetch.broker in account.followers and account.count(fetch, step, state):
                may_rise = True
        # A roll flushes too, in the step of an append; that of a repeated batch is followed by the end of a flush.
        has_flushed = state.flushed_ms != before.flushed_ms and state.own_end_offset > before.own_end_offset
        # What was held back for it may be committed, also where nothing else ever comes.
        has_eased = state.min_insync_replicas < before.min_insync_replicas
        has_eased |= before.is_flush_promised and not state.is_flush_promised
        return may_rise or has_flushed or has_eased

    def _follow_replicas(self, account: LeaderAccount, state: LeaderState) -> None:
        """Takes over the assigned replicas: nothing is known of new ones."""
        known = account.followers
        if known.keys() == state.followers.keys():
            return
        account.followers = {
            broker: known.get(broker) or Follower(progress) for broker, progress in state.followers.items()
        }

    def _compare(self, key: tuple[int, int, str], account: LeaderAccount, state: LeaderState) -> None:
        for broker, progress in state.followers.items():
            known = account.followers[broker]
            if progress != known.progress:
                due = f"by its fetches and the ISR it is {_text(known.progress)}"
                what = f"has {_text(progress)} of broker {broker}; {due}"
                self._report(self.name, key, state, what)
            known.progress = progress

    def _judge_due(self, key: tuple[int, int, str], state: LeaderState, due: int) -> None:
        if state.high_watermark < due:
            ends = {broker: each.log_end_offset for broker, each in state.followers.items()}
            what = (
                f"has high watermark {state.high_watermark} and may have {due}; its followers are at {ends}"
            )
            self._report(self.due_name, key, state, what)

    def _judge_enough(self, key: tuple[int, int, str], before: LeaderState, state: LeaderState) -> None:
        """Judges an append for all in-sync replicas: there had to be enough of them, before the step or after it."""
        most = max(len(before.committed), len(state.committed))
        least = min(state.min_insync_replicas, len(state.followers) + 1)
        if most < least and before.partition_epoch == state.partition_epoch:
            what = f"appends for acks=all with {most} in sync; min.insync.replicas is {least}"
            self._report(self.enough_name, key, state, what)

    def _judge_rise(self, key: tuple[int, int, str], before: LeaderState, state: LeaderState) -> None:
        """Judges a rise of the high watermark: who is only about to join is not in sync yet (HWM-3).

        In a compacted log it may rise over a gap, where there is nothing to commit.
        """
        if state.is_compacted:
            return
        most = max(len(before.committed), len(state.committed))
        least = min(before.min_insync_replicas, state.min_insync_replicas, len(state.followers) + 1)
        if most < least and before.partition_epoch == state.partition_epoch:
            what = f"commits up to {state.high_watermark} with {most} in sync; min.insync.replicas is {least}"
            self._report(self.few_name, key, state, what)

    def _judge_early(
        self, key: tuple[int, int, str], account: LeaderAccount, state: LeaderState, step: StepSeen
    ) -> None:
        """Judges how far the high watermark has risen: no further than those that it waits for have fetched.

        Within a step of several events it is not known when it rose. Then it waits at least for those that were members
        or about to join before the step, and are so after it.
        """
        before = account.state
        if not (step.is_long or step.is_mixed):
            allowed = account.reached(state, state.own_end_offset, step.now_ms)
            waited = {broker: each.progress.log_end_offset for broker, each in account.followers.items()}
        elif before.partition_epoch != state.partition_epoch:
            return
        else:
            staying = (before.committed | before.joiners) & (state.committed | state.joiners)
            waited = {
                broker: max(each.log_end_offset, state.followers[broker].log_end_offset)
                for broker, each in before.followers.items()
                if broker in staying and broker in state.followers
            }
            # An older fetch that comes late takes back what the one before it in the step has told.
            for fetch in step.fetches:
                if fetch.broker in waited:
                    waited[fetch.broker] = max(waited[fetch.broker], fetch.fetch_offset)
            allowed = min(waited.values(), default=state.high_watermark)
        if state.high_watermark > allowed:
            what = (
                f"commits up to {state.high_watermark} and may up to {allowed}; its followers are at {waited}"
            )
            self._report(self.early_name, key, state, what)

    def _judge_lives(
        self, key: tuple[int, int, str], account: LeaderAccount, state: LeaderState, step: StepSeen
    ) -> None:
        """Judges the lives that a proposal names; of who has not fetched in this leader epoch the leader knows none.

        One that is made again names the same: in a later life the joiner may have lost what it had (KIP-903).
        """
        for broker, named in step.named_lives.items():
            known = account.followers.get(broker)
            fetched = [] if known is None else [known.progress.broker_epoch]
            # The proposal may be older than a fetch of the same step.
            fetched += [fetch.broker_epoch for fetch in step.fetches if fetch.broker == broker]
            lives = [life for life in fetched if life >= 0]
            before = account.named_lives.get(broker)
            if step.is_repeated and before is not None:
                if named != before:
                    what = f"names broker {broker} in life {named} to the controller, and named it in {before} before"
                    self._report(self.lives_name, key, state, what)
            elif named < 0:
                what = f"names broker {broker} in no life to the controller"
                self._report(self.lives_name, key, state, what)
            elif lives and named not in lives:
                what = (
                    f"names broker {broker} in life {named} to the controller; it has fetched in {lives[-1]}"
                )
                self._report(self.lives_name, key, state, what)
        account.named_lives = step.named_lives or account.named_lives

    def _judge_joiners(
        self, key: tuple[int, int, str], before: LeaderState, state: LeaderState, step: StepSeen
    ) -> None:
        """Judges where those are whom the leader has begun to propose, by the furthest that it can know."""
        due = max(state.epoch_start_offset, before.high_watermark)
        for broker in sorted(state.joiners - before.joiners):
            known = state.followers.get(broker)
            ends = [fetch.fetch_offset for fetch in step.fetches if fetch.broker == broker]
            ends += [] if known is None else [known.log_end_offset]
            if ends and max(ends) < due:
                what = (
                    f"lets broker {broker} join, which has fetched up to {max(ends)}; it has to reach {due}"
                )
                self._report(self.joiners_name, key, state, what)
            # Metadata of the same step may have come before the proposal or after it.
            if (
                broker in state.inactive_joiners
                and broker not in before.active
                and broker in before.followers
            ):
                what = f"lets broker {broker} join, which is not active"
                self._report(self.joiners_name, key, state, what)

    def _judge_leavers(
        self, key: tuple[int, int, str], before: LeaderState, state: LeaderState, step: StepSeen
    ) -> None:
        """Judges how long those lag whom the leader has begun to propose without; a fetch of the step may be later."""
        fetching = {fetch.broker for fetch in step.fetches}
        if state.leavers and not (before.leavers or step.has_appended or step.is_long):
            for broker in sorted(state.committed - state.leavers - fetching):
                self._judge_stayer(key, state, broker, step.now_ms)
        for broker in sorted(state.leavers - before.leavers):
            known = state.followers.get(broker)
            if known is None or broker in fetching:
                continue
            lag_ms = step.now_ms - known.caught_up_ms
            is_at_end = known.log_end_offset == state.log_end_offset and not step.has_appended
            if is_at_end or lag_ms <= state.lag_time_max_ms:
                what = (
                    f"proposes that broker {broker} leaves, which is at {known.log_end_offset} of "
                    f"{state.log_end_offset} and was caught up {lag_ms} ms ago; it may lag {state.lag_time_max_ms} ms"
                )
                self._report(self.leavers_name, key, state, what)

    def _judge_stayer(self, key: tuple[int, int, str], state: LeaderState, broker: int, now_ms: int) -> None:
        """Judges a member that a new proposal keeps: all that lag leave with one proposal."""
        known = state.followers.get(broker)
        if known is None or known.log_end_offset == state.log_end_offset:
            return
        lag_ms = now_ms - known.caught_up_ms
        if lag_ms > state.lag_time_max_ms:
            what = (
                f"proposes that brokers {sorted(state.leavers)} leave, and keeps broker {broker}, which is at "
                f"{known.log_end_offset} of {state.log_end_offset} and was caught up {lag_ms} ms ago"
            )
            self._report(self.leavers_name, key, state, what)

    def _judge_left_out(self, key: tuple[int, int, str], state: LeaderState, fetch: CountedFetch) -> None:
        """Judges a step of one fetch after which nobody is proposed: its follower may not join, or is a member (ISR-3).

        The high watermark has risen after that was decided, if at all.
        """
        due = max(state.epoch_start_offset, state.high_watermark)
        may_join = state.active.get(fetch.broker) == fetch.broker_epoch and fetch.fetch_offset >= due
        if may_join and state.epoch_start_offset >= 0 and not (state.joiners or state.leavers):
            what = f"does not propose that broker {fetch.broker} joins, which has fetched up to {fetch.fetch_offset}"
            self._report(self.late_name, key, state, f"{what} and had to reach {due}")

    def _report(self, name: str, key: tuple[int, int, str], state: LeaderState, what: str) -> None:
        self._jury.report(name, f"{key[2]}: leader {key[0]} of epoch {state.leader_epoch} {what}")


def _text(progress: Progress) -> str:
    caught_up = "never" if progress.caught_up_ms == NEVER_MS else f"at {progress.caught_up_ms} ms"
    return f"end {progress.log_end_offset} of life {progress.broker_epoch}, caught up {caught_up}"
