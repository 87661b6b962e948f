"""The type of everything that holds bytes and that `memoryview` can slice without a copy."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview
