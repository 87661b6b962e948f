"""Bounds of the checks that a leader makes of a produced set within one step; larger sets are checked in slices.

| measure | bound | what it costs at the bound |
| --- | --- | --- |
| records of a batch | 10,000 | 10 to 30 ms |
| pieces (frames, members, blocks) that a batch is compressed in: they may unpack to nothing | 512 | 15 ms |
| bytes that a batch unpacks to, if its records only have to be scanned | 1 MiB | 10 ms |
| the same, if a scan has passed and each record is then decoded or written again | 64 KiB | 30 ms |
| the same, without a scan that has passed: all may be headers of two bytes | 16 KiB | 25 ms |
"""

from __future__ import annotations

from typing import Final, final

STEP_RECORDS: Final = 10_000
STEP_PIECES: Final = 512
STEP_SCANNED_BYTES: Final = 1 << 20
STEP_REBUILT_BYTES: Final = 1 << 16
STEP_DECODED_BYTES: Final = 1 << 14
# The work of one step on all sets together, in records: that many are checked in 50 ms.
STEP_WORK: Final = 50_000
# The work of an append, whatever it holds; and of unpacking that many bytes, which is that of one record.
APPEND_WORK: Final = 45
UNPACKED_BYTES_OF_WORK: Final = 1 << 9
# The work of a piece, beyond the few that a small batch has.
PIECE_WORK: Final = 30
_FEW_PIECES: Final = 8


@final
class StepWork:
    """The work on produced sets that is left to the present step, in records."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = STEP_WORK

    def unpacked(self, size_bytes: int, pieces: int) -> None:
        """Note that so many bytes were unpacked, from so many pieces."""
        assert size_bytes >= 0, size_bytes
        assert 0 <= pieces <= STEP_PIECES, pieces
        self.left -= max(size_bytes // UNPACKED_BYTES_OF_WORK, PIECE_WORK * (pieces - _FEW_PIECES))
