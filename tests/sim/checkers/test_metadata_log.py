"""The witness of the metadata log: what brokers were shown must stay, unless recovery has to drop it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from cluster.core.effects import Observe
from cluster.core.errors import ErrorCode
from cluster.core.messages import CONTROLLER_ID, FetchMetadataResponse, RequestBody
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.disk import SimDisk
from sim.disk.life import Life
from sim.hosts.node import Node
from sim.witness.metadata_log import MetadataWitness
from storage.batch import Record, build_batch
from storage.disk.filesystem import OpenMode, join
from storage.draws import Draws

DIRECTORY = "controller/__cluster_metadata-0"
CONTROLLER = cast(Node, SimpleNamespace(node_id=CONTROLLER_ID, is_damaged=False))


def batch(offset: int) -> bytes:
    value = b'{"type": "NoOpRecord"}'
    return bytes(build_batch([Record(offset, 5, None, value)], base_offset=offset, partition_leader_epoch=0))


class Shown:
    """A controller's log of two batches that brokers were shown, and its witness."""

    def __init__(self) -> None:
        self.disk = SimDisk(Draws(1), lambda: 0)
        self.file_system = self.disk.file_system(Life())
        self.file_system.make_directory(DIRECTORY)
        self.path = join(DIRECTORY, f"{0:020d}.log")
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self.witness = MetadataWitness(self.jury, self.disk, DIRECTORY)
        self.append(batch(0), batch(1))
        answer = FetchMetadataResponse(error=ErrorCode.NONE, high_watermark=2, records=batch(0) + batch(1))
        self.witness.on_reply(CONTROLLER, cast(RequestBody, None), answer)
        assert not self.jury.violations

    def append(self, *batches: bytes) -> None:
        file = self.file_system.open(self.path, OpenMode.CREATE)
        file.append(b"".join(batches))
        file.close()
        self.disk.sync_all()

    def recover(self, size_bytes: int, *, lost_power: bool) -> list[str]:
        """The controller dies, and its next life keeps so many bytes of the log. Returns what is violated."""
        self.witness.on_controller_died(lost_power=lost_power)
        file = self.file_system.open(self.path, OpenMode.WRITE)
        file.truncate(size_bytes)
        file.close()
        self.witness.on_observes(CONTROLLER, [Observe(kind="controller.started")])
        return [each.checker for each in self.jury.violations]


@pytest.mark.parametrize(("size_bytes", "found"), [(2 * len(batch(0)), []), (len(batch(0)), ["metadata"])])
def test_what_brokers_were_shown_of_the_metadata_must_stay(size_bytes: int, found: list[str]) -> None:
    shown = Shown()
    shown.append(batch(2))
    assert shown.recover(size_bytes, lost_power=True) == found
    assert not shown.jury.adjourned


def test_ll16_nothing_is_judged_once_a_torn_offset_makes_recovery_empty_the_log() -> None:
    """No checksum covers the base offset of a batch: one of zeros is an offset that goes back."""
    shown = Shown()
    shown.append(bytes(8) + batch(2)[8:])
    assert shown.recover(0, lost_power=True) == []
    assert "an offset of zeros" in shown.jury.adjourned


def test_without_a_power_loss_no_offset_goes_back() -> None:
    shown = Shown()
    shown.append(bytes(8) + batch(2)[8:])
    assert shown.recover(0, lost_power=False) == ["metadata"]
