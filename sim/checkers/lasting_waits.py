"""What waits in a broker, looked at from time to time: nobody waits for what has come, or cannot come any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import final

from cluster.core.broker.broker import Broker
from cluster.core.messages import TopicPartition
from cluster.core.replica.fetch import ParkedFetch
from cluster.core.replica.leader_appends import ACKS_ALL, WaitingAppend
from cluster.core.replica.purgatory import Purgatory
from cluster.core.replica.replica import Replica
from sim.checkers.base import Jury
from sim.checkers.waiting import NoneWaitsInVain
from sim.hosts.node import Node

# What waits: a word for its kind, its partition, and its number or last offset.
Wait = tuple[str, TopicPartition, int]


@final
class LastingWaits:
    """Judges what waits in the brokers that run (PRO-1, PRO-5, PRO-8).

    A change that wakes nobody is seen in nothing else: who waits is answered at its deadline, with what there is then.
    The end of a role is one such change, and there are more of them than kinds of observations. A wait is wrong if two
    looks in a row find it so: a read may go on over several steps. The timer of what waits fires by the first of its
    deadlines.
    """

    name = NoneWaitsInVain.name

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # The waits that the last look found wrong, by node, life and wait.
        self._doubtful: set[tuple[int, int, Wait]] = set()

    def look(self, nodes: Iterable[Node]) -> None:
        """Look at all that waits; to be called at intervals."""
        before, self._doubtful = self._doubtful, set()
        for node in nodes:
            core = node.core
            if not isinstance(core, Broker) or node.runs_since_us is None or node.is_stopping:
                continue
            fetches, appends = core.manager.fetches.purgatory, core.manager.appends.purgatory
            for what, purgatory in (("fetches", fetches), ("appends", appends)):
                if late := late_alarm(purgatory):
                    self._jury.report(self.name, f"at broker {node.node_id} {what} wait {late}")
            for wait, what in wrong_waits(core.replicas(), core.waiting_appends(), fetches):
                found = (node.node_id, node.life_number, wait)
                self._doubtful.add(found)
                # Where damage hides a batch, the high watermark moves on to the next one that can be read.
                ghost = self._jury.ghost.partition(str(wait[1]))
                if found in before and not ghost.image(node.node_id).damage:
                    self._jury.report(self.name, f"{wait[1]}: at broker {node.node_id} {what}")


def late_alarm(purgatory: Purgatory[ParkedFetch] | Purgatory[WaitingAppend]) -> str:
    """Returns how much too late what waits is looked at; empty if it is not."""
    first_ms, armed_ms = purgatory.first_deadline_ms, purgatory.armed_ms
    if first_ms is None or (armed_ms is not None and armed_ms <= first_ms):
        return ""
    return f"until {first_ms}, and the timer fires at {armed_ms}"


def wrong_waits(
    replicas: Mapping[TopicPartition, Replica],
    appends: Iterable[tuple[TopicPartition, WaitingAppend]],
    fetches: Purgatory[ParkedFetch],
) -> Iterator[tuple[Wait, str]]:
    """Yields what waits in vain in a broker with these replicas, each with the reason."""
    for topic_partition, append in appends:
        replica = replicas.get(topic_partition)
        what = _end_of_role(replica, append.view, is_for_leader=True)
        if not what and replica is not None and append.acks == ACKS_ALL:
            high_watermark = replica.log.high_watermark
            if append.last_offset < high_watermark:
                what = f"its offset is {append.last_offset}, and the high watermark {high_watermark}"
        if what:
            yield ("append", topic_partition, append.last_offset), f"an append waits: {what}"
    for topic_partition in fetches.watched():
        for number, parked in fetches.watching(topic_partition):
            view = parked.views[
                [each.topic_partition for each in parked.request.partitions].index(topic_partition)
            ]
            is_for_leader = parked.request.replica_id >= 0
            what = _end_of_role(replicas.get(topic_partition), view, is_for_leader=is_for_leader)
            if what:
                yield ("fetch", topic_partition, number), f"a fetch waits: {what}"


def _end_of_role(replica: Replica | None, view: tuple[str, int], *, is_for_leader: bool) -> str:
    """Returns why the role has ended under which a request began to wait, `view`; empty if it has not."""
    if replica is None:
        return "its replica is gone"
    if replica.view != view:
        return f"it came in {view}, and the broker is in {replica.view}"
    has_role = replica.leader is not None or replica.follower is not None
    if not has_role or (is_for_leader and replica.leader is None):
        return "the broker does not lead any more" if has_role else "the broker has no role any more"
    return ""
