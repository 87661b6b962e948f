"""The order of partitions in a follower's fetches: one whose log has grown comes last (KIP-74)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

from cluster.core.events import Event, Response
from cluster.core.messages import FetchPartition, FetchResponse, TopicPartition
from sim.checkers.base import Jury, Life

Asked = tuple[FetchPartition, ...]


class _Fetch(NamedTuple):
    """A fetch with its answer: what was asked, in order, and of which partitions records came."""

    asked: Asked
    brought: frozenset[TopicPartition]


@final
class FetchOrder:
    """Compares each fetch of a follower with the one before to the same leader.

    Of two partitions of both, in the same leader epochs, one whose log has grown by the answer comes after one whose
    log has not: otherwise the first partitions fill each answer, and those behind them starve. Bytes that are not a
    whole batch make no log grow: that batch comes whole only where its partition is the first.
    """

    name = "fetch-order"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # By life and call: the leader of a fetch under way, and what it asks.
        self._open: dict[Life, dict[int, tuple[int, Asked]]] = {}
        # By life and leader: the last fetch that was answered, until the next one.
        self._last: dict[Life, dict[int, _Fetch]] = {}

    def on_sent(self, life: Life, leader: int, call: int, asked: Asked) -> None:
        """Receives a follower's fetch as it leaves."""
        last = self._last.setdefault(life, {}).pop(leader, None)
        if last is not None:
            self._judge(life, last, asked)
        self._open.setdefault(life, {})[call] = leader, asked

    def on_step(self, life: Life, events: Sequence[Event]) -> None:
        """Receives the answers that a follower's core takes in one step."""
        open_calls = self._open.get(life)
        if open_calls is None:
            return
        for event in events:
            if type(event) is Response and event.call in open_calls:
                leader, asked = open_calls.pop(event.call)
                if isinstance(event.body, FetchResponse):
                    brought = frozenset(
                        each.topic_partition for each in event.body.partitions if each.records
                    )
                    self._last[life][leader] = _Fetch(asked, brought)

    def forget(self, life: Life) -> None:
        """Forget the order of a life: its broker begins to follow again, as after a new registration."""
        self._open.pop(life, None)
        self._last.pop(life, None)

    def _judge(self, life: Life, last: _Fetch, asked: Asked) -> None:
        before = {each.topic_partition: each for each in last.asked}
        grown: str | None = None
        for each in asked:
            known = before.get(each.topic_partition)
            is_same = known is not None and (known.topic_id, known.current_leader_epoch) == (
                each.topic_id, each.current_leader_epoch,
            )  # fmt: skip
            if known is None or not is_same:
                continue
            if each.topic_partition in last.brought and each.fetch_offset > known.fetch_offset:
                grown = str(each.topic_partition)
            elif grown is not None:
                what = (
                    f"asks for {grown}, whose log has grown, before {each.topic_partition}, whose log has not"
                )
                self._jury.report(self.name, f"follower {life[0]} {what}")
                return

    def on_end(self, node: int) -> None:
        """Forget the fetches of the node's lives that have ended."""
        for life in [each for each in self._open if each[0] == node]:
            self.forget(life)
