"""What followers take over from an answer beside its records: the leader's high watermark, and its log start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple, final

from cluster.core.effects import Stop
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Response
from cluster.core.messages import FetchPartition, FetchPartitionResponse, FetchResponse, TopicPartition
from cluster.core.replica.follower import FetchState, Follower
from cluster.core.replica.replica import Replica
from sim.checkers.base import Jury, Life
from sim.checkers.cut_logs import cut_log, wrong_cut
from storage.batch import HEADER_SIZE, LOG_OVERHEAD
from storage.log import PartitionLog

# After these the follower goes on at once: it uses the answer, cuts its log, or starts it again.
_USED = frozenset({ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE})
# The base offset of a batch, the number of bytes that follow it, and the leader epoch, which is the first of those.
_BATCH_START = Struct(">qii")


class Asked(NamedTuple):
    """What a fetch states of one partition, and the follower that it is for; None if the broker follows no more."""

    partition: FetchPartition
    follower: Follower | None


class Marks(NamedTuple):
    """The marks of a follower's log after the step that took an answer."""

    log_start: int
    high_watermark: int
    log_end: int


@final
class AdoptedMarks:
    """Judges a follower by each answer that it used, with records or without.

    It adopts the leader's high watermark, limited to its own log, and then a log start above its own, limited to that
    high watermark (FET-5, FET-13). Who does so with records only serves old records, and keeps them, for as long as
    nobody writes. It cuts its log, or drops an epoch without records, where its leader does not have that, and begins
    again only where its leader's log begins. After a refusal it waits for `replica.fetch.backoff.ms` before it asks for
    the partition again, as after records that were damaged on the way: else it would ask without rest. Where its leader
    epoch is over it asks no more in that one (FET-10).
    """

    name = "adopted-marks"
    haste_name = "hasty-followers"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # What was asked of each partition, by life and call, until it is answered.
        self._asked: dict[Life, dict[int, Mapping[TopicPartition, Asked]]] = {}

    def on_sent(
        self,
        life: Life,
        call: int,
        asked: Sequence[FetchPartition],
        replicas: Mapping[TopicPartition, Replica],
    ) -> None:
        """Receives a follower's fetch as it leaves the core, of which `replicas` are at the end of its step."""
        known = [(each, replicas.get(each.topic_partition)) for each in asked]
        self._asked.setdefault(life, {})[call] = {
            each.topic_partition: Asked(each, None if replica is None else replica.follower)
            for each, replica in known
        }

    def on_step(
        self,
        life: Life,
        events: Sequence[Event],
        effects: Sequence[object],
        replicas: Mapping[TopicPartition, Replica],
        now_ms: int,
    ) -> None:
        """Judge a step that took nothing but an answer; `replicas` are as it has left them."""
        if any(type(effect) is Stop for effect in effects):
            # The last disk has failed, and the rest of the answer is not used.
            return
        calls = self._asked.get(life, {})
        for event in events:
            if type(event) is not Response or event.call not in calls:
                continue
            asked = calls.pop(event.call)
            if len(events) > 1 or not isinstance(event.body, FetchResponse):
                continue
            for answer in event.body.partitions:
                about, replica = asked.get(answer.topic_partition), replicas.get(answer.topic_partition)
                if about is None or replica is None:
                    continue
                if what := _haste(about, answer, replica, now_ms):
                    self._jury.report(self.haste_name, f"{answer.topic_partition}: follower {life[0]} {what}")
                self._judge_changed(life[0], about, answer, replica)
                if not _is_used(about, answer, replica, now_ms):
                    continue
                log = replica.log
                if answer.diverging is None:
                    marks = Marks(log.log_start_offset, log.high_watermark, log.log_end_offset)
                    self._judge(life[0], answer, marks)
                elif log.log_end_offset == about.partition.fetch_offset:
                    starts = [(each[0], each[1]) for each in log.epochs.entries]
                    self._judge_epochs(life[0], answer, starts, log.log_end_offset)
                    if starts and _is_cut_at_once(log):
                        self._judge_cut(life[0], about.partition, answer.topic_partition, starts[-1][0])

    def _judge(self, broker: int, answer: FetchPartitionResponse, marks: Marks) -> None:
        for what in findings(answer.high_watermark, answer.log_start_offset, marks):
            self._jury.report(self.name, f"{answer.topic_partition}: follower {broker} {what}")

    def _judge_changed(
        self, broker: int, about: Asked, answer: FetchPartitionResponse, replica: Replica
    ) -> None:
        """Judge the log of a follower whose answer made it cut its log, or begin again."""
        asked, follower = about.partition, replica.follower
        is_same = follower is about.follower and replica.view == (asked.topic_id, asked.current_leader_epoch)
        if follower is None or not is_same or follower.state is FetchState.FAILED:
            return
        # Most answers only bring records. What has not changed is judged elsewhere.
        is_cut = answer.diverging is not None or answer.error is ErrorCode.OFFSET_OUT_OF_RANGE
        if not is_cut or replica.log.log_end_offset == asked.fetch_offset:
            return
        after = cut_log(replica.log)
        if after is not None and (what := wrong_cut(asked, answer, after)):
            self._jury.report(self.name, f"{answer.topic_partition}: follower {broker} {what}")

    def _judge_epochs(
        self, broker: int, answer: FetchPartitionResponse, starts: Sequence[tuple[int, int]], log_end: int
    ) -> None:
        assert answer.diverging is not None
        told = (answer.diverging.epoch, answer.diverging.end_offset)
        if what := kept_epoch(told, starts, log_end):
            self._jury.report(self.name, f"{answer.topic_partition}: follower {broker} {what}")

    def _judge_cut(
        self, broker: int, asked: FetchPartition, topic_partition: TopicPartition, epoch: int
    ) -> None:
        """Report a follower whose log is as it was, although it has parted from its leader's (EPC-2)."""
        if epoch == asked.last_fetched_epoch:
            what = f"cuts nothing off its log, which has parted from its leader's: it ends at {asked.fetch_offset}"
            self._jury.report(self.name, f"{topic_partition}: follower {broker} {what}, in epoch {epoch}")

    def on_end(self, node: int) -> None:
        """Forget the fetches of the node's lives that have ended."""
        for life in [each for each in self._asked if each[0] == node]:
            del self._asked[life]


def _is_cut_at_once(log: PartitionLog) -> bool:
    """Whether a cut of the log is seen in its step.

    A cut that deletes many segments is done in parts, of which one with empty segments changes no end. Where much is to
    be read first, the place of the cut among it, nothing changes until that is done.
    """
    segments, truncation = log.local.segments, log.truncation
    is_short = log.log_end_offset - segments.first_base_offset <= truncation.batches_a_slice
    return bool(is_short and not truncation.is_preparing and segments.active.size_bytes)


def _haste(about: Asked, answer: FetchPartitionResponse, replica: Replica, now_ms: int) -> str:
    """Returns what is wrong if the follower, still where it was when it asked, asks again too soon; else nothing.

    Where records were appended in part or not at all, a batch was damaged on the way.
    """
    asked, follower = about.partition, replica.follower
    if follower is None or follower is not about.follower:
        return ""
    if replica.view != (asked.topic_id, asked.current_leader_epoch):
        return ""
    if answer.error is ErrorCode.FENCED_LEADER_EPOCH:
        is_over = follower.state is not FetchState.FETCHING
        return "" if is_over else f"goes on in epoch {follower.leader_epoch}, which its leader calls over"
    if replica.log.log_end_offset != asked.fetch_offset or not follower.is_ready(now_ms):
        return ""
    if answer.error not in _USED:
        return f"asks again at once after {answer.error.name}, without its back-off"
    is_good = answer.error is ErrorCode.NONE and answer.diverging is None
    if is_good and _has_batch(answer.records, asked.current_leader_epoch):
        return "asks again at once for records that it could not append, without its back-off"
    return ""


def _has_batch(records: bytes, leader_epoch: int) -> bool:
    """Whether the first batch is whole, and of an epoch that the fetch may bring: a limit cuts what it ends within."""
    if len(records) < HEADER_SIZE:
        return False
    _, following_bytes, epoch = _BATCH_START.unpack_from(records)
    return bool(LOG_OVERHEAD + following_bytes <= len(records) and epoch <= leader_epoch)


def _is_used(about: Asked, answer: FetchPartitionResponse, replica: Replica, now_ms: int) -> bool:
    """Whether the follower is still in the epoch of its fetch, and at the log end of it or just beyond.

    A broker that was registered again begins to follow again, perhaps in the same epoch, and uses no answer to a fetch
    from before.
    """
    asked, follower = about.partition, replica.follower
    is_good = answer.error is ErrorCode.NONE
    if follower is None or follower is not about.follower or not is_good or not follower.is_ready(now_ms):
        return False
    if replica.view != (asked.topic_id, asked.current_leader_epoch):
        return False
    if answer.diverging is not None:
        return True
    appended = replica.log.log_end_offset - asked.fetch_offset
    return appended > 0 if answer.records else appended == 0


def kept_epoch(told: tuple[int, int], starts: Sequence[tuple[int, int]], log_end: int) -> str:
    """Returns which epoch without records a follower keeps, although its leader does not have it; empty if none.

    `told` is the leader's greatest epoch that is at most the follower's, and its end; `starts` are the epochs that the
    follower knows, with their start offsets, after an answer that left its log as it was. Each round removes an epoch,
    also where no record is cut (KAFKA-10706): the follower would get the same answer for ever.
    """
    later = [(epoch, start) for epoch, start in starts if epoch > told[0]]
    # Where records have to go too, that may take several rounds.
    if not later or told[1] < log_end or later[0][1] < log_end:
        return ""
    return f"keeps epoch {later[0][0]} without records; its leader has none after {told[0]}, which ends at {told[1]}"


def findings(high_watermark: int, log_start: int, marks: Marks) -> list[str]:
    """Returns what is wrong with a follower's marks after an answer that names these of the leader, if anything.

    A look for its place may move a high watermark down to the start of the batch that holds it: how far it has risen
    below the end of the log is not judged.
    """
    found: list[str] = []
    if high_watermark >= marks.log_end > marks.high_watermark:
        found.append(f"stays at high watermark {marks.high_watermark}; its leader's is {high_watermark}")
    if 0 <= high_watermark < marks.high_watermark and marks.log_start < marks.high_watermark:
        found.append(f"has high watermark {marks.high_watermark}, above its leader's of {high_watermark}")
    if min(log_start, marks.high_watermark) > marks.log_start:
        found.append(f"has a log from {marks.log_start} on; that of its leader begins at {log_start}")
    return found
