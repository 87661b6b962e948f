"""`replog spark`: scans of log directories and campaigns of simulated runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from pipeline.campaign import run_campaign
from pipeline.session import SparkUnavailable, check_available, session
from sim.seed_range import Seeds


@click.group("spark")
def spark_group() -> None:
    """Read logs and run campaigns of simulated runs with Spark."""


@spark_group.command("scan")
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option("--subscribe", default=None, metavar="A[,B…]", help="Read only these topics.")
@click.option("--master", default="local[*]", show_default=True, help="Master URL of Spark.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def scan(directory: str, subscribe: str | None, master: str, as_json: bool) -> None:
    """Count the records of every partition in a log DIRECTORY, without control records."""
    from pipeline import register

    _require_spark()
    spark = session("replog scan", master=master)
    try:
        register(spark)
        options = {"path": directory} | ({"subscribe": subscribe} if subscribe is not None else {})
        frame = spark.read.format("replog").options(**options).load()
        counted = frame.groupBy("topic", "partition").count().orderBy("topic", "partition").collect()
    except Exception as error:
        raise click.ClickException(_root_cause(error)) from error
    finally:
        spark.stop()
    rows = [
        {"topic": row["topic"], "partition": row["partition"], "records": row["count"]} for row in counted
    ]
    if as_json:
        click.echo(json.dumps({"directory": directory, "partitions": rows}))
        return
    _print_table(f"records in {directory}", rows)


@spark_group.command("campaign")
@click.option("--seeds", "seeds_text", required=True, metavar="A..B", help="Seeds from A to B, B excluded.")
@click.option("--scenario", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    help="Directory of the Parquet files.  [default: out/campaign-NAME]",
)
@click.option("--master", default="local[*]", show_default=True, help="Master URL of Spark.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def campaign(seeds_text: str, scenario: Path, out: Path | None, master: str, as_json: bool) -> None:
    """Run a scenario with many seeds, each in a new process; write a row for each run as Parquet, and a summary."""
    try:
        seeds = Seeds.parse(seeds_text)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    _check_scenario(scenario)
    _require_spark()
    target = str(out or Path("out") / f"campaign-{scenario.stem}")
    click.echo(f"starting Spark (about 6 s) for {seeds.end - seeds.first} runs of {scenario}", err=True)
    spark = session("replog campaign", master=master)
    try:
        run_campaign(spark, scenario=scenario, seeds=seeds).write.mode("overwrite").parquet(target)
        results = spark.read.parquet(target)
        by_verdict = {row["verdict"]: row["count"] for row in results.groupBy("verdict").count().collect()}
        total = results.count()
        bad = results.where("verdict != 'held'").orderBy("seed").limit(20).collect()
    finally:
        spark.stop()
    _report(scenario, target, total, by_verdict, [row.asDict() for row in bad], as_json)
    if by_verdict.get("violated"):
        sys.exit(1)
    if by_verdict.get("error"):
        sys.exit(2)
    if by_verdict.get("starved"):
        sys.exit(3)


def _report(
    scenario: Path,
    target: str,
    total: int,
    by_verdict: dict[str, int],
    bad: list[dict[str, object]],
    as_json: bool,
) -> None:
    if as_json:
        summary = {
            "scenario": scenario.stem,
            "rows": total,
            "verdicts": by_verdict,
            "out": target,
            "not_held": bad,
        }
        click.echo(json.dumps(summary, sort_keys=True))
        return
    _print_table(
        f"{total} runs of {scenario.stem}, results in {target}",
        [{"verdict": verdict, "runs": by_verdict[verdict]} for verdict in sorted(by_verdict)],
    )
    for row in bad:
        click.echo(f"seed {row['seed']}: {row['verdict']} {row['error'] or row['violations']}")
        click.echo(f"  replay: replog sim run {scenario} --seed {row['seed']}")


def _print_table(title: str, rows: list[dict[str, object]]) -> None:
    from rich.console import Console
    from rich.table import Table

    click.echo(title)
    table = Table()
    for name in rows[0] if rows else ("nothing",):
        table.add_column(name)
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def _check_scenario(scenario: Path) -> None:
    """Raise a usage error for a malformed scenario: once here, not in each of a thousand runs."""
    from sim.scenario.model import ScenarioError, load_scenario

    try:
        load_scenario(scenario)
    except ScenarioError as error:
        raise click.UsageError(str(error)) from error


def _require_spark() -> None:
    try:
        check_available()
    except SparkUnavailable as error:
        raise click.UsageError(str(error)) from error


def _root_cause(error: Exception) -> str:
    """Returns the message of our own error: in Spark's many lines it is the last one of the worker's trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if "SourceError:" in line]
    return (
        ours[-1].split("SourceError:", 1)[1].strip()
        if ours
        else (lines[0] if lines else type(error).__name__)
    )
