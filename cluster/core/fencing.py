"""Every comparison of identities and epochs, one function each: who sent this, for which topic, in which epoch?

A request that was meant for another cluster, for an earlier life of a broker, for a deleted topic of the same name or
for an earlier leader is refused here, and nothing of it is obeyed (KIP-320, KIP-497, KIP-516, KIP-903). The
checks raise ClusterError with Kafka's code.

| compared | function |
| --- | --- |
| cluster id | `check_cluster` |
| sender of a request between nodes | `check_names_itself` |
| broker epoch | `check_broker_epoch`, `check_life`, `check_fetch_of_present_life`, `is_same_life` |
| broker epoch of a record | `is_change_of_life`, `is_registration_read`, `is_later_life` |
| broker epoch of one's own | `is_answer_to_life`, `is_registered_since` |
| incarnation | `check_incarnation`, `check_life`, `is_same_incarnation` |
| topic id | `check_topic_id`, `check_known_topic_id`, `is_same_topic`, `is_removal_of`, `is_topic_of_batches` |
| leader epoch | `check_leader_epoch`, `is_same_leader_epoch`, `is_newer_leader_epoch` |
| leader epoch that a client is told | `is_earlier_leader`, `is_news_of_leader` |
| leader epoch of a proposal | `check_proposal_of_leader_epoch`, `check_proposal_not_ahead` |
| topic id and leader epoch | `is_same_log` |
| proposals of one leader epoch | `check_proposal_is_latest` |
| partition epoch | `check_proposal_builds_on`, `is_older_partition_epoch`, `is_newer_partition_epoch` |
"""

from __future__ import annotations

from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import NO_EPOCH, NO_TOPIC_ID, Header, TopicPartition

# The broker epoch and the incarnation of a broker's process.
Life = tuple[int, str]
# The topic id and the leader epoch of a replica: the history that an offset in its log belongs to.
LogView = tuple[str, int]
# The errors of these checks, by which a node's log tells who was refused. NOT_LEADER_OR_FOLLOWER is none of them: every
# client gets it whose metadata is old.
REFUSALS = frozenset(
    {
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    }
)


def check_cluster(sender: int, named: str, own: str) -> None:
    """Refuses a node of another cluster (G-4). A node that was never registered names none, and is admitted."""
    if named and own and named != own:
        raise ClusterError(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"node {sender} is of cluster {named}, not {own}"
        )


def check_names_itself(header: Header | None, broker_id: int, broker_epoch: int) -> None:
    """Refuses a request of a broker without a header, or with that of another broker or of another life."""
    if header is None:
        raise ClusterError(ErrorCode.INVALID_REQUEST, f"broker {broker_id} sent no header")
    if (header.broker_id, header.broker_epoch) != (broker_id, broker_epoch):
        raise ClusterError(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker_id} of epoch {broker_epoch} sent the header of broker {header.broker_id} of epoch "
            f"{header.broker_epoch}",
        )


def check_broker_epoch(broker_id: int, named: int, current: int) -> None:
    """Refuses a request that is not from the registered life of the broker (KR-CTL-4): the controller knows it."""
    if named < 0 or named != current:
        raise ClusterError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has epoch {current}, not {named}"
        )


def check_life(broker_id: int, named: Life, known: Life) -> None:
    """Refuses a follower of an earlier life than that which this broker knows, or another process in the same one.

    This broker may lag, and not know the newest life yet.
    """
    is_other_process = named[0] == known[0] and named[1] != known[1]
    if named[0] < known[0] or is_other_process:
        raise ClusterError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is in life {known}, not {named}"
        )


def check_fetch_of_present_life(broker_id: int, named: int, current: int) -> None:
    """Refuses a fetch from an earlier life: it does not say what the present one holds (LED-7, KAFKA-15221)."""
    if named < current:
        raise ClusterError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker_id} has a newer epoch than {named}"
        )


def is_same_life(named: int, current: int) -> bool:
    """Returns whether a proposed member of the ISR is in the life that the leader saw fetching (KIP-903)."""
    return named == current


def is_change_of_life(named: int, registered: int) -> bool:
    """Returns whether a change in the metadata log is of the registered life of its broker; none is of another."""
    return named == registered


def is_registration_read(next_offset: int, broker_epoch: int) -> bool:
    """Returns whether a broker that reads on at `next_offset` has read its registration (BRK-2).

    A broker epoch is the offset of its registration.
    """
    return next_offset > broker_epoch


def is_later_life(registered: int, own: int) -> bool:
    """Returns whether the metadata has a later life of this broker than the one that this process was told."""
    return registered > own


def is_answer_to_life(asked: int, own: int) -> bool:
    """Returns whether a heartbeat that is answered now was sent in the present life."""
    return asked == own


def is_registered_since(own: int, superseded: int) -> bool:
    """Returns whether this process was registered again after another one had taken over its id."""
    return own > superseded


def check_incarnation(broker_id: int, named: str, registered: str) -> None:
    """Refuses another process than that which was registered under the broker's id and epoch."""
    if named != registered:
        raise ClusterError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is incarnation {registered}, not {named}"
        )


def is_same_incarnation(named: str, registered: str) -> bool:
    """Returns whether a registration repeats the one before: then it gets the same broker epoch again (BRK-1)."""
    return named == registered


def check_topic_id(topic_partition: TopicPartition, named: str, held: str, *, may_omit: bool = True) -> None:
    """Refuses a request about another topic of the same name than the one whose log is here (C1, KIP-516).

    A client that names no id means whichever topic has the name. A follower may not omit it: it would copy the log of
    another topic.
    """
    if named != held and not (may_omit and named == NO_TOPIC_ID):
        raise ClusterError(
            ErrorCode.INCONSISTENT_TOPIC_ID, f"{topic_partition} is of topic {held}, not {named}"
        )


def check_known_topic_id(topic_partition: TopicPartition, named: str, known: str) -> None:
    """Refuses a request about a topic that the metadata does not have under this name and id (KIP-516)."""
    if named != known:
        raise ClusterError(
            ErrorCode.UNKNOWN_TOPIC_ID, f"{topic_partition} is of topic {known or 'none'}, not {named}"
        )


def is_same_topic(named: str, held: str) -> bool:
    """Returns whether two ids are of one topic; a deleted topic and the next of its name have different ids."""
    return named == held


def is_removal_of(named: str, held: str) -> bool:
    """Returns whether the removal of a topic in the metadata log is of the one that has the name now."""
    return named == held


def is_topic_of_batches(named: str, sent_to: str) -> bool:
    """Returns whether a producer's next batch is for the topic that it has sent its last ones to.

    The brokers know nothing of it in another topic of the name, and its sequence begins again.
    """
    return named == sent_to


def check_leader_epoch(topic_partition: TopicPartition, named: int, current: int) -> None:
    """Refuses a request that names another leader epoch than the replica's (LED-1, EPC-4, KIP-320).

    A request without an epoch is not checked.
    """
    if named in (NO_EPOCH, current):
        return
    code = ErrorCode.FENCED_LEADER_EPOCH if named < current else ErrorCode.UNKNOWN_LEADER_EPOCH
    raise ClusterError(code, f"{topic_partition} is at leader epoch {current}, not {named}")


def is_same_leader_epoch(one: int, other: int) -> bool:
    """Returns whether what was learned in the one epoch holds in the other: offsets mean nothing across epochs."""
    return one == other


def is_same_log(one: LogView, other: LogView) -> bool:
    """Returns whether an offset of the one history means the same record in the other (PRO-5, FET-4, C1).

    What waits, or was on its way, in another topic of the same name or in another leader epoch must not be answered.
    """
    return one == other


def is_newer_leader_epoch(decided: int, known: int) -> bool:
    """Returns whether the decided leader epoch begins a new role, rather than confirms the present one (ROL-3)."""
    return decided > known


def is_earlier_leader(told: int, known: int) -> bool:
    """Returns whether a client is told of an earlier leader than it knows, by a broker that lags."""
    return told < known


def is_news_of_leader(told: int, known: int) -> bool:
    """Returns whether a refusal names a newer leader than the client knows (KIP-951)."""
    return told > known


def check_proposal_not_ahead(
    topic_partition: TopicPartition, named: tuple[int, int], current: tuple[int, int]
) -> None:
    """Refuses a sender whose (leader epoch, partition epoch) is ahead.

    This controller is the stale one then (KAFKA-14154).
    """
    if named[0] > current[0] or named[1] > current[1]:
        raise ClusterError(ErrorCode.NOT_CONTROLLER, f"{topic_partition}: the sender is ahead")


def check_proposal_of_leader_epoch(topic_partition: TopicPartition, named: int, current: int) -> None:
    """Refuses the proposal of an older leader epoch (CTL-1)."""
    if named < current:
        raise ClusterError(ErrorCode.FENCED_LEADER_EPOCH, f"{topic_partition} is at leader epoch {current}")


def check_proposal_builds_on(topic_partition: TopicPartition, named: int, current: int) -> None:
    """Refuses a proposal that does not build on the present ISR: changes are compare-and-set (CTL-1)."""
    if named < current:
        raise ClusterError(
            ErrorCode.INVALID_UPDATE_VERSION, f"{topic_partition} is at partition epoch {current}"
        )


def check_proposal_is_latest(topic_partition: TopicPartition, attempt: int, decided: int) -> None:
    """Refuses a copy of a proposal that is decided, or one that the leader sent before it.

    Its leader may have taken a proposal back that was refused. A copy of that may be acceptable when it comes late, and
    the controller would then count on a member of which the leader does not know.
    """
    if attempt <= decided:
        raise ClusterError(
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            f"{topic_partition}: proposal {attempt} comes after {decided} was decided",
        )


def is_older_partition_epoch(decided: int, known: int) -> bool:
    """Returns whether a registration or an answer is out of date, and so ignored (ROL-1, ISR-6)."""
    return decided < known


def is_newer_partition_epoch(decided: int, known: int) -> bool:
    """Returns whether a committed ISR replaces the known one (ISR-7)."""
    return decided > known
