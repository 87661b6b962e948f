"""The differences between the two worlds that are meant, each as a script with what it sees in both.

docs/ports.md has a row for each, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from storage.disk.filesystem import OpenMode
from tests.places import ROOT
from tests.ports.file_world import Desk

PAGE = ROOT / "docs" / "ports.md"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A script, and what it sees of each file system."""

    script: Callable[[Desk], None]
    real: list[object]
    simulated: list[object]


def is_documented(difference: Difference) -> bool:
    """Whether the page has a row with the script's name."""
    return f"| `{difference.script.__name__}` |" in PAGE.read_text()


def shrinking_a_file_that_another_handle_has_mapped(desk: Desk) -> None:
    mapped = desk.open("a", content=b"0123").map_for_reading()
    desk.see(desk.open("a", OpenMode.WRITE).truncate, 3)
    mapped.close()


def a_path_that_ends_with_a_slash(desk: Desk) -> None:
    desk.make("file")
    desk.see(desk.fs.stat, desk.path("file/"))


def a_name_with_a_zero_byte(desk: Desk) -> None:
    desk.see(desk.fs.stat, desk.path("a\0b"))


FILE_DIFFERENCES = (
    Difference(
        script=shrinking_a_file_that_another_handle_has_mapped, real=["done"], simulated=["BufferError"]
    ),
    Difference(script=a_path_that_ends_with_a_slash, real=["ENOTDIR"], simulated=[4]),
    Difference(script=a_name_with_a_zero_byte, real=["ValueError"], simulated=["ENOENT"]),
)
