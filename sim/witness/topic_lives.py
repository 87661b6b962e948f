"""The lives of a topic's name, and the life that each replica belongs to: a topic may be deleted and created again.

Checkers judge the present life only. What a broker that lags does to its log of a deleted topic is nobody's loss.
"""

from __future__ import annotations

from functools import cache
from typing import final

from cluster.core.broker.logs import text_topic_id

NO_LIFE = ""


@cache
def _topic_of(partition: str) -> str:
    return partition.rpartition("-")[0]


@final
class TopicLives:
    """The id of the topic that has each name now, by the controller's log, and the id that each replica has."""

    def __init__(self) -> None:
        # Whether a step deletes a topic, so that the values of requests and answers have to be read.
        self.may_end = False
        # NO_LIFE after a deletion; a name that was never reported has no entry, and is not compared.
        self._present: dict[str, str] = {}
        self._deleted: set[str] = set()
        self._held: dict[tuple[int, str], str] = {}
        # By record served or acknowledged: the life of the topic that held it.
        self._served: dict[tuple[str, int, str], str] = {}
        self._acknowledged: dict[str, str] = {}

    def begin(self, topic: str, topic_id: str) -> None:
        self._present[topic] = topic_id

    def end(self, topic: str) -> None:
        assert self._present.get(topic, "?") != NO_LIFE, topic
        self._present[topic] = NO_LIFE
        self._deleted.add(topic)

    def exists(self, topic: str) -> bool:
        return self._present.get(topic, NO_LIFE) != NO_LIFE

    def hold(self, broker: int, partition: str, topic_id: str) -> bool:
        """Note the topic of a broker's replica. Returns whether it is another one than before."""
        before = self._held.get((broker, partition))
        self._held[broker, partition] = topic_id
        return before is not None and before != topic_id

    def is_present(self, broker: int, partition: str) -> bool:
        """Whether the broker's replica is of the topic that has the name now."""
        present = self._present.get(_topic_of(partition))
        return present is None or (
            present != NO_LIFE and self._held.get((broker, partition), present) == present
        )

    def may_be_present(self, partition: str, written_id: str | None) -> bool:
        """Whether a log whose `partition.metadata` has that id, or has none, may be of the topic that exists now."""
        present = self._present.get(_topic_of(partition))
        return present is None or (present != NO_LIFE and written_id in (None, text_topic_id(present)))

    def is_named(self, partition: str, topic_id: str) -> bool:
        """Whether a request that names `topic_id`, or none, may be about the topic that has the name now."""
        present = self._present.get(_topic_of(partition))
        return present is None or topic_id in ("", present)

    def note_acknowledged(self, broker: int, partition: str, value: str, topic_id: str = "") -> None:
        """Note in which life of the topic a value was acknowledged last; `topic_id` as the request has it.

        In the turn of the answer the broker's replica may have become one of the next topic.
        """
        self._acknowledged[value] = topic_id or self._held.get((broker, partition), NO_LIFE)

    def note_served(self, broker: int, partition: str, offset: int, value: str) -> None:
        self._served[partition, offset, value] = self._held.get((broker, partition), NO_LIFE)

    def was_acknowledged_by_present(self, partition: str, value: str) -> bool:
        """Whether the acknowledgement of a value still binds: that of a deleted topic does not."""
        return self._is_now(partition, self._acknowledged.get(value))

    def was_read_from_present(self, partition: str, offset: int, value: str) -> bool:
        return self._is_now(partition, self._served.get((partition, offset, value)))

    def was_deleted(self, partition: str) -> bool:
        """Whether a topic of that name was ever deleted: a reader's position may be from the one before."""
        return _topic_of(partition) in self._deleted

    def _is_now(self, partition: str, topic_id: str | None) -> bool:
        present = self._present.get(_topic_of(partition))
        return present is None or topic_id is None or topic_id == present
