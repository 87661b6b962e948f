"""The one type of what holds bytes: whatever the buffer protocol and `memoryview` slicing serve without a copy."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview
