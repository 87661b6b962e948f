"""Changes bytes of a file that were synced, as a disk does on which bits fade: no call is told, each read sees it."""

from __future__ import annotations

from typing import Literal

from sim.disk.file import FileNode
from storage.draws import Draws

Extent = Literal["bit", "sector", "block"]

SECTOR_BYTES = 512
BLOCK_BYTES = 4096


def synced_bytes(node: FileNode) -> int:
    """Returns the number of bytes at the start of the file that no pending change touches, without zeros at its end."""
    return min([node.data_end, *(change.position for change in node.changes)])


def overwrite(node: FileNode, data: bytes, draws: Draws) -> tuple[int, int] | None:
    """Put bytes that belong elsewhere over what was synced, from a drawn block on; the file does not grow.

    Returns the place as `rot` does; None if nothing was synced yet.
    """
    size_bytes = synced_bytes(node)
    if not size_bytes:
        return None
    position = BLOCK_BYTES * draws.below((size_bytes - 1) // BLOCK_BYTES + 1, "stray.block")
    stray = data[: size_bytes - position]
    node.put(position, stray)
    assert synced_bytes(node) >= position + len(stray), (node.number, position, len(stray))
    return position, position + len(stray)


def rot(node: FileNode, extent: Extent, draws: Draws) -> tuple[int, int] | None:
    """Change a bit, a sector (drawn bytes) or a block (zeros) of what was synced, at a place that is drawn.

    Returns the first byte and the last one (exclusive) of the place; None if nothing was synced yet.
    """
    size_bytes = synced_bytes(node)
    assert 0 <= size_bytes <= node.data_end <= node.length, (size_bytes, node.data_end, node.length)
    if not size_bytes:
        return None
    position = draws.below(size_bytes, "rot.position")
    if extent == "bit":
        changed = bytes([node.read(position, 1)[0] ^ 1 << draws.below(8, "rot.bit")])
    else:
        unit = SECTOR_BYTES if extent == "sector" else BLOCK_BYTES
        position -= position % unit
        count = min(unit, size_bytes - position)
        drawn = bytes([draws.below(256, "rot.byte", index) for index in range(count)])
        changed = drawn if extent == "sector" else bytes(count)
    node.put(position, changed)
    assert synced_bytes(node) == size_bytes, (node.number, size_bytes)
    return position, position + len(changed)
