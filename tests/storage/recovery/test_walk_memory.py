"""The memory that recovery of a segment takes from this machine, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from storage.batch import Record, build_batch, stamp

BATCH_BYTES = 2 << 10
# One window of the map, and what the allocator keeps.
GROWTH_ALLOWED_BYTES = 24 << 20

PROGRAM = """
import sys
from pathlib import Path
from storage.config import LogConfig
from storage.leader_epochs import LeaderEpochCache
from storage.disk.os_filesystem import OsFileSystem
from storage.producers.state import ProducerStateManager
from storage.segment import LogSegment
from storage.recovery.walk import recover_segment

directory = sys.argv[1]
file_system = OsFileSystem()
segment = LogSegment.open(file_system, directory, 0, LogConfig(), 1, file_already_exists=True)
producers = ProducerStateManager(file_system, directory)
epochs = LeaderEpochCache(file_system, directory + "/leader-epoch-checkpoint")
peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = peak()
assert recover_segment(segment, producers, epochs) == 0
print((peak() - before) * 1024)
"""


def _segment(directory: Path, size_bytes: int) -> Path:
    batch = bytearray(build_batch([Record(offset=0, timestamp=1, key=None, value=bytes(BATCH_BYTES))]))
    directory.mkdir()
    with (directory / f"{0:020d}.log").open("wb") as file:
        for offset in range(size_bytes // len(batch)):
            stamp(batch, 0, base_offset=offset, partition_leader_epoch=0)
            file.write(batch)
    return directory


def _growth(directory: Path) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(directory)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="/proc is absent, where Linux tells the peak of a process"
)
def test_recovery_of_a_segment_eight_times_as_long_takes_no_more_memory(tmp_path: Path) -> None:
    short = _growth(_segment(tmp_path / "short-0", 32 << 20))
    long = _growth(_segment(tmp_path / "long-0", 256 << 20))
    assert max(short, long) < GROWTH_ALLOWED_BYTES and long < short + (8 << 20), (short, long)
