"""What the commands of `replog log` have in common."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import NoReturn

import click

VIOLATED = 1
UNUSABLE = 2

directory_argument = click.argument("directory", type=click.Path(exists=True, file_okay=False))
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object.")
jobs_option = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Partitions worked on at the same time, a process each.  [default: the processors; 1 for little data]",
)


def clean_path(directory: str) -> str:
    return os.path.abspath(directory)


def fail(message: str) -> NoReturn:
    click.echo(f"error: {message}", err=True)
    raise SystemExit(UNUSABLE)


def echo_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def quiet_logging() -> None:
    """What storage logs is printed as results."""
    logging.getLogger("storage").addHandler(logging.NullHandler())
