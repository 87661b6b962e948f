"""The commands of `replog history`, which judge what clients saw, of a simulated run or of any other cluster."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import BinaryIO, final

import click

from sim.anomalies.check import NAMES, AnomalyCheck
from sim.anomalies.history_file import HistoryFile, HistoryFileError
from sim.anomalies.operations import Operation
from sim.anomalies.rules import Anomaly

UNUSABLE_INPUT = 2
# Of each name; the counts have all.
MOST_SHOWN = 20


def _printable(text: str) -> str:
    """Returns the text on one line, with escapes for what a terminal would obey and what no encoding has."""
    if text.isprintable():
        return text
    escaped = [each if each.isprintable() else each.encode("unicode_escape").decode() for each in text]
    return "".join(escaped)


@click.group()
def history() -> None:
    """Judge what clients sent and read."""


@final
class _Printer:
    """Prints the first anomalies of each name as they are found, and counts all."""

    def __init__(self, allowed: tuple[str, ...], *, as_json: bool) -> None:
        self._allowed, self._as_json = allowed, as_json
        self.counts: Counter[str] = Counter()
        self.allowed_counts: Counter[str] = Counter()

    def on_anomaly(self, anomaly: Anomaly) -> None:
        is_allowed = anomaly.is_allowed or anomaly.name in self._allowed
        counts = self.allowed_counts if is_allowed else self.counts
        counts[anomaly.name] += 1
        if counts[anomaly.name] > MOST_SHOWN:
            return
        if self._as_json:
            members = {
                "anomaly": anomaly.name, "key": anomaly.key, "line": anomaly.line, "evidence": anomaly.evidence,
                "allowed": is_allowed,
            }  # fmt: skip
            click.echo(json.dumps(members))
        else:
            line = f"{'allowed ' if is_allowed else ''}{anomaly.name}: {anomaly.key}: {anomaly.evidence}"
            click.echo(_printable(line))


@history.command("check")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--allow",
    "allowed",
    metavar="NAME",
    type=click.Choice(NAMES),
    multiple=True,
    help="Report this anomaly and let it pass; may be given several times.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object for each anomaly, and a summary."
)
def check_history(file: BinaryIO, allowed: tuple[str, ...], as_json: bool) -> None:
    """Find the anomalies of a history by the names of Jepsen's Kafka workload.

    FILE has one operation a line, as `replog sim run --history FILE` writes it; `-` is standard input. The history must
    go on until everything was read: a record that was answered and never read is an anomaly.

    Exit status: 0 none was found, 1 anomalies were found that Kafka does not allow, 2 the file is no history or has
    neither a send nor a poll.
    """
    printer = _Printer(allowed, as_json=as_json)
    check, source = AnomalyCheck(printer.on_anomaly), HistoryFile(file.name, file)
    try:
        for each in source.operations():
            if isinstance(each, Operation):
                check.take(each)
            else:
                check.move(each)
    except HistoryFileError as error:
        click.echo(f"error: {_printable(str(error))}", err=True)
        sys.exit(UNUSABLE_INPUT)
    check.finish()
    _print_summary(check, source, printer, as_json=as_json)
    sys.exit(1 if printer.counts else 0)


def _print_summary(check: AnomalyCheck, source: HistoryFile, printer: _Printer, *, as_json: bool) -> None:
    found, passed = dict(sorted(printer.counts.items())), dict(sorted(printer.allowed_counts.items()))
    if as_json:
        members = {
            "operations": check.operations, "records_read": check.records_read, "ignored_lines": source.ignored,
            "anomalies": found, "allowed": passed,
        }  # fmt: skip
        click.echo(json.dumps(members))
        return
    named = ", ".join(f"{count} {name}" for name, count in found.items())
    click.echo(f"operations: {check.operations}, records read: {check.records_read}")
    if passed:
        click.echo(f"allowed: {', '.join(f'{count} {name}' for name, count in passed.items())}")
    if source.ignored:
        click.echo(f"lines of other things: {source.ignored}")
    click.echo(f"anomalies: {named or 'none'}")
