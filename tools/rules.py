"""Reads the rules of tests/rules.toml, and finds the places in a checkout that cite them.

A citation is a rule's code (`LS10`, `FET-9`, `LS1 to LS20`, `RT9-12`) in a comment or string of a Python file, in a
comment, a docstring or the first words of a test's name (`test_fet9_...`) below tests/, or anywhere in a page.
"""

from __future__ import annotations

import io
import re
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

RULES = "tests/rules.toml"
PYTHON_FOLDERS = ("storage", "cluster", "sim", "pipeline", "replog", "bench", "tools", "tests")
PAGES = ("*.md", "docs/*.md", "tools/*.toml", "proto/**/*.proto", "scenarios/*.yaml")
GENERATED = frozenset({"docs/rules.md"})

_TEXT_TOKENS = frozenset({tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)})
_STATEMENT_ENDS = frozenset({tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT})
_CODE = re.compile(r"([A-Z]+(?:-[A-Z]+)?-?)(\d+)([a-z]?)")
# After a code: the end of a range that does not repeat the group's name, a number or the letter of a last part.
_RANGE_END = re.compile(r"(?:-| to )(\d{1,2}[a-z]?|[a-z])(?![\w-])")
_IN_TEST_NAME = re.compile(r"test_((?:[a-z]{1,5}\d{1,2}[a-z]?_)+)")


class RuleError(Exception):
    """tests/rules.toml contradicts itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleGroup:
    """The rules whose codes begin with `name`. `sentences` maps each code to what the rule says, in order.

    `kafka` names the classes of Kafka's that hold the rules, or nothing. With `is_tested` every rule has a test.
    """

    name: str
    subject: str
    kafka: str
    is_tested: bool
    sentences: dict[str, str]


class Citation(NamedTuple):
    """`code` as it is spelled in line `line` (from 1) of the file `path`, which is relative to the checkout."""

    path: str
    line: int
    code: str


def key_of(code: str) -> str:
    """Returns the form in which two spellings of one code are equal: `FET9` for `FET-9`."""
    return code.replace("-", "")


def read_rules(text: str) -> tuple[RuleGroup, ...]:
    """Parse the groups in `text`, which is TOML. Raises RuleError for a code of another group or after a gap."""
    groups = []
    for name, table in tomllib.loads(text).items():
        sentences = {code: sentence for code, sentence in table.items() if code[0].isupper()}
        group = RuleGroup(
            name=name,
            subject=table["subject"],
            kafka=table.get("kafka", ""),
            is_tested=table.get("is_tested", False),
            sentences=sentences,
        )
        _check_codes(group)
        groups.append(group)
    return tuple(groups)


def _check_codes(group: RuleGroup) -> None:
    numbers = []
    for code in group.sentences:
        match = _CODE.fullmatch(code)
        if match is None or match[1].removesuffix("-") != group.name:
            raise RuleError(f"{code} is not a code of group {group.name}")
        numbers.append(int(match[2]))
    if numbers != sorted(numbers):
        raise RuleError(f"the rules of group {group.name} are not in order")
    if group.is_tested and set(numbers) != set(range(1, len(set(numbers)) + 1)):
        raise RuleError(f"the numbers of group {group.name} have a gap")


class Citations:
    """Finds the codes of `groups` in texts and files."""

    def __init__(self, groups: Iterable[RuleGroup]) -> None:
        self._groups = tuple(groups)
        self._sentences = {key_of(code) for group in self._groups for code in group.sentences}
        self._lower_names = {group.name.replace("-", "").lower() for group in self._groups}
        names = sorted(map(_spelled, self._groups), key=len, reverse=True)
        self._pattern = re.compile(rf"(?:(?<![\w-])|(?<=\d-))({'|'.join(names)})(\d{{1,2}}[a-z]?)(?!\w)")

    def unknown(self, citations: Iterable[Citation]) -> list[Citation]:
        """Returns those of `citations` whose rule has no sentence."""
        return [citation for citation in citations if key_of(citation.code) not in self._sentences]

    def in_text(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield each cited code with the index in `text` at which the citation begins; a range cites both its ends."""
        for match in self._pattern.finditer(text):
            group, number = match.groups()
            yield match.start(), group + number
            end = _RANGE_END.match(text, match.end())
            if end is None:
                continue
            if end[1].isdigit() or len(end[1]) > 1:
                yield match.start(), group + end[1]
            elif number[-1].isalpha():
                yield match.start(), group + number[:-1] + end[1]

    def in_sentences(self) -> Iterator[Citation]:
        """Yield the codes that the sentences themselves cite, each with line 0."""
        for group in self._groups:
            for code, sentence in group.sentences.items():
                yield from (Citation(f"{RULES}, {code}", 0, cited) for _, cited in self.in_text(sentence))

    def in_test_name(self, name: str) -> list[str]:
        """Returns the codes with which the name of a test begins: `LS13` and `T9` for `test_ls13_t9_the_end`."""
        match = _IN_TEST_NAME.match(name)
        pieces = match[1].split("_") if match else []
        codes = []
        for piece in pieces:
            group = piece.rstrip("abcdefghijklmnopqrstuvwxyz").rstrip("0123456789")
            if piece and group in self._lower_names:
                codes.append(group.upper() + piece[len(group) :])
        return codes

    def in_checkout(self, root: Path) -> Iterator[Citation]:
        """Yield all citations in the Python files, pages and lists below `root`."""
        for folder in PYTHON_FOLDERS:
            for path in sorted((root / folder).rglob("*.py")):
                yield from self._in_python(
                    path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
                )
        for pattern in PAGES:
            for path in sorted(root.glob(pattern)):
                name = path.relative_to(root).as_posix()
                if name not in GENERATED:
                    yield from self._in_page(name, path.read_text(encoding="utf-8"))

    def _in_page(self, name: str, text: str) -> Iterator[Citation]:
        for start, code in self.in_text(text):
            yield Citation(name, text.count("\n", 0, start) + 1, code)

    def _in_python(self, name: str, source: str) -> Iterator[Citation]:
        is_test = name.startswith("tests/")
        # Reading tokens takes long, and a text without any code needs none.
        if not (self._pattern.search(source) or is_test):
            return
        before = tokenize.NEWLINE
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            # Other strings of a test are its data.
            is_data = is_test and token.type != tokenize.COMMENT and before not in _STATEMENT_ENDS
            if token.type in _TEXT_TOKENS and not is_data:
                for start, code in self.in_text(token.string):
                    yield Citation(name, token.start[0] + token.string.count("\n", 0, start), code)
            elif is_test and token.type == tokenize.NAME and token.string.startswith("test_"):
                for code in self.in_test_name(token.string):
                    yield Citation(name, token.start[0], code)
            if token.type not in (tokenize.NL, tokenize.COMMENT):
                before = token.type


def _spelled(group: RuleGroup) -> str:
    """Returns a pattern for the group's name in a citation. A name of one letter is spelled as in its codes, a longer
    one with or without a dash.
    """
    if len(group.name) > 1:
        return f"{group.name}-?"
    return f"{group.name}-" if any("-" in code for code in group.sentences) else group.name
