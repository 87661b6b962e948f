"""Verifies the files of all logs at the end of a run, as `replog log verify` does beside a node that runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial

from cluster.core.broker.broker import Broker
from sim.checkers.base import Jury
from sim.disk.life import Life
from sim.hosts.node import Node
from storage.config import LogConfig
from storage.disk.filesystem import FileSystem, basename, join
from storage.inspection.verify.partition import verify_partition
from storage.producers.snapshot import snapshot_offset

NAME = "verified-logs"
# Compaction leaves the times of records that are gone, and after a cut Kafka takes the greatest time of later appends
# for that of a segment: `index-entries` judges the times by what was told of them.
_OF_TIMES = "IX21"
# A producer snapshot beyond the end of the last batch.
_OF_SNAPSHOTS = "PS16"
# Leader epochs: none, or no file, although batches have some.
_OF_EPOCHS = "EP12"
_DAY_MS = 86_400_000


def judge_verified_logs(nodes: Collection[Node], jury: Jury) -> None:
    """Report each problem in a log of a broker at rest, on disks that have done all that they were told to do."""
    for node in nodes:
        if isinstance(node.core, Broker) and not node.is_damaged and node.core.lifecycle.is_unfenced:
            logs = {
                each.name: (each.log.log_start_offset, each.log.log_end_offset)
                for each in node.core.replicas().values()
            }
            shortened = {
                each.name
                for each in node.core.replicas().values()
                if not each.log.epochs.entries and may_shorten(each.log.config)
            }
            file_system = node.disk.file_system(Life("eye", sees_through=True))
            for what in problems(file_system, node.directories, logs, shortened):
                jury.report(NAME, f"{node.name}: {what}")


def may_shorten(config: LogConfig) -> bool:
    """Whether retention may delete records of a log within a run."""
    return config.retention_bytes >= 0 or 0 <= config.retention_ms < _DAY_MS


def problems(
    file_system: FileSystem,
    directories: Collection[str],
    logs: Mapping[str, tuple[int, int]],
    shortened: Collection[str] = (),
) -> Iterator[str]:
    """Yields the problems of the logs of these names, each with its file and rule.

    `logs` has their start and end offsets. A log that is cut where compaction has left nothing ends above its last
    batch: a producer snapshot up to that end is sound. One of `shortened`, which retention may have emptied, may know
    no epoch: if the process ends before the checkpoint of starts is written, the next one finds the batches again, and
    drops the entry, which is at the end of the log, as Kafka does.
    """
    for directory in directories:
        for name in sorted(file_system.list(directory)):
            if name in logs:
                path, (start, end) = join(directory, name), logs[name]
                for each in verify_partition(
                    file_system, path, in_use=True, log_start=partial(int, start)
                ).problems:
                    is_within = (
                        each.rule == _OF_SNAPSHOTS and (snapshot_offset(basename(each.path)) or 0) <= end
                    )
                    is_emptied = each.rule == _OF_EPOCHS and name in shortened
                    if each.rule != _OF_TIMES and not (is_within or is_emptied):
                        yield f"{each.path}: {each.rule}: {each.message}"
