"""The texts of a large record in a dump, piece by piece: no field of it is ever held whole.

A batch is unpacked again for each of them that is shown, beside the walk that finds its records. So it is unpacked a
few times, however many large records it has.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from typing import final

from storage.batch import RecordBatch
from storage.batch.pieces import FieldPieces, LargeFields
from storage.codec.utf8 import decode_utf8_pieces, is_utf8

Texts = Iterator[str]
# Decodes a field that is read in pieces.
PiecesDecoder = Callable[[Iterable[bytes]], Texts]
Decoders = tuple[PiecesDecoder, PiecesDecoder]
# The texts of the key and of the value.
Shown = tuple[str | None, str | None]
# The layout of base64 takes three bytes at a time.
_BASE64_BYTES = 3


@final
class LargeRecords:
    """The large records of one batch, in order."""

    def __init__(self, batch: RecordBatch) -> None:
        # Nothing is unpacked before it is asked for.
        self._header_keys, self._shown, self._looked_at = [batch.large_fields() for _ in range(3)]

    def next(self, decoders: Decoders | None, known: Shown = (None, None)) -> LargeRecord:
        """Returns the texts of the next large record; without the `decoders` of key and value they are `known`.

        What is read of one is to be read of each.
        """
        return LargeRecord(self._header_keys, self._shown, self._looked_at, decoders, known)


@final
class LargeRecord:
    """The texts of one large record. Each method is called at most once, `key` before `value`."""

    def __init__(
        self,
        header_keys: Iterator[LargeFields],
        shown: Iterator[LargeFields],
        looked_at: Iterator[LargeFields],
        decoders: Decoders | None,
        known: Shown,
    ) -> None:
        self._header_keys, self._shown, self._looked_at = header_keys, shown, looked_at
        self._decoders, self._known = decoders, known
        self._fields: LargeFields = iter(())

    def header_keys(self) -> Iterator[Texts]:
        """Yields each header's key as the pieces of its text."""
        fields = next(self._header_keys)
        next(fields), next(fields)
        for pieces in fields:
            yield decode_utf8_pieces(pieces or ())

    def key(self) -> Texts | None:
        """Returns the text of the key; None for null, or where keys and values are not shown."""
        if self._decoders is None:
            return _pieces(self._known[0])
        self._fields = next(self._shown)
        return self._decoded(self._decoders[0])

    def value(self) -> Texts | None:
        """Returns the text of the value, as `key` does that of the key."""
        return _pieces(self._known[1]) if self._decoders is None else self._decoded(self._decoders[1])

    def _decoded(self, decode: PiecesDecoder) -> Texts | None:
        pieces = next(self._fields)
        return None if pieces is None else decode(pieces)

    def json(self, *, is_decoded: bool) -> tuple[Texts, Texts]:
        """Returns the JSON of key and value, of which the key's is to be read first.

        It is what the decoders show or, where it is not `is_decoded`, the text; bytes that are not UTF-8 as base64.
        """
        if is_decoded:
            return _json(self.key), _json(self.value)
        looked_at, fields = next(self._looked_at), next(self._shown)
        is_key_text = _is_utf8(next(looked_at))
        is_value_text = _is_utf8(next(looked_at))
        return _json_text(fields, is_text=is_key_text), _json_text(fields, is_text=is_value_text)


def _pieces(text: str | None) -> Texts | None:
    return None if text is None else iter((text,))


def _is_utf8(pieces: FieldPieces | None) -> bool:
    return pieces is None or is_utf8(pieces)


def _json(read: Callable[[], Texts | None]) -> Texts:
    """Yields the JSON of the text that `read` returns when it is asked for."""
    texts = read()
    if texts is None:
        yield "null"
    else:
        yield from json_string(texts)


def _json_text(fields: LargeFields, *, is_text: bool) -> Texts:
    """Yields the JSON of the next field."""
    pieces = next(fields)
    if pieces is None:
        yield "null"
    elif is_text:
        yield from json_string(decode_utf8_pieces(pieces))
    else:
        yield '{"base64": "'
        yield from _base64(pieces)
        yield '"}'


def json_string(texts: Texts) -> Texts:
    """Yields the JSON string of what the pieces are together."""
    yield '"'
    for text in texts:
        yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield '"'


def hex_pieces(pieces: Iterable[bytes]) -> Texts:
    """Yields what `bytes.hex` returns for all pieces together."""
    return map(bytes.hex, pieces)


def _base64(pieces: Iterable[bytes]) -> Texts:
    left = b""
    for piece in pieces:
        data = left + piece
        cut = len(data) - len(data) % _BASE64_BYTES
        left = data[cut:]
        yield base64.b64encode(data[:cut]).decode()
    yield base64.b64encode(left).decode()
