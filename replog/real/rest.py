"""Waits until the healed cluster of a run is at rest, and says what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import final

from cluster.core.messages import TopicPartition
from replog.real.admin import Place, RunAdmin
from replog.real.ground import Ground
from replog.real.watch import Watch
from sim.judgement import MOST_WAITS

LOOK_S = 0.1
Places = Mapping[tuple[TopicPartition, int], Place]


def partition_lacks(
    isr: Sequence[int], leader: int, replicas: int, topic_partition: TopicPartition, places: Places
) -> str:
    """Returns what a partition lacks to be at rest; empty if nothing."""
    if leader < 0:
        return "has no leader"
    if len(isr) < replicas:
        return f"only {list(isr)} are in sync"
    found = {broker: places.get((topic_partition, broker)) for broker in isr}
    missing = [broker for broker, place in found.items() if place is None]
    if missing:
        return f"broker {missing[0]} has no replica"
    ends = {broker: tuple(place) for broker, place in found.items() if place is not None}
    if len({value for end in ends.values() for value in end}) > 1:
        return f"log end and high watermark differ: {ends}"
    return ""


@final
class Rest:
    """Looks at nodes, replicas and clients until all serve and all records are everywhere."""

    def __init__(
        self, watch: Watch, admin: RunAdmin, replicas: Mapping[str, int],
        partitions: Sequence[TopicPartition], ground: Ground,
    ) -> None:  # fmt: skip
        """`replicas` has the number of replicas of each topic."""
        self._watch, self._admin, self._replicas, self._partitions = watch, admin, replicas, partitions
        self._ground = ground
        self.places: Places = {}

    async def wait(self, within_us: int, now_us: Callable[[], int]) -> str:
        """Wait until nothing is missing. Returns what still is after `within_us` without progress, empty if nothing."""
        begun_us = now_us()
        end_us, last_us = begun_us + within_us, begun_us + MOST_WAITS * within_us
        furthest: dict[object, int] = {}
        while lacking := await self._lacking():
            reached = self._reached()
            if any(value > furthest.get(key, 0) for key, value in reached.items()):
                end_us = min(now_us() + within_us, last_us)
            furthest = {key: max(value, furthest.get(key, 0)) for key, value in reached.items()}
            if now_us() >= end_us:
                return f"{(now_us() - begun_us) / 1e6:.1f} s after everything was healed {lacking}"
            await asyncio.sleep(LOOK_S)
        return ""

    def _reached(self) -> dict[object, int]:
        """Returns numbers that grow with progress."""
        reached: dict[object, int] = {key: sum(place) for key, place in self.places.items()}
        reached["serving"] = len(self._ground.serving)
        for consumer in self._ground.consumers:
            reached |= {(consumer.name, name): at for name, at in consumer.positions.items()}
        return reached

    async def _lacking(self) -> str:
        for producer in self._ground.producers:
            if not producer.is_done:
                return f"{producer.name} still waits for answers"
        if lacking := self._admin.open_request or self._ground.lacking():
            return lacking
        self.places = await self._admin.places()
        ghost, lives = self._watch.ghost, self._watch.lives
        present = [each for each in self._partitions if lives.exists(each.topic)]
        for each in present:
            state, replicas = ghost.partition(str(each)), self._replicas[each.topic]
            if lacking := partition_lacks(state.isr, state.leader, replicas, each, self.places):
                return f"{each}: {lacking}"
        for consumer in self._ground.consumers:
            for each in present:
                end = self.places[each, ghost.partition(str(each)).leader].high_watermark
                position = consumer.positions.get(str(each), 0)
                if each.topic == consumer.model.topic and position < end:
                    return f"{consumer.name} has read {each} up to {position} only"
        return ""
