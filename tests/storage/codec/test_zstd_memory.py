"""The memory that a zstd frame takes to unpack, by its window, its content size and what it unpacks to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MIB = 1 << 20
# Frames without and with a content size; the window of both is 128 MiB, which is the most that Kafka accepts.
WIDE, WIDE_OF = "28b52ffd0088", "28b52ffd8088"
# A frame of one segment: its window is its content size, which follows.
SINGLE = "28b52ffda0"
BLOCK_BYTES = 128 << 10
MEASURE = """
import sys
from storage.codec.zstd_stream import unpack_zstd
from storage.errors import StorageError

# The usage that the system reports would count what the parent held when it started this process.
def peak_kib():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

frame, before, size = bytes.fromhex(sys.stdin.read()), peak_kib(), 0
try:
    for piece in unpack_zstd(frame, 1 << 27):
        size += len(piece)
except StorageError:
    size = -1
print(size, peak_kib() - before)
"""


def repeated(blocks: int) -> str:
    """Return `blocks` blocks of 128 KiB of one byte, in hexadecimal digits."""
    block, last = ((BLOCK_BYTES << 3 | 1 << 1 | is_last).to_bytes(3, "little") + b"x" for is_last in (0, 1))
    return (block * (blocks - 1) + last).hex()


def little(number: int) -> str:
    return number.to_bytes(4, "little").hex()


def unpacked(frames: str) -> tuple[int, float]:
    """Return how many bytes the frames unpack to, -1 if they are refused, and the MiB that a process takes for it."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], input=frames, capture_output=True, text=True, check=True, cwd=ROOT
    )
    size, peak_kib = map(int, done.stdout.split())
    return size, peak_kib / 1024


def test_a_wide_window_takes_no_more_memory_than_its_frame_unpacks_to() -> None:
    size, peak_mib = unpacked(WIDE + repeated(8))
    assert size == MIB
    assert peak_mib < 4


def test_a_content_size_that_is_no_more_than_a_claim_takes_no_memory() -> None:
    for header in (SINGLE, WIDE_OF):
        size, peak_mib = unpacked(header + little(128 * MIB) + repeated(8))
        assert size == -1
        assert peak_mib < 4, header


def test_the_windows_of_frames_in_a_row_are_not_held_together() -> None:
    size, peak_mib = unpacked((WIDE + repeated(320)) * 3)
    assert size == 120 * MIB
    assert peak_mib < 48


def test_a_window_of_the_greatest_size_that_is_filled_takes_that_size_and_no_more() -> None:
    """The bound of 64 MiB does not hold here: a later block may refer to any byte of the window."""
    size, peak_mib = unpacked(WIDE + repeated(1024))
    assert size == 128 * MIB
    assert 120 < peak_mib < 136
