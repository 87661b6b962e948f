"""Judges what consumers ask: the place and the epoch where they are, and the start that they are set to look up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, final

from cluster.core.client.config import OffsetReset
from cluster.core.client.consumer import Start
from cluster.core.client.effects import (
    ConsumerEffect,
    EndOfPartition,
    Fetched,
    PositionReset,
    TopicMissing,
    Truncated,
)
from cluster.core.client.starts import AtTime, BeforeEnd, LookedUp, asked_timestamp
from cluster.core.errors import ErrorCode
from cluster.core.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FetchRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataResponse,
    RequestBody,
    TopicPartition,
)
from sim.checkers.base import Jury

# A consumer and a partition.
Key = tuple[str, str]
# The reason of a new position where the old one was out of range.
OUT_OF_RANGE = "out_of_range"


class Position(NamedTuple):
    """The place of a consumer: the offset that it reads next, and the leader epoch of what it read last, or -1."""

    offset: int
    epoch: int


def _place_of(sought: LookedUp, answers: Mapping[int, int]) -> int | None:
    """Returns the offset of a place by what brokers have answered; None if they have not said it yet."""
    end, start = answers.get(LATEST_TIMESTAMP), answers.get(EARLIEST_TIMESTAMP)
    match sought:
        case BeforeEnd() if sought.count > 0:
            return None if end is None or start is None else max(start, end - sought.count)
        case BeforeEnd():
            return end
        case AtTime():
            found = answers.get(sought.timestamp_ms)
            # No record was as late as that; an end that was told afterwards may be behind one that came meanwhile.
            is_before = found == -1 and next(iter(answers)) == LATEST_TIMESTAMP
            return end if is_before else None if found == -1 else found
        case _:
            return answers.get(asked_timestamp(sought))


@final
class ConsumerPositions:
    """Eight rules for each consumer and partition, by what it has told its user and what it asks brokers.

    A fetch names the offset where the consumer is. With it, it names the leader epoch of the last record that it
    has read, or after a cut the epoch that the cut has left: otherwise the leader could not find where their logs
    part (KIP-320). Where its offset is out of range, it goes on where its `auto.offset.reset` says, as the broker
    names it; with `none` it does not go on. It tells its user that the partition ends here where it has read up to
    the high watermark, and nowhere else: a new leader whose high watermark is below what was read does not know the
    end yet. It says once that a topic is missing, until the topic was there or the reason is another one. Where its
    user sends it to a place that is looked up, it goes on where brokers have said that the place is; a number of
    offsets before the end is not before the log start, and a time is not behind a record that came while it was
    looked up. What was answered is not looked up again. A partition that is paused has nothing for its user: also
    what was on its way comes after the pause.
    """

    name = "consumer-positions"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # What each consumer does where its offset is out of range.
        self._policies: dict[str, OffsetReset] = {}
        # By consumer and partition, as in the next two: where it is, as it has told its user.
        self._positions: dict[Key, Position] = {}
        # The last look-up: its call and its timestamp.
        self._asked: dict[Key, tuple[int, int]] = {}
        # The place that its user has sent it to, until it is there.
        self._sought: dict[Key, LookedUp] = {}
        # The offsets that were answered since it was sent there or was out of range, by timestamp.
        self._found: dict[Key, dict[int, int]] = {}
        # The high watermark of what was read last, unless the user was told of an end there.
        self._unended: dict[Key, int] = {}
        # The offset of the last end that the user was told of.
        self._ends: dict[Key, int] = {}
        # Where the last answer had a damaged batch.
        self._damaged: dict[Key, None] = {}
        # By consumer and topic: why the topic is missing, as the user was told last.
        self._missing: dict[Key, ErrorCode] = {}

    def on_begun(self, consumer: str, policy: OffsetReset) -> None:
        """Receives the begin of a process, which knows nothing of an earlier one; `policy`: auto.offset.reset."""
        for known in (
            self._positions, self._asked, self._sought, self._found, self._unended, self._ends, self._damaged,
            self._missing,
        ):  # fmt: skip
            for key in [each for each in known if each[0] == consumer]:
                del known[key]
        self._policies[consumer] = policy

    def on_sought(self, consumer: str, topic_partition: TopicPartition, start: Start) -> None:
        """Receives where its user sends the consumer: to an offset, or to a place that is looked up."""
        key = consumer, str(topic_partition)
        for known in (self._positions, self._unended, self._ends, self._asked, self._sought, self._found):
            known.pop(key, None)
        if isinstance(start, int):
            self._positions[key] = Position(start, -1)
        else:
            self._sought[key] = start

    def on_damaged(self, consumer: str, partition: str) -> None:
        """Receives that a consumer fetches a damaged batch again: what it has read before that need not be the end."""
        self._damaged[consumer, partition] = None

    def on_told(self, consumer: str, effect: ConsumerEffect) -> None:
        """Receives what the consumer tells its user."""
        match effect:
            case PositionReset():
                self._on_reset((consumer, str(effect.topic_partition)), effect)
            case Fetched():
                read = Position(effect.next_offset, effect.batches[-1].leader_epoch)
                self._positions[consumer, str(effect.topic_partition)] = read
                self._unended[consumer, str(effect.topic_partition)] = effect.high_watermark
            case Truncated():
                cut = Position(effect.to_offset, effect.epoch)
                self._positions[consumer, str(effect.topic_partition)] = cut
                # Other records may come up to the same end.
                self._ends.pop((consumer, str(effect.topic_partition)), None)
            case EndOfPartition():
                self._on_end((consumer, str(effect.topic_partition)), effect.offset)
            case TopicMissing():
                key = consumer, effect.topic
                if self._missing.get(key) is effect.error:
                    self._report(key, f"tells its user again that the topic is missing: {effect.error.name}")
                self._missing[key] = effect.error
            case _:
                pass

    def on_read_while_paused(self, consumer: str, partition: str) -> None:
        """Receives that a user gets records of a partition that is paused."""
        self._report((consumer, partition), "passes on records although its user has paused the partition")

    def _on_end(self, key: Key, offset: int) -> None:
        known, high_watermark = self._positions.get(key), self._unended.pop(key, offset)
        if self._ends.get(key) == offset:
            self._report(key, f"tells its user again that it has read up to the end, {offset}")
        self._ends[key] = offset
        if (known is not None and offset != known.offset) or offset != high_watermark:
            self._report(
                key, f"ends at {offset}; it is at {known}, and {high_watermark} was the end when it read"
            )

    def _judge_end(self, key: Key, position: Position) -> None:
        """Judge whether the user was told of the end before the consumer asks for more."""
        high_watermark = self._unended.pop(key, None)
        if key in self._damaged:
            del self._damaged[key]
            return
        is_told = self._ends.get(key) == position.offset
        if high_watermark == position.offset and not is_told:
            self._report(key, f"has read all below {high_watermark}, and has not told its user")

    def _on_reset(self, key: Key, effect: PositionReset) -> None:
        self._positions[key] = Position(effect.offset, -1)
        self._ends.pop(key, None)
        answers, sought = self._found.pop(key, {}), self._sought.pop(key, None)
        _, timestamp = self._asked.get(key, (-1, None))
        if effect.reason != OUT_OF_RANGE:
            if sought is not None and effect.offset != (place := _place_of(sought, answers)):
                what = f"was sent to {sought}, which is {place} by {answers}, and goes on at {effect.offset}"
                self._report(key, what)
            return
        policy, found = self._policies[key[0]], None if timestamp is None else answers.get(timestamp)
        if policy is OffsetReset.NONE:
            self._report(
                key, f"was out of range and goes on at {effect.offset}; its user wants to decide that"
            )
        elif timestamp != asked_timestamp(policy):
            self._report(key, f"was out of range and asked for {timestamp}; it is set to {policy.value}")
        elif effect.offset != found:
            self._report(key, f"was out of range and goes on at {effect.offset}; the broker named {found}")

    def on_sent(self, consumer: str, call: int, body: RequestBody) -> None:
        """Receives a request as it leaves a client; those of clients that are no consumers are not judged."""
        if consumer not in self._policies:
            return
        if isinstance(body, ListOffsetsRequest):
            key = consumer, str(body.topic_partition)
            self._asked[key] = call, body.timestamp
            if (found := self._found.get(key, {}).get(body.timestamp)) is not None:
                self._report(key, f"looks up {body.timestamp} again, which was answered with {found}")
        elif isinstance(body, FetchRequest):
            for asked in body.partitions:
                key = consumer, str(asked.topic_partition)
                named, known = (
                    Position(asked.fetch_offset, asked.last_fetched_epoch),
                    self._positions.get(key),
                )
                self._judge_end(key, named)
                if known is not None and named != known:
                    what = f"asks for offset {named.offset} after epoch {named.epoch}"
                    self._report(key, f"{what}; it is at {known.offset} after epoch {known.epoch}")

    def on_answered(self, consumer: str, call: int, body: object) -> None:
        """Receives an answer as it reaches a client."""
        if isinstance(body, MetadataResponse):
            for topic in body.topics:
                if topic.error is ErrorCode.NONE:
                    self._missing.pop((consumer, topic.name), None)
        if isinstance(body, ListOffsetsResponse):
            key = consumer, str(body.topic_partition)
            asked, timestamp = self._asked.get(key, (-1, 0))
            # Where a broker knows no end, the look-up is to be repeated; no record is a place as well.
            is_place = body.offset >= 0 or timestamp >= 0
            if asked == call and body.error is ErrorCode.NONE and is_place:
                self._found.setdefault(key, {})[timestamp] = body.offset

    def _report(self, key: Key, what: str) -> None:
        self._jury.report(self.name, f"{key[1]}: {key[0]} {what}")
