"""The metadata of brokers and leaders that a client knows, and the requests for more.

Kafka: Metadata, NetworkClient's updater.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import final

from cluster.core import fencing
from cluster.core.effects import BOOTSTRAP, Effect, LearnEndpoint, Send
from cluster.core.errors import NAMES_LEADER, ErrorCode
from cluster.core.events import TransportError
from cluster.core.messages import (
    NO_LEADER,
    NO_TOPIC_ID,
    BrokerEndpoint,
    FetchPartitionResponse,
    MetadataRequest,
    MetadataResponse,
    ProducePartitionResponse,
    ResponseBody,
    TopicMetadata,
    TopicPartition,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndEpoch:
    """The leader of a partition, and the epoch in which it leads."""

    leader: int
    leader_epoch: int


@dataclass(slots=True, kw_only=True)
class KnownTopic:
    """A topic's partitions: `leaders` holds all of them, with NO_LEADER where there is none."""

    # The metadata offset of the newest answer that named the topic.
    metadata_offset: int
    topic_id: str = NO_TOPIC_ID
    leaders: dict[int, LeaderAndEpoch] = field(default_factory=dict)


@final
class MetadataCache:
    """Brokers, topics and leaders, as the brokers reported them.

    A lower leader epoch is believed only from a newer view of the metadata, in which the topic was created again.
    Otherwise a broker that lags would undo what another one reported (KIP-320).
    """

    def __init__(self) -> None:
        self.cluster_id = ""
        self.brokers: dict[int, BrokerEndpoint] = {}
        self.topics: dict[str, KnownTopic] = {}
        # The errors of topics for which the last answer had no metadata.
        self.errors: dict[str, ErrorCode] = {}
        # Both lists are computed once after each change, because every record needs them.
        self._partitions: dict[str, list[int]] = {}
        self._available: dict[str, list[int]] = {}

    def update(self, response: MetadataResponse) -> list[LearnEndpoint]:
        """Takes over an answer that is no error; returns the endpoints that are new or have changed."""
        had_brokers = bool(self.brokers)
        self._adopt_cluster(response.cluster_id)
        learned = [
            LearnEndpoint(node_id=broker.broker_id, host=broker.host, port=broker.port)
            for broker in response.brokers
            if self.brokers.get(broker.broker_id) != broker
        ]
        # An isolated broker may know no broker at all; then the old addresses are better than none.
        if response.brokers:
            self.brokers = {broker.broker_id: broker for broker in response.brokers}
        for topic in response.topics:
            self._update_topic(topic, response.metadata_offset)
        self._forget_lists()
        assert self.brokers or not had_brokers, len(response.brokers)
        return learned

    def _adopt_cluster(self, cluster_id: str) -> None:
        """Forgets all topics where another cluster has taken the addresses: its offsets and epochs are its own."""
        if self.cluster_id not in ("", cluster_id) and cluster_id:
            self.topics.clear()
            self.errors.clear()
        self.cluster_id = cluster_id or self.cluster_id

    def _update_topic(self, topic: TopicMetadata, metadata_offset: int) -> None:
        if topic.error is not ErrorCode.NONE:
            self.errors[topic.name] = topic.error
            if topic.error is not ErrorCode.LEADER_NOT_AVAILABLE:
                self.topics.pop(topic.name, None)
            return
        self.errors.pop(topic.name, None)
        known = self.topics.setdefault(topic.name, KnownTopic(metadata_offset=metadata_offset))
        is_newer_view = metadata_offset > known.metadata_offset
        known.metadata_offset = max(metadata_offset, known.metadata_offset)
        if known.topic_id != NO_TOPIC_ID and not fencing.is_same_topic(topic.topic_id, known.topic_id):
            # A broker that lags still knows an earlier topic of the name, whose epochs may be higher.
            if not is_newer_view:
                return
            known.leaders.clear()
        known.topic_id = topic.topic_id
        for partition in topic.partitions:
            old = known.leaders.get(partition.partition)
            # No view takes an epoch back, not even a newer one: a refusal may have named a leader that is newer still.
            if old is None or not fencing.is_earlier_leader(partition.leader_epoch, old.leader_epoch):
                known.leaders[partition.partition] = LeaderAndEpoch(
                    leader=partition.leader, leader_epoch=partition.leader_epoch
                )

    def hint(self, refusal: ProducePartitionResponse | FetchPartitionResponse, topic_id: str) -> bool:
        """Takes over a newer leader that a refusal names (KIP-951); returns whether it is new and its address known.

        `topic_id` is the one that the request has named: leaders of an earlier topic of the name are no news.
        """
        number = refusal.topic_partition.partition
        known = self.topics.get(refusal.topic_partition.topic)
        if (
            known is None
            or refusal.error not in NAMES_LEADER
            or not fencing.is_same_topic(topic_id, known.topic_id)
        ):
            return False
        old = known.leaders.get(number)
        if old is None or refusal.leader_id == NO_LEADER:
            return False
        if not fencing.is_news_of_leader(refusal.leader_epoch, old.leader_epoch):
            return False
        known.leaders[number] = LeaderAndEpoch(leader=refusal.leader_id, leader_epoch=refusal.leader_epoch)
        self._forget_lists()
        return refusal.leader_id in self.brokers

    def leader(self, topic_partition: TopicPartition) -> LeaderAndEpoch | None:
        """Returns the partition's leader; None where it has none, or none whose address is known."""
        known = self.topics.get(topic_partition.topic)
        found = None if known is None else known.leaders.get(topic_partition.partition)
        return found if found is not None and found.leader in self.brokers else None

    def topic_id(self, topic: str) -> str:
        """Returns the topic's id, NO_TOPIC_ID where the topic is not known."""
        known = self.topics.get(topic)
        return NO_TOPIC_ID if known is None else known.topic_id

    def _forget_lists(self) -> None:
        self._partitions.clear()
        self._available.clear()

    def partitions(self, topic: str) -> list[int]:
        """Returns all partitions in order; none where the topic is not known. The list is the cache's own."""
        found = self._partitions.get(topic)
        if found is None:
            known = self.topics.get(topic)
            found = self._partitions[topic] = [] if known is None else sorted(known.leaders)
        return found

    def available_partitions(self, topic: str) -> list[int]:
        """Returns the partitions whose leader can be reached; all where none can. The list is the cache's own."""
        found = self._available.get(topic)
        if found is None:
            every = self.partitions(topic)
            led = [number for number in every if self.leader(TopicPartition(topic, number)) is not None]
            found = self._available[topic] = led or every
        return found


@final
class MetadataUpdater:
    """Asks for metadata, one request at a time, each to another broker; to a bootstrap address where all failed."""

    def __init__(self, *, retry_backoff_ms: int, request_timeout_ms: int, max_age_ms: int) -> None:
        self.cache = MetadataCache()
        self._retry_backoff_ms = retry_backoff_ms
        self._request_timeout_ms = request_timeout_ms
        self._max_age_ms = max_age_ms
        self._topics: dict[str, None] = {}
        self._call: int | None = None
        self._is_wanted = False
        # The end of the back-off: no request is sent before.
        self._allowed_ms = 0
        self._fresh_until_ms: int | None = None
        self._turn = 0
        self._failures = 0
        # The turns that were given since all brokers have failed.
        self._late_turn = 0

    def watch(self, topics: Iterable[str]) -> None:
        """Includes these topics in each request from now on."""
        for topic in topics:
            if topic not in self._topics:
                self._topics[topic] = None
                self._is_wanted = True

    def watch_only(self, topics: Iterable[str]) -> None:
        """Includes these topics in each request from now on, and no others."""
        wanted = dict.fromkeys(topics)
        self._is_wanted = self._is_wanted or not wanted.keys() <= self._topics.keys()
        self._topics = wanted

    def request(self) -> None:
        """Asks for metadata at the next `poll` after the back-off, because it is wrong or not enough."""
        self._is_wanted = True

    def poll(self, now_ms: int, call: int) -> Send | None:
        """Returns a request under the number `call`, or None while none is due."""
        assert self._call is None or call > self._call, (call, self._call)
        if self._fresh_until_ms is not None and now_ms >= self._fresh_until_ms:
            self._is_wanted = True
        if self._call is not None or not self._is_wanted or now_ms < self._allowed_ms:
            return None
        self._is_wanted = False
        self._call = call
        return Send(
            to=self.next_node(),
            call=call,
            body=MetadataRequest(topics=tuple(self._topics)),
            timeout_ms=self._request_timeout_ms,
        )

    def count_failure(self, *, has_failed: bool) -> None:
        """Counts a failed request to `next_node`: after one for each broker the bootstrap address has a turn too."""
        self._failures = self._failures + 1 if has_failed else 0
        if not has_failed:
            self._late_turn = 0

    def next_node(self) -> int:
        """Returns a broker, another one each time; BOOTSTRAP where none is known, and in turn once all have failed.

        Not it alone: the address may be that of a broker that is gone for good.
        """
        known = sorted(self.cache.brokers)
        if not known:
            return BOOTSTRAP
        if self._failures >= len(known):
            late_turn = self._late_turn % (len(known) + 1)
            self._late_turn += 1
            if late_turn == 0:
                return BOOTSTRAP
        self._turn += 1
        return known[self._turn % len(known)]

    def owns(self, call: int) -> bool:
        return call == self._call

    def on_response(self, now_ms: int, body: ResponseBody | TransportError) -> list[Effect]:
        """Takes the answer to the pending request; after a failure the next one is sent after the back-off."""
        assert self._call is not None, "no request is pending"
        self._call = None
        self._allowed_ms = now_ms + self._retry_backoff_ms
        if not isinstance(body, MetadataResponse) or body.error is not ErrorCode.NONE:
            self.count_failure(has_failed=True)
            self._is_wanted = True
            return []
        self.count_failure(has_failed=False)
        self._fresh_until_ms = now_ms + self._max_age_ms
        return list(self.cache.update(body))

    def next_wake_ms(self) -> int | None:
        """Returns the latest time of the next `poll`; None while an answer is awaited, or nothing is due."""
        if self._call is not None:
            return None
        return self._allowed_ms if self._is_wanted else self._fresh_until_ms
