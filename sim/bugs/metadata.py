"""Bugs in the metadata log and in what is made of it: each takes out one protection of images, changes and commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.core.controller.metadata_log import StoredMetadataLog
from cluster.core.metadata.delta import MetadataDelta
from sim.bugs.planting import Bug, Replacement

Original = Callable[..., Any]


def _does_nothing(original: Original) -> Original:
    return lambda *arguments, **named: None


def _always(original: Original) -> Original:
    return lambda *arguments: True


def _commits_at_once(original: Original) -> Original:
    def append(log: StoredMetadataLog, *arguments: object) -> int:
        first_offset = int(original(log, *arguments))
        log.flushed(log.end_offset)
        return first_offset

    return append


def _twice(original: Original) -> Original:
    def change_partition(delta: MetadataDelta, record: object) -> None:
        original(delta, record)
        original(delta, record)

    return change_partition


def _skips_deltas(original: Original) -> Original:
    """Leave the deltas out that touch one partition: they are changes of a running cluster."""

    def apply_delta(roles: object, now_ms: int, delta: MetadataDelta) -> None:
        if len(delta.changed_partitions) != 1:
            original(roles, now_ms, delta)

    return apply_delta


METADATA_BUGS: tuple[Bug, ...] = (
    Bug(
        name="half-a-change-applies",
        story="Each batch of the metadata log counts as a whole change (KIP-868, KAFKA-12376).",
        replacements=(
            Replacement(target="cluster.core.metadata.changes:ChangeReader.ends_change", make=_always),
        ),
        found_by="half-a-change-applies",
    ),
    Bug(
        name="metadata-committed-before-flush",
        story="Brokers are shown changes of the metadata that are not on the controller's disk yet.",
        replacements=(
            Replacement(
                target="cluster.core.controller.metadata_log:StoredMetadataLog.append", make=_commits_at_once
            ),
        ),
        found_by="leader-crash",
    ),
    Bug(
        name="refused-change-stays-pending",
        story="A change that could not be appended stays in the controller's pending image (KAFKA-13100).",
        replacements=(
            Replacement(target="cluster.core.controller.pending:PendingChanges.drop_to", make=_does_nothing),
        ),
    ),
    Bug(
        name="change-replayed-twice",
        story="A change of a partition is replayed twice: its epochs are ahead of the log.",
        replacements=(
            Replacement(target="cluster.core.metadata.delta:MetadataDelta._change_partition", make=_twice),
        ),
        found_by="leader-crash",
    ),
    Bug(
        name="delta-skipped",
        story="A broker replays a change of a partition and does not apply it to its replica.",
        replacements=(
            Replacement(target="cluster.core.replica.roles:Roles.apply_delta", make=_skips_deltas),
        ),
        found_by="leader-crash",
    ),
)
