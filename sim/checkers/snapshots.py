"""Holds each snapshot of the metadata that the controller has written against the log that it stands for."""

from __future__ import annotations

import json

from sim.checkers.metadata import Replay
from storage.batch import iterate_batches
from storage.errors import StorageError

NAME = "snapshots"


def snapshot_difference(data: bytes, replay: Replay) -> str:
    """Returns the first thing in which a snapshot's file is not what the log says; empty if there is none.

    `replay` is the log below the snapshot's end. A start takes the file for all of it (KR-SNP-5), and most runs have
    none after it. The first and the last batch are marks, and have no metadata.
    """
    written = Replay()
    try:
        for batch in list(iterate_batches(data))[1:-1]:
            for record in batch.records():
                written.apply(record.offset, json.loads(record.value or b""))
    except (StorageError, ValueError, KeyError) as error:
        return f"cannot be read: {type(error).__name__}: {error}"
    facts = (
        ("cluster id", written.cluster_id, replay.cluster_id),
        ("next producer id", written.next_producer_id, replay.next_producer_id),
        ("brokers", written.brokers, replay.brokers),
        ("topics", list(written.topics), sorted(replay.topics)),
    )
    for what, found, expected in facts:
        if found != expected:
            return f"has {what} {found}, the log says {expected}"
    for name, topic in written.topics.items():
        if topic != replay.topics[name]:
            return f"has {name} as {topic}, the log says {replay.topics[name]}"
    return ""
