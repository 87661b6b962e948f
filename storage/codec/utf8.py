"""Bytes to text as Java's `new String(bytes, UTF_8)` converts them: malformed bytes become U+FFFD.

Java and Python agree on where a malformed sequence ends, except for an encoded surrogate (ED A0..BF 80..BF,
the last byte present or not): Java replaces all of it by one U+FFFD, Python each of its bytes.
"""

from __future__ import annotations

import re

_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "�".encode()


def decode_utf8(data: bytes) -> str:
    """Decode `data` as Java does; any bytes are accepted."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        # ED cannot continue another character, so each match is at the start of one.
        return _ENCODED_SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")


def is_encodable(text: str) -> bool:
    """Whether the text can be written as UTF-8: it has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
