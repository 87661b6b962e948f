"""The examples of a page, found by Sybil, and how each kind is run.

| block | what is done with it |
| --- | --- |
| `console` | each `$ command` runs in one shell, and what it prints is compared with the lines that follow |
| `python` | runs as a file of its own; a `text` block that follows at once is what it prints |
| `yaml` | is loaded as a scenario, and kept under its own name for the commands that follow |
| others | must stand after `<!-- not run: REASON -->` |

`<!-- slow: REASON -->` before a block keeps it out of the fast run. `<!-- file: NAME -->` before one keeps it as a file
for the commands that follow; it is not run.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

from sybil import Document, Example, Region
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

from cluster.commands.options import BOOTSTRAP_VARIABLE
from cluster.local.layout import CONTROLLER_PORT_DISTANCE, DEFAULT_PORT
from cluster.shell.clients import DEFAULT_BOOTSTRAP
from sim.scenario.loading import parse_scenario
from tests.cluster.local.real_cluster import free_port
from tests.pages.shell import Command, Shell, commands_of, difference, matches
from tests.places import ROOT

# Pages show the default ports, of at most so many nodes.
MAX_NODES = 9
_BLOCK = RawFencedCodeBlockLexer(re.compile(r"(?P<language>[^\n]*)\n"))
# Directives, such as `{click}`, are no examples: the generator fills them in.
_DIRECTIVE = re.compile(r"\{[\w:-]+\}")
_MARK = re.compile(r"<!-- (not run|slow|file): ([^\n]+?) -->\s*\Z")
_ONLY_BLANK = re.compile(r"\s*\Z")
_PORT = re.compile(r"\b(190(?:9[2-9]|100)|20092)\b")
_UP = re.compile(r"\breplog up\b(?![^|;&\n]*--port)")
_SCENARIO_NAME = re.compile(r"^scenario: ([a-z0-9-]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a page: its language, its text, the line on which it begins, and its marks."""

    page: Path
    line: int
    language: str
    text: str
    not_run: str | None
    slow: str | None
    file: str | None
    # The text between this block and the one before is blank.
    follows_at_once: bool

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page in order, directives aside."""
    document = Document.parse(str(page), _regions)
    found: list[Block] = []
    end_before = 0
    for example in document:
        found.append(_block(page, example, document.text[end_before : example.start]))
        end_before = example.end
    return found


def _regions(document: Document) -> Iterable[Region]:
    for region in _BLOCK(document):
        if not _DIRECTIVE.match(region.lexemes["language"]):
            region.parsed = region.lexemes
            yield region


def _block(page: Path, example: Example, before: str) -> Block:
    mark = _MARK.search(before)
    kind, reason = (mark[1], mark[2]) if mark else ("", None)
    return Block(
        page=page,
        line=example.line,
        language=example.parsed["language"].strip(),
        text=str(example.parsed["source"]),
        not_run=reason if kind == "not run" else None,
        slow=reason if kind == "slow" else None,
        file=reason if kind == "file" else None,
        follows_at_once=_ONLY_BLANK.match(before) is not None,
    )


@final
class Reader:
    """Does what a reader of a page would do, in a directory of its own and on ports of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.blocks_read = 0
        self._port = free_port(MAX_NODES)
        bin_directory = directory / ".bin"
        bin_directory.mkdir()
        for name, arguments in (("replog", "-m replog"), ("python", ""), ("python3", "")):
            script = bin_directory / name
            script.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n', encoding="utf-8")
            script.chmod(0o755)
        # Pages name files of the checkout as its reader would.
        for name in ("scenarios", "tests"):
            (directory / name).symlink_to(ROOT / name)
        self._shell = Shell(directory, self._environment(bin_directory))

    def _environment(self, bin_directory: Path) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("REPLOG_", "PYTEST_"))
        }
        return kept | {
            "PATH": f"{bin_directory}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "error::SyntaxWarning",
            BOOTSTRAP_VARIABLE: self._with_own_ports(DEFAULT_BOOTSTRAP),
            "COLUMNS": "120",
        }

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *raised: object) -> None:
        for started in self._directory.glob("*/cluster.json"):
            ended = self._shell.run(
                Command(text=f"replog down --data {started.parent}", printed=()), lambda text: True
            )
            assert "has ended" in ended or "no cluster is running" in ended, ended
        self._shell.close()

    def read(self, block: Block, printed_by_python: Block | None = None) -> None:
        """Run one block. Raises AssertionError with what was printed if that is not what the page says."""
        match block.language:
            case _ if block.file is not None:
                (self._directory / block.file).write_text(block.text, encoding="utf-8")
            case "console":
                for command in commands_of(block.text):
                    self._check(block, command)
            case "python":
                wanted = tuple(printed_by_python.text.splitlines()) if printed_by_python else ()
                name = f"example_{block.line}.py"
                (self._directory / name).write_text(self._with_own_ports(block.text), encoding="utf-8")
                # Warnings on standard error are no part of what it prints; they show where it fails.
                text = f"python {name} 2> {name}.err || cat {name}.err"
                self._check(block, Command(text=text, printed=wanted))
            case "yaml":
                parse_scenario(block.text, block.place)
                name = f"{_scenario_name(block.text)}.yaml"
                (self._directory / name).write_text(block.text, encoding="utf-8")
            case _:
                raise AssertionError(f"{block.place}: a block in {block.language!r} cannot be run")
        self.blocks_read += 1

    def _check(self, block: Block, command: Command) -> None:
        own = Command(text=self._with_own_ports(command.text), printed=command.printed)
        printed = self._with_shown_ports(
            self._shell.run(own, lambda text: matches(self._with_shown_ports(text), command.printed))
        )
        assert matches(printed, command.printed), (
            f"{block.place}: $ {command.text}\n{difference(printed, command.printed)}"
        )

    def _with_own_ports(self, text: str) -> str:
        text = _UP.sub(f"replog up --port {self._port}", text)
        return _PORT.sub(lambda match: str(int(match[1]) - DEFAULT_PORT + self._port), text)

    def _with_shown_ports(self, text: str) -> str:
        for number in (*range(MAX_NODES), CONTROLLER_PORT_DISTANCE):
            text = re.sub(rf"\b{self._port + number}\b", str(DEFAULT_PORT + number), text)
        return text.replace(str(self._directory), "/tmp/try")


def _scenario_name(text: str) -> str:
    found = _SCENARIO_NAME.search(text)
    assert found is not None, "a scenario has a name"
    return found[1]


def steps_of(blocks: list[Block]) -> Iterator[tuple[Block, Block | None]]:
    """Yield each block that is run, with the block of what it prints if it is Python's."""
    for number, block in enumerate(blocks):
        before = blocks[number - 1] if number else None
        after = blocks[number + 1] if number + 1 < len(blocks) else None
        if not block.not_run and not _is_output(block, before):
            yield block, after if after is not None and _is_output(after, block) else None


def _is_output(block: Block, before: Block | None) -> bool:
    is_python = before is not None and before.language == "python"
    return block.language == "text" and block.follows_at_once and is_python
