"""Docstrings and comments of the whole tree keep the rules for words; tools/prose.py notices each planted breach."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.places import ROOT
from tools import prose
from tools.prose import EVERYTHING, LEANING, WORDS, Finding, check, check_text

PRODUCT, TEST = "storage/planted.py", "tests/test_planted.py"
EITHER = pytest.mark.parametrize("path", [PRODUCT, TEST])

GOOD = '''\
"""Offsets of batches, and what follows from them: a log forgives no gap."""

LIMIT = 1 << 20

# Kafka's limit is one more, because its ends are inclusive.
MOST = LIMIT - 1
anew, gives = "anew", 'Of "gives"'  # noqa: F841


class Log:
    """A list of batches."""

    def append(self, data):
        """Append the batch. Returns its offset; raises ValueError for empty data."""
        if not data:
            raise ValueError("no bytes")
        self.batches = [*getattr(self, "batches", []), data]
        return len(self.batches) - 1

    def size(self):
        total = 0
        for each in self.batches:
            total += len(each)
        return total


class _Private:
    def long(self):
        return 1


def _private(number):
    number += 1
    number += 2
    number += 3
    number += 4
    return number
'''


def found(path: str, text: str) -> list[int]:
    """Return the lines of the findings."""
    return [each.line for each in check_text(path, dedent(text))]


def test_the_whole_tree_keeps_the_rules_for_words() -> None:
    assert [str(each) for each in check(ROOT, list(EVERYTHING))] == []


@EITHER
def test_good_text_has_no_finding(path: str) -> None:
    assert found(path, GOOD) == []


@EITHER
@pytest.mark.parametrize("word", sorted(LEANING))
@pytest.mark.parametrize("owner", ["", "class Log:\n    ", "def read():\n    ", "async def read():\n    "])
def test_a_docstring_may_not_open_with_a_word_that_leans_on_a_name(path: str, word: str, owner: str) -> None:
    line = owner.count("\n") + 1
    assert line in found(path, f'{owner}"""{word} the log, in one line."""\n')
    assert found(path, f'{owner}"""The log, {word.lower()}ward in one line."""\n') == []


@pytest.mark.parametrize(
    "opening", ["Offsets of a log.", "Assert it.", "Forward a batch.", "Whoever asks.", "`By`."]
)
def test_a_longer_word_with_the_same_beginning_may_open_a_docstring(opening: str) -> None:
    assert found(PRODUCT, f'"""{opening}"""\n') == []


@EITHER
@pytest.mark.parametrize("word", sorted(WORDS))
def test_an_odd_word_is_found_in_docstrings_and_comments_and_not_in_code(path: str, word: str) -> None:
    assert 1 in found(path, f'"""Build it {word}."""\n')
    assert found(path, f"# It is built {word}.\nLIMIT = 1\n") == [1]
    assert found(path, f'{word} = "{word}"\n') == []
    assert found(path, f"# Un{word.lower()}d words are others.\nLIMIT = 1\n") == []


def test_a_public_class_of_the_product_needs_a_docstring() -> None:
    assert found(PRODUCT, "class Log:\n    size = 0\n") == [1]
    assert found(PRODUCT, "class _Log:\n    size = 0\n") == []
    assert found(PRODUCT, 'class Log:\n    """A log."""\n') == []
    assert found(TEST, "class Log:\n    size = 0\n") == []


@pytest.mark.parametrize("head", ["def read():", "async def read():"])
def test_a_public_function_of_more_than_five_lines_needs_a_docstring(head: str) -> None:
    five, six = (f"{head}\n" + "    pass\n" * count for count in (4, 5))
    assert (found(PRODUCT, five), found(PRODUCT, six), found(TEST, six)) == ([], [1], [])
    assert found(PRODUCT, six.replace("read", "_read")) == []
    assert found(PRODUCT, six.replace("pass", '"""Read."""', 1)) == []


def test_methods_need_docstrings_as_functions_do_and_those_of_a_private_class_do_not() -> None:
    method = '    """A log."""\n\n    def read(self):\n' + "        pass\n" * 5
    assert found(PRODUCT, f"class Log:\n{method}") == [4]
    assert found(PRODUCT, f"class _Log:\n{method}") == []


def test_a_comment_of_the_product_is_above_its_line() -> None:
    assert found(PRODUCT, "LIMIT = 1  # a reason\n") == [1]
    assert found(PRODUCT, "def read():  # a reason\n    pass\n") == [1]
    assert found(PRODUCT, "# A reason.\nLIMIT = 1\n") == []
    assert found(PRODUCT, 'LIMIT = "# no comment"\n') == []
    assert found(TEST, "LIMIT = 1  # a label\n") == []


@pytest.mark.parametrize(
    "mark", ["noqa: E501", "type: ignore", "fmt: skip", "pragma: no cover", "pyright: ignore"]
)
def test_a_mark_for_a_tool_may_follow_code(mark: str) -> None:
    assert found(PRODUCT, f"LIMIT = 1  # {mark}\n") == []


@EITHER
@pytest.mark.parametrize(
    "banner", ["# -----", "# ===", "#####", "# *** reads ***", "# -- reads --", "# == reads =="]
)
def test_a_comment_is_no_banner(path: str, banner: str) -> None:
    assert found(path, f"{banner}\nLIMIT = 1\n") == [1]


@pytest.mark.parametrize(
    "comment", ["# - one of a list", "# Reads.", "# From 1 -- the first -- to 3.", "# a == b"]
)
def test_a_dash_within_a_comment_makes_no_banner(comment: str) -> None:
    assert found(PRODUCT, f"{comment}\nLIMIT = 1\n") == []


def planted(root: Path) -> list[str]:
    """Plant three breaches in a tree, one of them in generated code. Returns the folders."""
    for name in ("cluster/rpc/log_pb2.py", "storage/log.py", "tests/log/test_log.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text('"""A log."""\n\n# ---- reads\n', encoding="utf-8")
    return ["tests", "cluster", "storage"]


def test_a_tree_is_walked_in_order_and_generated_code_is_left_out(tmp_path: Path) -> None:
    folders = planted(tmp_path)
    assert [(each.path, each.line) for each in check(tmp_path, folders)] == [
        ("storage/log.py", 3),
        ("tests/log/test_log.py", 3),
    ]
    assert [each.path for each in check(tmp_path, ["tests/log/test_log.py"])] == ["tests/log/test_log.py"]


def test_a_finding_is_one_line_with_file_and_line() -> None:
    assert str(Finding("storage/log.py", 3, "a banner")) == "storage/log.py:3: a banner"


def test_the_status_says_whether_something_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planted(tmp_path)
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    for folder, status, lines in (("storage", 1, 1), ("cluster", 0, 0)):
        monkeypatch.setattr(sys, "argv", ["prose.py", folder])
        assert prose.main() == status
        assert len(capsys.readouterr().out.splitlines()) == lines
