"""The reference pages leave nothing out: names of the API, commands with their options, keys of a scenario."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pydantic import BaseModel, Field

import replog
from replog.commands import replog as root_command
from sim.scenario.model import Scenario
from sim.scenario.settings import SETTINGS
from sim.scenario.steps import VERB_NAMES, VERBS
from sim.scenario.values import parse_condition, parse_duration, parse_link, parse_size, parse_target
from tests.places import ROOT
from tools.scenario_keys import PARTS, markdown, rows

DOCS = ROOT / "docs"
_CODE = re.compile(r"`([^`]+)`")


def test_the_api_page_has_every_public_name_once() -> None:
    found = re.findall(
        r"^\.\. auto\w+:: replog\.(\w+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(found) == sorted({*replog.__all__, "register"})


def models_of(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The models that a file of this model may have, at any depth."""
    yield model
    for field in model.model_fields.values():
        for name in re.findall(r"\w+Model", repr(field.annotation)):
            module = sys.modules[model.__module__]
            yield from models_of(getattr(module, name))


def test_the_page_of_keys_has_every_part_of_a_scenario() -> None:
    assert {part for _, part in PARTS} == set(models_of(Scenario))


def test_the_page_of_keys_has_every_key_and_verb() -> None:
    text = markdown()
    assert [name for name, value in SETTINGS.items() if f"| `{name}` | `{value}` |" not in text] == []
    models = [part for _, part in PARTS] + list(VERBS)
    keys = {field.alias or name for model in models for name, field in model.model_fields.items()}
    assert [key for key in keys if f"| `{key}` |" not in text] == []
    assert [verb for verb in VERB_NAMES if f"### `{verb}`\n" not in text] == []


def test_a_key_without_a_description_is_refused() -> None:
    class Lacking(BaseModel):
        said: int = Field(default=1, description="It is said.")
        unsaid: int = 2

    with pytest.raises(ValueError, match=r"Lacking\.unsaid has no description"):
        list(rows(Lacking))


@pytest.mark.parametrize(
    "row",
    [
        "| `warm_up` | duration | `2s` | The time before which no step strikes. |",
        "| `scenario` | text | *required* | The name: small letters, digits and hyphens. |",
        "| `acks` | `all`, `1` or `0` | `all` | Kafka's acks: who must have a record. |",
        "| `rate` | rate | `50/s` | The records that each of them sends per second. |",
        "| `idempotent` | `true` or `false` | `true` | Whether brokers recognise a record that is sent again; with"
        " `acks: all` only. |",
        "| `brokers` | 1 to 9 | `3` | The number of brokers, numbered from 1. |",
        "| `latency` | duration | `200us` | The least time that a message takes over a link. |",
        "| `loss` | share | `0%` | The share of messages that are lost; a stream sends them again, later. |",
        "| `by` | duration | *required* | The delay that is added to each message. |",
    ],
)
def test_a_key_is_shown_with_its_kind_and_its_default_as_a_file_has_them(row: str) -> None:
    assert row in markdown()


def table_of(heading: str) -> list[str]:
    """The first cells of the table of the page of keys that has this heading."""
    text = (DOCS / "scenario-keys.md").read_text(encoding="utf-8")
    start = re.search(rf"^\| {re.escape(heading)} \|.*\n\| ---.*\n", text, re.MULTILINE)
    assert start is not None, heading
    cells = []
    for line in text[start.end() :].splitlines():
        if not line.startswith("|"):
            break
        cells += _CODE.findall(line.split("|")[1])
    return cells


def test_every_target_and_condition_of_the_page_of_keys_is_one() -> None:
    kinds = [parse_target(text).kind for text in table_of("target")]
    assert kinds == [
        "broker",
        "leader",
        "follower",
        "controller",
        "producer",
        "consumer",
        "all",
        "clients",
        "others",
        "name",
    ]
    assert [parse_condition(text).fact for text in table_of("condition")] == [
        "after-ack",
        "isr",
        "leader",
        "elected",
        "joining",
        "truncated",
    ]


def test_every_unit_of_the_page_of_keys_is_one() -> None:
    assert [parse_duration(text) for text in ("200us", "200ms", "5s", "1.5s", "1m")][-1] == 60_000_000
    assert [parse_size(text) for text in ("64 B", "16KiB", "1 MiB")] == [64, 16_384, 1 << 20]
    assert parse_link("leader(t/0) <-> others").both_ways and not parse_link("all -> clients").both_ways
    kept = table_of("`keep`")
    assert kept == ["none", "prefix", "subset", "torn", "all"]


def commands_of(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """The command and those in it, with their full names."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None, inner
            yield from commands_of(found, f"{name} {inner}")


@pytest.mark.slow
def test_the_pages_are_built_without_a_warning_and_have_every_command_and_option(tmp_path: Path) -> None:
    arguments = ["-q", "-E", "-W", "--keep-going", "-n", "-b", "html", "docs", str(tmp_path)]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (built.returncode, built.stderr) == (0, "")
    page = html.unescape(re.sub(r"<[^>]+>", "", (tmp_path / "commands.html").read_text(encoding="utf-8")))
    for name, command in commands_of(root_command, "replog"):
        assert f"{name} [OPTIONS]" in page, name
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.opts[-1] in page, (name, option.opts)
