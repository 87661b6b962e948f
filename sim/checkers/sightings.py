"""What the checkers see: plain values, so that a hand-made sequence can fail or pass each of them.

A partition is written `topic-partition`, a broker is its number. The witness (`sim/witness/witness.py`) makes these
from `Observe` effects, answers on the wire, and a look at the simulated disks.
"""

from __future__ import annotations

from typing import NamedTuple

from sim.checkers.chain import Mark

# Pairs of an epoch and its start offset, ascending.
EpochStarts = tuple[tuple[int, int], ...]


class Created(NamedTuple):
    partition: str
    min_isr: int
    # Whether `flush.messages` is 1.
    flush_promised: bool


class Elected(NamedTuple):
    """The controller's decision; `leader` -1 when nobody may lead."""

    partition: str
    leader: int
    epoch: int
    isr: tuple[int, ...]
    clean: bool


class IsrChanged(NamedTuple):
    """A new in-sync set, committed by the controller."""

    partition: str
    isr: tuple[int, ...]


class BecameLeader(NamedTuple):
    broker: int
    partition: str
    epoch: int
    log_end_offset: int


class BecameFollower(NamedTuple):
    broker: int
    partition: str
    epoch: int
    leader: int


class Appended(NamedTuple):
    broker: int
    partition: str
    epoch: int
    marks: tuple[Mark, ...]


class Truncated(NamedTuple):
    broker: int
    partition: str
    to_offset: int
    epoch: int


class HighWatermark(NamedTuple):
    broker: int
    partition: str
    epoch: int
    high_watermark: int
    is_leader: bool


class EpochsSeen(NamedTuple):
    """The epoch cache of a replica, at a moment when its log is as last seen."""

    broker: int
    partition: str
    starts: EpochStarts


class Acknowledged(NamedTuple):
    """A positive answer to a producer, handed to the network."""

    broker: int
    partition: str
    base_offset: int
    last_offset: int
    acks: int
    # The replicas whose disk would keep the records through a power loss; only where a flush is promised.
    durable_on: tuple[int, ...]


class Served(NamedTuple):
    """A consumer's fetch, answered with batches; `high_watermark` as the answer states it."""

    broker: int
    partition: str
    high_watermark: int
    marks: tuple[Mark, ...]


class Fetched(NamedTuple):
    """A fetch that a leader answered without an error. `asked_epoch` is the one the asker lives in, `epoch` the
    leader's."""

    broker: int
    partition: str
    # A consumer has the number -1.
    replica: int
    asked_epoch: int
    epoch: int


class Died(NamedTuple):
    """A life ended out of order. `marks` is the sound prefix of its log on the disk as it is now."""

    broker: int
    partition: str
    lost_power: bool
    marks: tuple[Mark, ...]


class Loaded(NamedTuple):
    """A new life has recovered its log. `unsound` says what is wrong with the bytes after `marks`, if anything."""

    broker: int
    partition: str
    marks: tuple[Mark, ...]
    unsound: str


Sighting = (
    Created
    | Elected
    | IsrChanged
    | BecameLeader
    | BecameFollower
    | Appended
    | Truncated
    | HighWatermark
    | EpochsSeen
    | Acknowledged
    | Served
    | Fetched
    | Died
    | Loaded
)
