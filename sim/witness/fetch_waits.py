"""Shows the checker of waiting fetches what a step of a broker has brought them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

from cluster.core.broker.broker import Broker
from cluster.core.effects import Observe, Reply, Stop
from cluster.core.events import Event, Request
from cluster.core.messages import FetchPartition, FetchRequest, FetchResponse, TopicPartition
from cluster.core.replica.fetch import ParkedFetch
from cluster.core.replica.replica import Replica
from sim.checkers.base import Jury
from sim.checkers.fetch_waits import FetchWaits

# What brings records: to followers, and to consumers.
_APPENDED, _COMMITTED = "replica.appended", "replica.high_watermark"


@final
class FetchWaitWitness:
    """Watches the brokers that run."""

    def __init__(self, jury: Jury) -> None:
        self._waits = FetchWaits(jury)
        # By node: the parked fetches that searched as what they wait for came.
        self._searching: dict[str, dict[int, ParkedFetch]] = {}

    def on_step(self, node: str, core: Broker, events: Sequence[Event], effects: Sequence[object]) -> None:
        """Receives what a broker's core took in one step, and the effects of that."""
        moved: dict[tuple[str, str], None] = {}
        for effect in effects:
            if type(effect) is Observe:
                if effect.kind in (_APPENDED, _COMMITTED):
                    moved[effect.kind, str(dict(effect.fields)["topic_partition"])] = None
            elif type(effect) is Stop:
                return
        first = events[0]
        if len(events) == 1 and type(first) is Request and isinstance(first.body, FetchRequest):
            self._look_at_answer(node, core, first.call, first.body, effects)
        if node in self._searching:
            self._look_at_searched(node, core)
        if moved:
            for replica in core.replicas().values():
                for kind in (_APPENDED, _COMMITTED):
                    if (kind, replica.name) in moved and replica.log.online.reason is None:
                        self._look_at_waiting(node, core, replica, is_appended=kind == _APPENDED)

    def _look_at_searched(self, node: str, core: Broker) -> None:
        """Show the fetches whose search has ended and that still wait: it has brought them what they wait for."""
        fetches = core.manager.fetches
        for call, parked in self._searching.pop(node).items():
            request = parked.request
            if fetches.is_searching(call):
                self._searching.setdefault(node, {})[call] = parked
                continue
            if call not in fetches.parked_beside(request):
                continue
            for asked, view in zip(request.partitions, parked.views, strict=True):
                replica = core.replicas().get(asked.topic_partition)
                if replica is None or replica.view != view or replica.log.online.reason is not None:
                    continue
                if request.replica_id >= 0 or replica.log.high_watermark == replica.log.log_end_offset:
                    self._show(node, core, replica, request, asked)

    def _look_at_answer(
        self, node: str, core: Broker, call: int, request: FetchRequest, effects: Sequence[object]
    ) -> None:
        fetches = core.manager.fetches
        most = core.config.max_parked_requests
        # The fetch may have raised a high watermark, for which others were answered after it found no room.
        left = sum(
            type(each) is Reply and each.call != call and isinstance(each.body, FetchResponse)
            for each in effects
        )
        # What the core counts, and what really waits.
        counted, waiting = len(fetches.parked_beside(request)), _waiting_beside(core, request)
        if counted + left >= most and waiting + left >= most:
            return
        for effect in effects:
            if type(effect) is Reply and effect.call == call and isinstance(effect.body, FetchResponse):
                self._waits.on_answered_at_once(node, request, effect.body)

    def _look_at_waiting(self, node: str, core: Broker, replica: Replica, *, is_appended: bool) -> None:
        """Show the fetches that wait for what the step has appended, or else committed.

        A log may end in records that compaction has taken, but not in those that a step brings. Where only a part of
        the log is committed, its end may be within a batch.
        """
        log = replica.log
        if not is_appended and log.high_watermark < log.log_end_offset:
            return
        for parked, asked in _waiting(core, replica.topic_partition, replica.view):
            if (parked.request.replica_id >= 0) is not is_appended:
                continue
            if core.manager.fetches.is_searching(parked.call):
                # It is answered in a later step.
                self._searching.setdefault(node, {})[parked.call] = parked
            else:
                self._show(node, core, replica, parked.request, asked)

    def _show(
        self, node: str, core: Broker, replica: Replica, request: FetchRequest, asked: FetchPartition
    ) -> None:
        most_bytes, segments = core.config.fetch_max_bytes, replica.log.local.segments
        rolled = segments.floor(asked.fetch_offset) is not segments.active
        self._waits.on_waiting(node, request, asked, replica.log.log_end_offset, most_bytes, rolled=rolled)


def _waiting(
    core: Broker, topic_partition: TopicPartition, view: tuple[str, int]
) -> Iterator[tuple[ParkedFetch, FetchPartition]]:
    """Yields the fetches that wait under that topic id and leader epoch of the partition, with what they ask of it."""
    for _, parked in core.manager.fetches.purgatory.watching(topic_partition):
        for asked, parked_view in zip(parked.request.partitions, parked.views, strict=True):
            if asked.topic_partition == topic_partition and parked_view == view:
                yield parked, asked


def _waiting_beside(core: Broker, request: FetchRequest) -> int:
    """Returns how many fetches of followers wait, or of consumers, whichever the request is of.

    One whose time is over still waits while what it is answered with is searched.
    """
    is_follower, fetches = request.replica_id >= 0, core.manager.fetches
    waiting = [
        each.call for each in fetches.purgatory.operations() if (each.request.replica_id >= 0) is is_follower
    ]
    searching = [call for call in fetches.parked_beside(request) if fetches.is_searching(call)]
    return len(dict.fromkeys([*waiting, *searching]))
