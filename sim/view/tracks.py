"""The state of each partition over a run: leader and ISR as the controller has them, the replicas' roles and logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

from sim.view.replica_logs import PartitionLogs

Members = Mapping[str, Any]
NO_LEADER = -1


@final
class PartitionTracks:
    """One partition. Every entry begins with the index of the event that made it, which counts the page's events."""

    def __init__(self) -> None:
        self.logs = PartitionLogs()
        # Index, leader (-1: none), leader epoch, the numbers of the brokers in sync.
        self.states: list[tuple[int, int, int, list[int]]] = []
        # For each broker: index, role, leader epoch.
        self.roles: dict[str, list[tuple[int, str, int]]] = {}

    def set_role(self, index: int, broker: str, role: str, epoch: int) -> None:
        self.logs.replica(broker)
        self.roles.setdefault(broker, []).append((index, role, epoch))

    def set_state(self, index: int, *, leader: int | None, epoch: int | None, isr: str) -> None:
        """Add a state of the controller; None leaves the leader or its epoch as it was."""
        _, old_leader, old_epoch, _ = self.states[-1] if self.states else (0, NO_LEADER, NO_LEADER, [])
        members = sorted(int(each) for each in isr.split(",") if each)
        self.states.append(
            (
                index,
                old_leader if leader is None else leader,
                old_epoch if epoch is None else epoch,
                members,
            )
        )

    def as_json(self) -> dict[str, object]:
        """Returns what the page draws; changes and high watermarks are flat lists of numbers."""
        return {
            "states": self.states,
            "replicas": {
                broker: {
                    "roles": self.roles.get(broker, []),
                    "changes": log.changes,
                    "highWatermarks": log.high_watermarks,
                }
                for broker, log in sorted(self.logs.replicas.items())
            },
        }


@final
class Tracks:
    """All partitions of a run."""

    def __init__(self) -> None:
        self.partitions: dict[str, PartitionTracks] = {}
        self._handlers: dict[str, Callable[[PartitionTracks, int, str, Members], None]] = {
            "controller.leader_elected": _on_elected,
            "controller.leader_lost": _on_leader_lost,
            "controller.isr_changed": _on_isr_changed,
            "replica.became_leader": _on_became_leader,
            "replica.became_follower": _on_became_follower,
            "replica.appended": _on_appended,
            "replica.high_watermark": _on_high_watermark,
            "replica.truncated": _on_truncated,
            "replica.removed": _on_removed,
            "replica.offline": _on_offline,
            "log.segments_deleted": _on_segments_deleted,
        }

    def on_event(self, index: int, node: str, kind: str, members: Members) -> None:
        """Take in an observation. Raises KeyError, TypeError or ValueError if it lacks what its kind has."""
        if kind == "end":
            self._on_end(index, node)
        handler = self._handlers.get(kind)
        if handler is not None:
            partition = self.partitions.setdefault(str(members["topic_partition"]), PartitionTracks())
            handler(partition, index, node, members)

    def _on_end(self, index: int, node: str) -> None:
        for partition in self.partitions.values():
            if node in partition.roles:
                partition.set_role(index, node, "down", partition.roles[node][-1][2])


def _on_elected(partition: PartitionTracks, index: int, node: str, members: Members) -> None:
    leader, epoch = int(members["leader"]), int(members["leader_epoch"])
    partition.set_state(index, leader=leader, epoch=epoch, isr=members["isr"])


def _on_leader_lost(partition: PartitionTracks, index: int, node: str, members: Members) -> None:
    partition.set_state(index, leader=NO_LEADER, epoch=int(members["leader_epoch"]), isr=members["isr"])


def _on_isr_changed(partition: PartitionTracks, index: int, node: str, members: Members) -> None:
    partition.set_state(index, leader=None, epoch=None, isr=members["isr"])


def _on_became_leader(partition: PartitionTracks, index: int, node: str, members: Members) -> None:
    epoch = int(members["leader_epoch"])
    partition.set_role(index, node, "leader", epoch)
    partition.logs.became_leader(index, node, epoch, int(members["log_end_offset"]))


def _on_became_follower(partition: PartitionTracks, index: int, node: str, members: Members) -> None:
    epoch = int(members["leader_epoch"])
    partition.set_role(index, node, "follower", epoch)
    partition.logs.became_follower(index, node, epoch, int(members["log_end_offset"]))


def _on_appended(partition: PartitionTracks, index: int, node: str, members: Members) -> None:
    partition.logs.appended(
        index,
        node,
        int(members["leader_epoch"]),
        int(members["first_offset"]),
        int(members["last_offset"]) + 1,
        is_leader=members["origin"] == "leader",
    )


def _on_high_watermark(partition: PartitionTracks, index: int, node: str, members: Members) -> None:
    partition.logs.high_watermark(index, node, int(members["high_watermark"]))


def _on_truncated(partition: PartitionTracks, index: int, node: str, members: Members) -> None:
    partition.logs.truncated(index, node, int(members["to_offset"]))


def _on_removed(partition: PartitionTracks, index: int, node: str, members: Members) -> None:
    partition.set_role(index, node, "removed", int(members["leader_epoch"]))
    partition.logs.replica(node).clear(index)
    partition.logs.high_watermark(index, node, 0)


def _on_offline(partition: PartitionTracks, index: int, node: str, members: Members) -> None:
    partition.set_role(index, node, "offline", int(members["leader_epoch"]))


def _on_segments_deleted(partition: PartitionTracks, index: int, node: str, members: Members) -> None:
    partition.logs.replica(node).start_at(index, int(members["log_start_offset"]))
