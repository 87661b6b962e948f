"""The metadata log: one contract, kept by the log on the store and by the one in memory."""

from __future__ import annotations

import pytest

from cluster.core.controller.metadata_log import StoredMetadataLog
from cluster.core.metadata.log import MetadataLog
from sim.disk import SimDisk
from sim.disk.life import Life
from storage.draws import Draws
from storage.recovery.cut import ignore_cut
from tests.cluster.metadata.log_contract import BATCH_BYTES, MetadataLogContract, Reopen, ids
from tests.cluster.metadata.memory_log import MemoryDisk, MemoryMetadataLog


class TestInMemory(MetadataLogContract):
    """The fake."""

    @pytest.fixture
    def reopen(self) -> Reopen:
        disk = MemoryDisk()
        return lambda: MemoryMetadataLog(disk, max_batch_bytes=BATCH_BYTES)

    @pytest.fixture
    def log(self, reopen: Reopen) -> MetadataLog:
        return reopen()


class TestOnTheStore(MetadataLogContract):
    """The log of a controller that is alone, on a simulated disk."""

    @pytest.fixture
    def reopen(self) -> Reopen:
        disk = SimDisk(Draws(3), lambda: 0)
        lives: list[Life] = []

        def opened() -> MetadataLog:
            for life in lives:
                life.kill()
            disk.lose_power("none")
            lives.append(Life("controller"))
            return StoredMetadataLog.open(
                disk.file_system(lives[-1]),
                "data",
                now_ms=1,
                draws=Draws(1),
                report=ignore_cut,
                max_batch_bytes=BATCH_BYTES,
            )

        return opened

    @pytest.fixture
    def log(self, reopen: Reopen) -> MetadataLog:
        return reopen()

    def test_without_a_flush_nothing_survives_a_power_loss(self, log: MetadataLog, reopen: Reopen) -> None:
        log.append(ids(1), 1)
        assert reopen().end_offset == 0

    def test_a_flush_survives_a_power_loss_although_nobody_noted_it(
        self, log: MetadataLog, reopen: Reopen
    ) -> None:
        log.append(ids(1), 1)
        log.prepare_flush()()
        assert reopen().committed_offset == 1
