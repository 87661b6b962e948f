"""Every example of README.md and of docs/ runs and prints what the page says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.session import SparkUnavailable, check_available
from tests.pages.examples import Reader, blocks_of, steps_of
from tests.places import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WITH_EXAMPLES = [page for page in PAGES if blocks_of(page)]
# The blocks of each page that are marked as not run: one more has to be counted here.
NOT_RUN = {"README.md": 1}
KNOWN = {"console", "python", "yaml"}


def skip_without_java(page: Path) -> None:
    """Spark needs Java, which not every machine has."""
    if page.name == "spark.md":
        try:
            check_available()
        except SparkUnavailable as reason:
            pytest.skip(str(reason))


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.name)
def test_the_examples_of_a_page_print_what_it_says(page: Path, tmp_path: Path) -> None:
    skip_without_java(page)
    steps = [step for step in steps_of(blocks_of(page)) if not step[0].slow]
    with Reader(tmp_path) as reader:
        for block, output in steps:
            reader.read(block, output)
        assert reader.blocks_read == len(steps)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page",
    [page for page in WITH_EXAMPLES if any(block.slow for block in blocks_of(page))],
    ids=lambda page: page.name,
)
def test_the_slow_examples_of_a_page_print_what_it_says(page: Path, tmp_path: Path) -> None:
    skip_without_java(page)
    steps = list(steps_of(blocks_of(page)))
    with Reader(tmp_path) as reader:
        for block, output in steps:
            reader.read(block, output)
        assert reader.blocks_read == len(steps)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_a_page_is_run_or_says_why_not(page: Path) -> None:
    blocks = blocks_of(page)
    silent = [block.place for block, _ in steps_of(blocks) if block.language not in KNOWN]
    assert silent == []
    assert sum(block.not_run is not None for block in blocks) == NOT_RUN.get(page.name, 0)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_import_nothing_of_ours_but_replog(page: Path) -> None:
    inner = ("cluster", "sim", "storage", "pipeline")
    starts = tuple(f"{word} {name}" for word in ("from", "import") for name in inner)
    found = [
        line
        for block in blocks_of(page)
        if block.language == "python"
        for line in block.text.splitlines()
        if line.strip().startswith(starts)
    ]
    assert found == []


@pytest.mark.slow
def test_the_examples_in_python_pass_mypy_in_strict_mode(tmp_path: Path) -> None:
    for page in WITH_EXAMPLES:
        for block in blocks_of(page):
            if block.language == "python":
                name = f"{page.stem.replace('-', '_')}_{block.line}.py"
                (tmp_path / name).write_text(block.text, encoding="utf-8")
    # The settings of the checkout, where the packages without types are named, hold for the examples too.
    arguments = ["--strict", "--config-file", "pyproject.toml", *map(str, sorted(tmp_path.glob("*.py")))]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
