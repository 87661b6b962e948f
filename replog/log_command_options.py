"""The options, exit statuses and helpers that the commands of `replog log` share."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import NoReturn

import click

VIOLATED = 1
UNUSABLE = 2

directory_argument = click.argument("directory", type=click.Path(exists=True, file_okay=False))
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
jobs_option = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Number of partitions to work on at once, each in its own process.  "
    "[default: the number of processors, or 1 if there is little data]",
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
    """Silence storage's logger: the commands print the same facts as results."""
    logging.getLogger("storage").addHandler(logging.NullHandler())
