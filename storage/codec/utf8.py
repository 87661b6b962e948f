"""Bytes to text as Java's `new String(bytes, UTF_8)` converts them: malformed bytes become U+FFFD.

Java and Python agree on where a malformed sequence ends, except for an encoded surrogate (ED A0..BF 80..BF,
the last byte present or not): Java replaces all of it by one U+FFFD, Python each of its bytes.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator

# The most bytes of a character, and the least value of the first of several.
_MOST_BYTES, _FIRST_BYTE = 4, 0xC0
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "�".encode()


def decode_utf8(data: bytes) -> str:
    """Decode `data` as Java does; any bytes are accepted."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        # ED cannot continue another character, so each match is at the start of one.
        return _ENCODED_SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")


def decode_utf8_pieces(pieces: Iterable[bytes]) -> Iterator[str]:
    """Yields the text that `decode_utf8` returns for all pieces together."""
    left = b""
    for piece in pieces:
        data = left + piece
        cut = _last_start(data)
        left = data[cut:]
        yield decode_utf8(data[:cut])
    yield decode_utf8(left)


def _last_start(data: bytes) -> int:
    """Returns where a character begins that may go on after the end of `data`; its size if there is none.

    The first byte of a character of several bytes cannot continue another one, also where bytes are malformed.
    """
    for place in range(len(data) - 1, max(len(data) - _MOST_BYTES, -1), -1):
        if data[place] >= _FIRST_BYTE:
            return place
    return len(data)


def is_utf8(pieces: Iterable[bytes]) -> bool:
    """Whether all pieces together are UTF-8. Reads no further than to the first error."""
    decoder = getincrementaldecoder("utf-8")()
    try:
        for piece in pieces:
            decoder.decode(piece)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def is_encodable(text: str) -> bool:
    """Whether the text can be written as UTF-8: it has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
