"""Measures the store against bare loops, against Kafka's own log in the same run, and against fixed marks.

A ratio of 1 to a bare loop would mean that the product costs nothing beyond the CRC of every batch and the system
calls.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bench import kafka_peer, storage_append, storage_reads, storage_recovery
from bench.table import Line


def run() -> list[Line]:
    """Measure recovery, appends and reads; each result is also printed to stderr at once."""
    if reason := kafka_peer.absence():
        print(f"Kafka is not measured: {reason}", file=sys.stderr)
    return list(_printed(storage_recovery.lines(), storage_append.lines(), storage_reads.lines()))


def _printed(*parts: Iterator[Line]) -> Iterator[Line]:
    for part in parts:
        for line in part:
            print(f"  {line.what}: {line.value:.3g} {line.unit}", file=sys.stderr)
            yield line
