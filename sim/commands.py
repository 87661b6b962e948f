"""The commands of `replog sim`, which run scenarios in simulated time."""

from __future__ import annotations

import io
import json
import logging
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO, Protocol

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from sim.bugs import BugError, install
from sim.bundled import bundled_scenarios, description, find_scenario
from sim.detection.commands import bugs_command
from sim.determinism.command import check_command
from sim.result_lines import operation_lines, verdict_lines
from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import ScenarioError, load_scenario
from sim.scenario.model import Scenario
from sim.scenario.schema_command import schema
from sim.seed_range import MOST_SEEDS, Seeds
from sim.seeds import Job, default_jobs
from sim.seeds_output import print_seeds
from sim.shrink.commands import shrink
from sim.swarm.commands import swarm
from sim.view.recording import TooManyEvents
from sim.view.write import page_beside, write_view
from sim.world.time import Endless

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_EXIT = {Verdict.HELD: 0, Verdict.VIOLATED: 1, Verdict.STARVED: 3}
UNUSABLE_INPUT = 2
INTERRUPTED = 3


class RunOnProcesses(Protocol):
    """Runs the scenario at `path`, which the user calls `source`, on processes; returns the exit status.

    The simulator knows no processes: who mounts its commands puts one of these into click's context.
    """

    def __call__(self, path: Path, seed: int, *, source: str, as_json: bool, with_story: bool) -> int: ...


@click.group()
def sim() -> None:
    """Run scenarios in simulated time."""


def _complete_scenario(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Returns the bundled names that begin with `incomplete`, and an item that lets the shell add files."""
    names = [
        CompletionItem(name, help=description(path))
        for name, path in bundled_scenarios().items()
        if name.startswith(incomplete)
    ]
    return names or [CompletionItem(incomplete, type="file")]


def _parse_seeds(ctx: click.Context, param: click.Parameter, text: str | None) -> Seeds | None:
    try:
        return Seeds.parse(text) if text is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


sim.add_command(check_command(_parse_seeds))
sim.add_command(schema)
sim.add_command(swarm)
sim.add_command(bugs_command)
sim.add_command(shrink)


@sim.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_scenarios(as_json: bool) -> None:
    """List the bundled scenarios, which `replog sim run NAME` runs."""
    found = [
        {"name": name, "description": description(path), "file": str(path)}
        for name, path in bundled_scenarios().items()
    ]
    if as_json:
        click.echo(json.dumps({"scenarios": found}))
        return
    width = max((len(each["name"]) for each in found), default=0)
    for each in found:
        click.echo(f"{each['name']:{width}}  {each['description']}")


@sim.command()
@click.argument("scenario", shell_complete=_complete_scenario)
@click.option(
    "--seed",
    type=click.IntRange(0, MOST_SEEDS),
    default=0,
    show_default=True,
    help="Seed of all random choices; a run with the same seed is the same run.",
)
@click.option(
    "--seeds",
    metavar="A..B",
    callback=_parse_seeds,
    help="Run with each seed from A to B, B excluded; print those that did not hold.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="With --seeds: runs at the same time, each in a process.  [default: the processors]",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="Write every event of the run to this file as a line of JSON, and the page of a violated run beside it.",
)
@click.option(
    "--history",
    "history",
    type=click.Path(path_type=Path),
    help="Write what the clients sent and read to this file, for `replog history check`.",
)
@click.option(
    "--view",
    "page",
    type=click.Path(path_type=Path),
    help="Write the run to this file as one HTML page, as `replog view` does from a trace.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the result as one JSON object, without the story; with --seeds one a line, and a summary.",
)
@click.option(
    "--stop-early", is_flag=True, help="End the run at its first violation, as `replog sim swarm` does."
)
@click.option("--no-story", is_flag=True, help="Print the result without the story.")
@click.option("--bug", metavar="NAME", help="Plant a known bug first. An unknown NAME prints the list.")
@click.option(
    "--real",
    is_flag=True,
    help="Run it against processes of this machine, in real time; no two such runs are the same.",
)
@click.pass_context
def run(
    context: click.Context,
    /,
    scenario: str,
    seed: int,
    seeds: Seeds | None,
    jobs: int | None,
    trace: Path | None,
    history: Path | None,
    page: Path | None,
    as_json: bool,
    stop_early: bool,
    no_story: bool,
    bug: str | None,
    real: bool,
) -> None:
    """Run a scenario and print its story and the verdict.

    SCENARIO is the name of a bundled scenario (`replog sim list`) or, with a suffix or a slash, a file. The last lines
    are the trace hash and the command that replays the run. With --seeds, every seed that did not hold is printed with
    that command, then the counts.

    With --real the same steps strike processes: SIGKILL, SIGSTOP, and a proxy on each link. Steps that no process can
    suffer, such as a power loss, are skipped, each with a word. The same checkers judge history and logs.

    Exit status: 0 every rule held, 1 a rule was violated, 2 the input was unusable or the run has no end (more than a
    million events for each simulated second), 3 the run proved nothing (starved) or was interrupted.
    """
    _check_options(context, seeds, trace, page)
    if seeds is not None and history is not None:
        raise click.UsageError("--history is of one run: use it with --seed, not with --seeds")
    # The story and the trace report what the product's loggers would.
    logging.getLogger().addHandler(logging.NullHandler())
    if real:
        sys.exit(_on_processes(context, scenario, seed, as_json=as_json, with_story=not no_story))
    if seeds is not None:
        job = _checked_job(scenario, bug, stops_early=stop_early)
        sys.exit(print_seeds(job, seeds, jobs=jobs or default_jobs(), as_json=as_json))
    with ExitStack() as stack:
        try:
            path = find_scenario(scenario)
            _check_files(path, trace, history, page)
            # What cannot be run must not empty the files of another run.
            loaded = _loaded(path, bug)
            if page is not None and trace is None:
                trace = Path(stack.enter_context(TemporaryDirectory())) / f"{path.stem}-{seed}.jsonl"
            # The page is made of a trace that is closed.
            with ExitStack() as files:
                result = run_scenario(
                    loaded, seed, bug=bug, source=scenario, stops_early=stop_early,
                    trace_file=_opened(trace, files), history_file=_opened(history, files),
                )  # fmt: skip
            written = _page_of(result, trace, page)
        except (ScenarioError, BugError, Endless, OSError) as error:
            click.echo(str(error), err=True)
            sys.exit(UNUSABLE_INPUT)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)
    if as_json:
        click.echo(json.dumps(result.as_json()))
    else:
        _print(result, with_story=not no_story)
        if written is not None:
            click.echo(f"page: {written}")
    is_lacking = page is not None and written is None
    sys.exit(_EXIT[result.verdict] or (UNUSABLE_INPUT if is_lacking else 0))


def _on_processes(
    context: click.Context, scenario: str, seed: int, *, as_json: bool, with_story: bool
) -> int:
    """Run the scenario on processes; returns the exit status."""
    run_on_processes: RunOnProcesses | None = context.obj
    if run_on_processes is None:
        raise click.UsageError(
            "--real is an option of `replog sim run`: the simulator alone has no processes"
        )
    try:
        path = find_scenario(scenario)
        return run_on_processes(path, seed, source=scenario, as_json=as_json, with_story=with_story)
    except (ScenarioError, OSError) as error:
        click.echo(str(error), err=True)
        return UNUSABLE_INPUT
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return INTERRUPTED


def _opened(path: Path | None, stack: ExitStack) -> BinaryIO | None:
    """Open a file to write, until the stack ends. Raises OSError, which names the file, as each write does."""
    return None if path is None else stack.enter_context(io.BufferedWriter(_NamedFile(path, "w")))


class _NamedFile(io.FileIO):
    """A file whose failed writes name it, as failed openings do."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.name)) from error


def _page_of(result: RunResult, trace: Path | None, page: Path | None) -> Path | None:
    """Write the page that is asked for, or that of a violated run beside its trace; returns its path, None without one.

    A page that cannot be written leaves the verdict as it is, and is reported on standard error; a run that held and
    whose page was asked for exits with 2 then.
    """
    if page is None and result.verdict is Verdict.VIOLATED and trace is not None and trace.is_file():
        page = page_beside(trace)
    if page is None:
        return None
    assert trace is not None, page
    try:
        write_view(page, trace)
    except (TooManyEvents, OSError) as error:
        click.echo(f"no page: {error}", err=True)
        return None
    return page


def _check_options(
    context: click.Context, seeds: Seeds | None, trace: Path | None, page: Path | None
) -> None:
    """Raise a usage error for options that exclude each other."""

    def is_given(name: str) -> bool:
        return context.get_parameter_source(name) is not ParameterSource.DEFAULT

    if seeds is None and is_given("jobs"):
        raise click.UsageError("--jobs needs --seeds A..B: one seed is one run")
    if seeds is not None and is_given("seed"):
        raise click.UsageError("--seed and --seeds exclude each other")
    if seeds is not None and trace is not None:
        raise click.UsageError("--trace is of one run: use it with --seed, not with --seeds")
    if seeds is not None and page is not None:
        raise click.UsageError("--view is of one run: use it with --seed, not with --seeds")
    wrong = [name for name in ("seeds", "trace", "page", "history", "bug", "stop_early") if is_given(name)]
    if is_given("real") and wrong:
        option = {"page": "view", "stop_early": "stop-early"}.get(wrong[0], wrong[0])
        raise click.UsageError(f"--{option} needs the simulator: a run with --real has none")


def _check_files(scenario: Path, trace: Path | None, history: Path | None, page: Path | None) -> None:
    """Raise a usage error if two of the files of a run are one, or one has no place, before any is opened."""
    for option, path in (("--trace", trace), ("--history", history), ("--view", page)):
        if path is not None and not path.parent.is_dir():
            raise click.UsageError(f"{option} {path}: there is no directory {path.parent}")
    beside = page_beside(trace) if trace is not None and page is None else None
    files = {
        "SCENARIO": scenario,
        "--trace": trace,
        "--history": history,
        "--view": page,
        "the page beside the trace": beside,
    }
    names: dict[Path | tuple[int, int], str] = {}
    for name, path in files.items():
        # What is no file, such as /dev/null, takes whatever is written.
        if path is None or (path.exists() and not path.is_file()):
            continue
        known = path.stat() if path.exists() else None
        # Two names may be links to one file.
        other = names.setdefault((known.st_dev, known.st_ino) if known else path.resolve(), name)
        if other != name:
            raise click.UsageError(f"{other} and {name} are the same file: {path}")


def _loaded(path: Path, bug: str | None) -> Scenario:
    """Returns the scenario of a file. Raises ScenarioError, or BugError if the bug cannot be planted."""
    if bug is not None:
        with install(bug):
            pass
    return load_scenario(path)


def _checked_job(scenario: str, bug: str | None, *, stops_early: bool) -> Job:
    """Returns the job of many seeds; ends the command for what no seed could run."""
    try:
        path = find_scenario(scenario)
        _loaded(path, bug)
    except (ScenarioError, BugError) as error:
        click.echo(str(error), err=True)
        sys.exit(UNUSABLE_INPUT)
    return Job(path=path, source=scenario, bug=bug, stops_early=stops_early)


def _print(result: RunResult, *, with_story: bool) -> None:
    if with_story:
        for line in result.story:
            click.echo(line)
        click.echo()
    for line in operation_lines(result):
        click.echo(line)
    if result.buggify:
        fired = sum(result.buggify.values())
        click.echo(f"buggify: {len(result.buggify)} points on, fired {fired} times")
    for line in verdict_lines(result):
        click.echo(line)
    click.echo(f"events: {result.events} in {result.simulated_ms / 1000:g} simulated seconds")
    click.echo(f"trace hash: {result.trace_hash}")
    click.echo(f"replay: {result.replay}")
