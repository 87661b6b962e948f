"""Judges where logs begin in the memory of their brokers: at no offset at which no log of the partition has begun."""

from __future__ import annotations

from sim.checkers.ghost import PartitionGhost

NAME = "log-start"


def start_beyond(partition: PartitionGhost, broker: int, log_start: int) -> str:
    """Returns what is wrong with the start that a broker's log has in memory at the end of a step; empty if nothing is.

    Only a deletion of segments moves a start, to where the next segment begins; a follower takes over that of its
    leader, as far as its own high watermark (RT1, RT3). Nothing is judged where a disk has damaged a log.
    """
    if log_start <= partition.greatest_start or partition.unjudged:
        return ""
    if any(image.damage or image.cache_damage for image in partition.images.values()):
        return ""
    return (
        f"the log of broker {broker} begins at {log_start} by its memory; no log of the partition has begun after "
        f"{partition.greatest_start}"
    )
