"""Text that is no UTF-8, decoded as Java decodes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.codec.utf8 import decode_utf8, decode_utf8_pieces, is_utf8

# The results of JDK 17's new String(bytes, UTF_8), with U+FFFD written as ?.
FROM_JAVA = [
    ("41", "A"),
    ("d0bad0bbd18ec2a0", "клю\u00a0"),
    ("f09f9491", "🔑"),
    ("80", "?"),
    ("c0af", "??"),
    ("e28241", "?A"),
    ("eda080", "?"),  # an encoded surrogate: one, where Python has three
    ("edbfbf41", "?A"),
    ("eda0", "?"),
    ("eda041", "?A"),
    ("ed41", "?A"),
    ("eda080edb080", "??"),
    ("f09f94", "?"),
    ("f0808080", "????"),
    ("f4908080", "????"),
    ("f8888080", "????"),
]


@pytest.mark.parametrize("encoded, text", FROM_JAVA)
def test_malformed_utf8_becomes_what_java_makes_of_it(encoded: str, text: str) -> None:
    assert decode_utf8(bytes.fromhex(encoded)) == text.replace("?", "\ufffd")


@given(
    st.lists(
        st.binary(max_size=5) | st.sampled_from([b"\xed\xa0", b"\x80", b"\xf0\x9f", b"\xe2\x82", b"\xac"])
    )
)
def test_pieces_are_decoded_as_the_whole_is(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    assert "".join(decode_utf8_pieces(pieces)) == decode_utf8(whole)
    try:
        whole.decode()
    except UnicodeDecodeError:
        assert not is_utf8(pieces)
    else:
        assert is_utf8(pieces)
