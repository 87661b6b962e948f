"""What the pages name exists: files, folders, tests, commands, classes and the parts of a log."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import click
import pytest

from replog import commands
from storage.config import LogConfig
from storage.disk.os_filesystem import OsFileSystem
from storage.log import PartitionLog
from storage.server_settings import SERVER_NAMES
from tests.places import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "tests/golden/README.md"])
MAP = ROOT / "ARCHITECTURE.md"
MAPPED = ("storage", "cluster", "sim")
DEEPEST_FOLDER = 3
TOP = "storage|cluster|sim|pipeline|replog|tests|tools|bench|scenarios|docs|proto"
_CODE = re.compile(r"`([^`\n]+)`")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!\w+:)([^)#]+)\)")
_TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
_PATH = re.compile(rf"(?<![\w./-])(?:{TOP})/(?:[\w./-]*[\w/])?")
_MODULE = re.compile(r"python -m ([\w.]+)")
_TARGETS = re.compile(r"make ((?:[a-z-]+ ?)+)")
_FILE_OR_FOLDER = re.compile(r"[\w-][\w.-]*(?:/[\w.-]+)*(?:/|\.(?:py|jsonl|md|toml|yaml|lock))")
_CLASS = re.compile(r"([A-Z][a-z]+(?:[A-Z][a-z]+)+|[A-Z][a-z]{4,})(?:\.(\w+))?(?:\(.*\))?")
_CLASS_STATEMENT = re.compile(r"^class (\w+)", re.MULTILINE)
_SCENARIO = re.compile(r"^scenario: (\S+)$", re.MULTILINE)
_FILE = re.compile(r"^<!-- file: (\S+) -->$", re.MULTILINE)
_OPTION = re.compile(r"--[a-z][a-z-]*")
_PART = re.compile(r"log\.([a-z]\w*)\.(\w+)(?:\(.*\))?")
# Names of Kafka's classes and of Python's own.
NOT_OURS = {"FileMessageSet", "MessageAndOffset", "Message", "BaseException", "Protocol", "NamedTuple"}


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def code_in(page: Path) -> list[str]:
    """What the page has between single backticks, outside of its blocks."""
    return _CODE.findall(_FENCE.sub("", text_of(page)))


@cache
def functions_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@cache
def homes_of_classes() -> dict[str, list[str]]:
    """The classes of the checkout by name, each with the text of the files that define one of that name."""
    found: dict[str, list[str]] = defaultdict(list)
    for folder in ("storage", "cluster", "sim", "pipeline", "replog", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for name in _CLASS_STATEMENT.findall(text):
                found[name].append(text)
    return found


def is_defined(name: str, member: str | None) -> bool:
    """Whether there is such a class and, in its file, a method or an attribute `member`."""
    pattern = re.compile(rf"\bdef {member}\b|\bself\.{member}\b|^    {member}:", re.MULTILINE)
    homes = homes_of_classes().get(name, [])
    return any(member is None or pattern.search(text) for text in homes)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = _TEST.findall(text_of(page))
    missing = [f"{file}::{name}" for file, name in named if name not in functions_in(ROOT / file)]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    named = [found for code in code_in(page) for found in _PATH.findall(code.partition("::")[0])]
    links = [str((page.parent / link).relative_to(ROOT)) for link in _LINK.findall(text_of(page))]
    missing = [path for path in (*named, *links) if not (ROOT / path).exists()]
    # A page's examples make a file of each of its scenarios, and of each block that is marked as a file.
    own = {f"{name}.yaml" for name in _SCENARIO.findall(text_of(page))} | set(_FILE.findall(text_of(page)))
    near = [code for code in code_in(page) if _FILE_OR_FOLDER.fullmatch(code) and code not in own]
    missing += [path for path in near if not any((top / path).exists() for top in (ROOT, page.parent))]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = [target for found in _TARGETS.findall("\n".join(code_in(page))) for target in found.split()]
    modules = [name.replace(".", "/") for name in _MODULE.findall(text_of(page)) if name != "pytest"]
    homes = [(ROOT / f"{name}.py", ROOT / name / "__main__.py") for name in modules]
    assert [target for target in named if target not in targets] == []
    assert [home for home in homes if not any(path.exists() for path in home)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_replog_that_a_page_names_exists_with_its_options(page: Path) -> None:
    # `replog log recover|truncate` stands for several.
    named = [code for code in code_in(page) if code.startswith("replog ") and "|" not in code]
    missing = [code for code in named if not is_command(code)]
    assert not missing


def is_command(code: str) -> bool:
    """Whether `replog` has the command that these words begin with, and the command the options after it."""
    command: click.Command | None = commands.replog
    for word in code.split()[1:]:
        if not isinstance(command, click.Group) or word.startswith("-"):
            break
        command = command.get_command(click.Context(command), word)
    if command is None:
        return False
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    return {*_OPTION.findall(code)} <= {*known, "--help"}


def test_a_command_or_an_option_that_is_none_is_noticed() -> None:
    assert is_command("replog up --nodes 3") and is_command("replog log verify DIRECTORY")
    assert not is_command("replog upp") and not is_command("replog log verified")
    assert not is_command("replog up --knots 3")


def test_every_class_and_member_that_the_architecture_names_exists() -> None:
    named = [match for code in code_in(MAP) if (match := _CLASS.fullmatch(code))]
    missing = [match[0] for match in named if match[1] not in NOT_OURS and not is_defined(match[1], match[2])]
    assert len(named) > 50 and not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_part_of_a_log_that_a_page_names_exists(page: Path, tmp_path: Path) -> None:
    directory = str(tmp_path / "t-0")
    log = PartitionLog.open(OsFileSystem(), directory, LogConfig(), clean=False, now_ms=0)
    settings = {setting.name for names in SERVER_NAMES.values() for setting in names}
    named = [_PART.fullmatch(code) for code in code_in(page) if code.partition("=")[0] not in settings]
    missing = [match[0] for match in named if match and not hasattr(getattr(log, match[1], None), match[2])]
    log.close_handles()
    assert not missing


def mapped_paths() -> list[str]:
    """The folders and files of the map.

    A line has a folder or `(here)`, what it is, and the names of its files; more names may follow, far to the right.
    """
    paths: list[str] = []
    above: list[str] = []
    block = next(block for block in _FENCE.findall(text_of(MAP)) if "\nstorage/\n" in block)
    for line in block.splitlines()[1:-1]:
        folder, *rest = re.split(r"\s{2,}", line.strip())
        depth = (len(line) - len(line.lstrip())) // 2
        if depth <= DEEPEST_FOLDER:
            above[depth:] = [folder] if folder != "(here)" else []
            paths.append("".join(above))
        names = rest[-1] if rest else folder if depth > DEEPEST_FOLDER else ""
        paths += ["".join(above) + f"{name}.py" for name in names.split()]
    return paths


def test_the_map_of_the_folders_names_each_folder_and_only_what_exists() -> None:
    paths = mapped_paths()
    folders = {
        f"{path.parent.relative_to(ROOT).as_posix()}/"
        for package in MAPPED
        for path in (ROOT / package).rglob("__init__.py")
    }
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert folders - set(paths) == set()
