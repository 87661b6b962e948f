"""The code that a campaign's rows come from: a seed draws and runs alike only where it is the same."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_PACKAGES: Final = ("cluster", "sim", "storage")
CODE: Final = "code"


@cache
def code_digest() -> str:
    """Returns a digest of 16 hex digits of the source files that a drawn run executes, their names included."""
    digest = blake2b(digest_size=8)
    for package in _PACKAGES:
        spec = find_spec(package)
        assert spec is not None and spec.origin is not None, package
        folder = Path(spec.origin).parent
        for path in sorted(folder.rglob("*.py")):
            data = path.read_bytes()
            digest.update(f"{package}/{path.relative_to(folder)}:{len(data)}\n".encode())
            digest.update(data)
    return digest.hexdigest()


def why_not_of(found: object, header: Mapping[str, object]) -> str:
    """Returns why rows under the header `found` cannot be gone on with under `header`, which differs from it."""
    assert found != header, found
    if isinstance(found, dict) and found | {CODE: None} == {**header, CODE: None}:
        return (
            f"of a campaign with other code, {found.get(CODE, 'not named')}, where a seed may be another run"
        )
    return "of a campaign with other options"
