"""`replog spark`: scans of log directories and campaigns of simulated runs."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cluster.local.python_path import own_python_path
from pipeline.campaign import run_campaign
from pipeline.drawn_command import PROFILES, checked_job, open_results, print_sum
from pipeline.quiet import (
    cause_in,
    end_children,
    interrupt_spark,
    java_writes_to,
    keep_bridge_quiet,
    new_file,
)
from pipeline.session import SparkUnavailable, check_available, session
from sim.interruption import terminated_like_interrupted
from sim.seed_range import Seeds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sim.swarm.job import SwarmJob

# The exit status of a verdict that is not held, the gravest first.
_STATUSES = {"violated": 1, "error": 2, "starved": 3}
# How many runs that did not hold are printed.
_MOST_REPLAYS = 20
# Spark reads back a path with one of these as a pattern of names, and one with a colon as a URI.
_NO_PATH_OF_SPARK = re.compile(r"[][*?{}\\:]")
# Where Spark's tasks write until their job is done.
_UNFINISHED = "_temporary"


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
    with _spark("replog scan", master) as spark:
        register(spark)
        options = {"path": directory} | ({"subscribe": subscribe} if subscribe is not None else {})
        frame = spark.read.format("replog").options(**options).load()
        counted = frame.groupBy("topic", "partition").count().orderBy("topic", "partition").collect()
    rows = [
        {"topic": row["topic"], "partition": row["partition"], "records": row["count"]} for row in counted
    ]
    if as_json:
        click.echo(json.dumps({"directory": directory, "partitions": rows}))
        return
    _print_table(f"records in {directory}", rows)


@spark_group.command("campaign")
@click.option("--seeds", "seeds_text", required=True, metavar="A..B", help="Seeds from A to B, B excluded.")
@click.option(
    "--scenario",
    "scenario_text",
    metavar="SCENARIO",
    help="A bundled scenario (`replog sim list`) or, with a suffix or a slash, a file.",
)
@click.option("--swarm", "is_drawn", is_flag=True, help="Draw each run from its seed, as `replog sim swarm`.")
@click.option("--profile", type=click.Choice(PROFILES), help="With --swarm: the profile of all runs.")
@click.option("--only", metavar="FAULTS", help="With --swarm: keep only faults of these kinds.")
@click.option("--bug", metavar="NAME", help="With --swarm: plant a known bug first.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    help="A new directory for the Parquet files; with --swarm also one to go on with.  "
    "[default: out/campaign-NAME, with a number if it exists]",
)
@click.option("--master", default="local[*]", show_default=True, help="Any master that Spark knows.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def campaign(
    seeds_text: str,
    scenario_text: str | None,
    is_drawn: bool,
    profile: str | None,
    only: str | None,
    bug: str | None,
    out: Path | None,
    master: str,
    as_json: bool,
) -> None:
    """Run many seeds of a scenario, or runs that are drawn from them; write a row for each as Parquet, and a summary.

    With --scenario each run is a new interpreter, and --out is a new directory. With --swarm a task loads the simulator
    once and forks a process for each seed; seeds that the directory has are not run again, and each counts once.
    """
    try:
        seeds = Seeds.parse(seeds_text)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if is_drawn == (scenario_text is not None):
        raise click.UsageError("a campaign needs either --scenario SCENARIO or --swarm")
    if scenario_text is None:
        sys.exit(_run_drawn(checked_job(profile, only, bug), seeds, out, master, as_json=as_json))
    if any(option is not None for option in (profile, only, bug)):
        raise click.UsageError("--profile, --only and --bug need --swarm")
    sys.exit(_run_scenario(scenario_text, seeds, out, master, as_json=as_json))


def _run_drawn(job: SwarmJob, seeds: Seeds, out: Path | None, master: str, *, as_json: bool) -> int:
    """Run the seeds that the directory has not yet. Returns the exit status."""
    _require_spark()
    # It needs pyarrow, which may be missing.
    from pipeline.drawn_campaign import run_drawn

    target = _named_target(out) if out is not None else _free_target(job.title)
    with closing(open_results(target, job)) as directory:
        left = sum(seed not in directory.rows for seed in seeds)
        click.echo(f"starting Spark (about 6 s) for {left} drawn runs of {len(seeds)}", err=True)
        with _spark("replog campaign", master) as spark:
            found = run_drawn(spark, job=job, seeds=seeds, directory=directory)
    return print_sum(found, target, as_json=as_json)


def _run_scenario(scenario_text: str, seeds: Seeds, out: Path | None, master: str, *, as_json: bool) -> int:
    """Run the scenario with all seeds. Returns the exit status."""
    scenario = _checked_scenario(scenario_text)
    target = _checked_target(out if out is not None else _free_target(scenario.stem))
    _require_spark()
    click.echo(f"starting Spark (about 6 s) for {len(seeds)} runs of {scenario_text}", err=True)
    with _removed_if_empty(target), _spark("replog campaign", master) as spark:
        frame = run_campaign(spark, scenario=scenario, seeds=seeds, called=scenario_text)
        frame.write.mode("errorifexists").parquet(str(target))
        results = spark.read.parquet(str(target))
        by_verdict = {row["verdict"]: row["count"] for row in results.groupBy("verdict").count().collect()}
        total = results.count()
        bad = results.where("verdict != 'held'").orderBy("seed").limit(_MOST_REPLAYS).collect()
    _report(scenario_text, str(target), total, by_verdict, [row.asDict() for row in bad], as_json)
    gravest = (status for verdict, status in _STATUSES.items() if by_verdict.get(verdict))
    return next(gravest, 0)


def _report(
    scenario: str,
    target: str,
    total: int,
    by_verdict: dict[str, int],
    bad: list[dict[str, object]],
    as_json: bool,
) -> None:
    if as_json:
        summary = {
            "scenario": Path(scenario).stem,
            "rows": total,
            "verdicts": by_verdict,
            "out": target,
            "not_held": bad,
        }
        click.echo(json.dumps(summary, sort_keys=True))
        return
    _print_table(
        f"{total} runs of {Path(scenario).stem}, results in {target}",
        [{"verdict": verdict, "runs": by_verdict[verdict]} for verdict in sorted(by_verdict)],
    )
    # It loads the simulator.
    from sim.run import replay_command

    for row in bad:
        click.echo(f"seed {row['seed']}: {row['verdict']} {row['error'] or row['violations']}")
        click.echo(f"  replay: {replay_command(scenario, int(str(row['seed'])), None)}")
    if (left := total - by_verdict.get("held", 0) - len(bad)) > 0:
        click.echo(f"and {left} more runs that did not hold: their rows are in {target}")


def _print_table(title: str, rows: list[dict[str, object]]) -> None:
    from rich.console import Console
    from rich.table import Table

    if not rows:
        click.echo(f"{title}: none")
        return
    click.echo(title)
    table = Table()
    for name in rows[0]:
        table.add_column(name)
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def _checked_scenario(text: str) -> Path:
    """Returns the file of the scenario called `text`. Raises a usage error for a malformed one: once here, not in each
    of a thousand runs.
    """
    from sim.bundled import find_scenario
    from sim.scenario.loading import ScenarioError, load_scenario

    try:
        path = find_scenario(text)
        load_scenario(path)
    except ScenarioError as error:
        raise click.UsageError(str(error)) from error
    return path


def _checked_target(out: Path) -> Path:
    """Returns `out`. Raises a usage error if there is something, even an empty directory: nothing is overwritten; and
    for a name that `_named_target` refuses.
    """
    if os.path.lexists(out):
        what = "a directory" if out.is_dir() else "a file"
        raise click.UsageError(f"--out {out} is {what} that exists: nothing is overwritten, name a new one")
    return _named_target(out)


def _named_target(out: Path) -> Path:
    """Returns `out`. Raises a usage error for a name that Spark could not read back after all runs."""
    if found := _NO_PATH_OF_SPARK.search(str(out)):
        raise click.UsageError(f"--out {out}: Spark does not take {found[0]!r} in a name, choose another")
    return out


def _free_target(name: str) -> Path:
    """Returns the first of out/campaign-NAME, out/campaign-NAME-2 and so on that does not exist."""
    first = Path("out") / f"campaign-{name}"
    numbered = (first.with_name(f"{first.name}-{number}") for number in itertools.count(2))
    return next(path for path in itertools.chain((first,), numbered) if not os.path.lexists(path))


@contextmanager
def _removed_if_empty(directory: Path) -> Iterator[None]:
    """Remove what a failure of the block leaves of a new directory without results: it would stop the next try."""
    try:
        yield
    except BaseException:
        # Neither one that holds something nor one that is not there.
        with suppress(OSError):
            # What tasks write is there until all of them are done.
            if [path.name for path in directory.iterdir()] == [_UNFINISHED]:
                shutil.rmtree(directory / _UNFINISHED)
            directory.rmdir()
        raise


@contextmanager
def _spark(name: str, master: str) -> Iterator[SparkSession]:
    """Start Spark, and stop it at the end. Its errors, also those of a bad master, end the command with one line.

    None of its processes imports from the current directory.
    """
    keep_bridge_quiet()
    with terminated_like_interrupted(interrupt_spark), own_python_path(), new_file() as written:
        try:
            with java_writes_to(written):
                spark = session(name, master=master)
        except Exception as error:
            written.seek(0)
            text = written.read().decode(errors="replace")
            raise click.ClickException(
                f"Spark does not start: {cause_in(text) or cause_in(str(error))}"
            ) from error
        except KeyboardInterrupt:
            end_children()
            raise
        try:
            yield spark
        except Exception as error:
            raise click.ClickException(cause_in(str(error)) or type(error).__name__) from error
        finally:
            _stop(spark)


def _stop(spark: SparkSession) -> None:
    """Stop Spark, or what is left of it: a signal may have ended Java first, which is no error of its own."""
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark.stop()


def _require_spark() -> None:
    try:
        check_available()
    except SparkUnavailable as error:
        raise click.UsageError(str(error)) from error
