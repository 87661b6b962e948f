"""What a page says is compared with what is printed, and a difference is not overlooked."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from tests.pages.examples import Reader, blocks_of, steps_of
from tests.pages.shell import Command, commands_of, matches


@pytest.mark.parametrize(
    "printed, wanted",
    [
        ("a\nb\n", ("a", "b")),
        ("a  \n", ("a",)),
        ("", ()),
        ("pid 17 up\n", ("pid … up",)),
        ("a\nb\nc\n", ("…", "c")),
        ("c\n", ("…", "c")),
        ("a\nb\n", ("a", "…")),
        ("x (y) [z] *\n", ("x (y) [z] *",)),
        ("waiting for node 2 to serve\na\n", ("a",)),
        ("waiting for node 2 to serve\na\n", ("waiting for …", "a")),
    ],
)
def test_what_a_page_says_is_found(printed: str, wanted: tuple[str, ...]) -> None:
    assert matches(printed, wanted)


@pytest.mark.parametrize(
    "printed, wanted",
    [
        ("a\nb\n", ("a",)),
        ("a\n", ("a", "b")),
        ("a\n", ()),
        ("", ("a",)),
        ("pid 17\nup\n", ("pid … up",)),
        ("axb\n", ("a.b",)),
        ("a\n", ("waiting for …", "a")),
    ],
)
def test_a_difference_is_not_overlooked(printed: str, wanted: tuple[str, ...]) -> None:
    assert not matches(printed, wanted)


def test_a_block_is_commands_with_what_they_print() -> None:
    found = list(commands_of("$ one \\\n> two\nprinted\n\n$ three &\n"))
    assert found == [
        Command(text="one \\\ntwo", printed=("printed", "")),
        Command(text="three &", printed=()),
    ]
    assert [command.in_background for command in found] == [False, True]


@pytest.mark.parametrize("block", ["", "printed\n$ one\n"])
def test_a_block_without_a_command_at_its_head_is_refused(block: str) -> None:
    with pytest.raises(ValueError, match="command"):
        list(commands_of(block))


PAGE = """
```console
$ export WORD=kept && cd / && cd - > /dev/null
$ sleep 0.1 && echo later $WORD &
later kept
$ echo $WORD; echo 2>&1 problem; (exit 3); echo $?
kept
problem
3
```

```python
import sys
print("printed", 19092)
print("warned", file=sys.stderr)
```

```text
printed 19092
```

<!-- not run: it says so -->
```toml
x = 1
```

<!-- slow: it says so -->
```console
$ false && true
```

<!-- file: kept.py -->
```python
1 / 0
```

```console
$ cat kept.py
1 / 0
```
"""


def test_a_page_is_read_in_order_and_its_marks_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    blocks = blocks_of(page)
    assert [block.language for block in blocks] == [
        "console",
        "python",
        "text",
        "toml",
        "console",
        "python",
        "console",
    ]
    assert [block.not_run for block in blocks] == [None, None, None, "it says so", None, None, None]
    assert [block.slow for block in blocks] == [None, None, None, None, "it says so", None, None]
    assert [block.file for block in blocks] == [*[None] * 5, "kept.py", None]
    steps = list(steps_of(blocks))
    assert [output is not None for _, output in steps] == [False, True, False, False, False]
    with Reader(tmp_path) as reader:
        for block, output in steps:
            reader.read(block, output)


@pytest.mark.parametrize(
    "block", ["```console\n$ echo one\ntwo\n```", "```python\nprint(1)\n```", "```python\n1 / 0\n```"]
)
def test_an_example_that_prints_something_else_fails(tmp_path: Path, block: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(block, encoding="utf-8")
    with Reader(tmp_path) as reader, pytest.raises(AssertionError, match=r"page\.md:1: \$ "):
        reader.read(blocks_of(page)[0])


def test_what_runs_in_the_background_ends_with_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ (sleep 1000 & echo begun; wait) &\nbegun\n```", encoding="utf-8")
    with Reader(tmp_path) as reader:
        reader.read(blocks_of(page)[0])
        # The line may be there before the process has become `sleep`.
        while not sleepers_in(tmp_path):
            os.sched_yield()
    assert not sleepers_in(tmp_path)


def sleepers_in(directory: Path) -> list[int]:
    """The processes `sleep` that run in a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "comm").read_text() == "sleep\n" and (process / "cwd").readlink() == directory:
                found.append(int(process.name))
    return found
