"""Each rule that is cited has one plain sentence, and docs/rules.md lists them all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT
from tools.rules import RULES, Citation, Citations, RuleError, read_rules

GROUPS = read_rules((ROOT / RULES).read_text(encoding="utf-8"))

TWO_GROUPS = """
[LS]
subject = "a segment"
is_tested = true
LS1 = "A segment holds batches."

[FET]
subject = "a follower's fetches"
FET-9 = "A follower skips what it must not append."
FET-9a = "A follower skips the rest too."
FET-9b = "A follower asks for it again."

[B]
subject = "mistakes"
B-01 = "A mistake loses records."
"""


def plant(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding="utf-8")


def run_tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, str(ROOT / "tools" / "rules_table.py"), *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def codes_in(text: str) -> list[str]:
    return [code for _, code in Citations(read_rules(TWO_GROUPS)).in_text(text)]


def is_plain(sentence: str) -> bool:
    """Whether the text is one short line of at most two sentences; the second says where replog deviates from Kafka."""
    is_one_line = not set(sentence) & set("\n|") and sentence == sentence.strip()
    return is_one_line and sentence.endswith(".") and len(sentence) <= 200 and sentence.count(". ") <= 1


def test_each_rule_is_one_short_line_that_ends_with_a_full_stop() -> None:
    assert [code for group in GROUPS for code, text in group.sentences.items() if not is_plain(text)] == []


def test_the_page_is_current_each_cited_code_has_a_sentence_and_each_rule_of_the_log_a_test() -> None:
    done = run_tool("--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("storage/log/appends.py", '"""Appends.\n\nKafka: UnifiedLog; rules LS1 to LS3.\n"""\n', 3),
        ("cluster/core/fetcher.py", "# LS3: nothing is skipped.\nx = 1\n", 1),
        ("sim/checkers/one.py", 'def judge():\n    return f"{1} breaks LS3"\n', 2),
        ("tests/storage/test_log.py", "def test_ls3_nothing_is_skipped(): ...\n", 1),
        ("tests/storage/test_log.py", "def test_ls1_ls3_nothing_is_skipped(): ...\n", 1),
        ("tests/storage/test_log.py", 'def test_it():\n    """LS3."""\n', 2),
        ("tools/mistakes.toml", '[[mistake]]\nrule = "LS3: nothing is skipped"\n', 2),
        ("ARCHITECTURE.md", "Nothing is skipped (LS3).\n", 1),
    ],
)
def test_a_cited_code_without_a_sentence_is_noticed(tmp_path: Path, name: str, text: str, line: int) -> None:
    plant(tmp_path, name, text)
    citations = Citations(read_rules(TWO_GROUPS))
    assert citations.unknown(citations.in_checkout(tmp_path)) == [Citation(name, line, "LS3")]


@pytest.mark.parametrize(
    "text",
    [
        "LS3 = 1\nx = LS3\n",
        "def test_v2_of_ls3_is_read(): ...\n",
        "x = 1  # noqa: B007\n",
        '"""CRC32, LZ4, SHA256, UTF8, KIP-497, KAFKA-7415, XLS3, B01, LS100, LS-a."""\n',
    ],
)
def test_what_is_no_code_of_a_group_is_passed_over(tmp_path: Path, text: str) -> None:
    plant(tmp_path, "storage/log/partition_log.py", text)
    plant(tmp_path, "tests/test_log.py", text)
    assert list(Citations(read_rules(TWO_GROUPS)).in_checkout(tmp_path)) == []


def test_a_string_of_a_test_that_is_no_docstring_is_data(tmp_path: Path) -> None:
    plant(tmp_path, "tests/test_log.py", "ROWS = [\n    # LS1\n    'LS3',\n]\n")
    assert list(Citations(read_rules(TWO_GROUPS)).in_checkout(tmp_path)) == [
        Citation("tests/test_log.py", 2, "LS1")
    ]


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("FET-9 and FET9", ["FET-9", "FET9"]),
        ("LS1 to LS20", ["LS1", "LS20"]),
        ("LS1-LS20", ["LS1", "LS20"]),
        ("LS9-12", ["LS9", "LS12"]),
        ("LS1 to 3 hold", ["LS1", "LS3"]),
        ("LS1 to a file", ["LS1"]),
        ("FET-9a to b, in this order", ["FET-9a", "FET-9b"]),
        ("B-01's schedule", ["B-01"]),
    ],
)
def test_a_range_cites_its_ends_in_every_spelling(text: str, cited: list[str]) -> None:
    assert codes_in(text) == cited


def test_a_sentence_may_cite_only_codes_that_have_a_sentence() -> None:
    citations = Citations(read_rules(TWO_GROUPS.replace("holds batches", "holds batches (FET-9, LS7)")))
    assert citations.unknown(citations.in_sentences()) == [Citation(f"{RULES}, LS1", 0, "LS7")]


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("AP1", "not a code of group LS"),
        ("LS0", "not in order"),
        ("LS3", "a gap"),
        ("LSx", "not a code of group LS"),
    ],
)
def test_a_code_of_another_group_out_of_order_or_after_a_gap_is_refused(code: str, complaint: str) -> None:
    with pytest.raises(RuleError, match=complaint):
        read_rules(TWO_GROUPS.replace("\n\n[FET]", f'\n{code} = "A rule."\n\n[FET]'))


def test_the_check_fails_until_the_page_the_tests_and_the_sentences_are_complete(tmp_path: Path) -> None:
    plant(tmp_path, RULES, TWO_GROUPS)
    plant(tmp_path, "storage/log/partition_log.py", "# LS1 and FET-8\n")
    root = ("--root", str(tmp_path))
    done = run_tool("--check", *root)
    assert done.returncode == 1 and done.stderr.splitlines() == [
        "LS1 has no test",
        f"storage/log/partition_log.py:1: FET-8 is cited and has no sentence in {RULES}",
        "docs/rules.md is out of date: make generate",
    ]
    plant(tmp_path, "storage/log/partition_log.py", "# LS1 and FET-9\n")
    plant(tmp_path, "tests/test_log.py", "def test_ls1_it_holds_batches(): ...\n")
    assert run_tool(*root).returncode == 0
    assert run_tool("--check", *root).returncode == 0
    assert "| LS1 | A segment holds batches. | 1 |" in (tmp_path / "docs/rules.md").read_text(
        encoding="utf-8"
    )


def test_one_rule_is_printed_with_its_sentence_first_and_then_its_tests(tmp_path: Path) -> None:
    plant(tmp_path, RULES, TWO_GROUPS)
    plant(tmp_path, "tests/test_fetch.py", "def test_fet9_it_skips(): ...\ndef test_fet9b_it_asks(): ...\n")
    done = run_tool("--rule", "fet9", "--root", str(tmp_path))
    assert done.returncode == 0 and done.stdout.splitlines() == [
        "FET-9: A follower skips what it must not append.",
        "tests/test_fetch.py::test_fet9_it_skips",
        "tests/test_fetch.py::test_fet9b_it_asks",
    ]
    done = run_tool("--rule", "FET-1", "--root", str(tmp_path))
    assert done.returncode == 1 and "there is no rule FET-1" in done.stderr
