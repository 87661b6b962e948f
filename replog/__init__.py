"""replog: a Kafka-style replicated log on Kafka's bytes, and the simulator that breaks it on purpose.

It has the public names. Each is loaded when it is first used, so that reading a segment does not import gRPC.
"""

from __future__ import annotations

import importlib

_HOMES = {
    "LogConfig": "storage.config",
    "OsFileSystem": "storage.disk.os_filesystem",
    "PartitionLog": "storage.log",
    "Record": "storage.batch.record",
    "RecordBatch": "storage.batch",
    "build_batch": "storage.batch",
    "iterate_batches": "storage.batch",
    "Admin": "cluster.shell.clients",
    "Consumer": "cluster.shell.clients",
    "Producer": "cluster.shell.clients",
    "run_scenario": "sim.run",
    "register": "pipeline",
}

__all__ = sorted(_HOMES)
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'replog' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
