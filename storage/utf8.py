"""Bytes to text as Java's `new String(bytes, UTF_8)` has it: what is malformed becomes U+FFFD."""

from __future__ import annotations


def decode_utf8(data: bytes) -> str:
    return data.decode("utf-8", "replace")
