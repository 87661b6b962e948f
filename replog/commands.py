"""`replog`: a group whose commands are imported only when they are called.

So `replog dump` starts without gRPC, and a missing extra affects only the commands that need it. Exit status:
0 held, 1 something is violated or damaged, 2 the input was unusable, 3 interrupted or out of time.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, final

import click
from click.shell_completion import CompletionItem

from replog.interruption import ends_on_ctrl_c, raised_on_ctrl_c

UNUSABLE_INPUT = 2
INTERRUPTED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """The place of a command: the click command of the same name in `module`, which may need the extra `extra`."""

    module: str
    summary: str
    extra: str | None = None


MOUNTS = {
    "completion": Mount(
        module="replog.completion_command",
        summary="Print the script that completes commands in a shell.",
    ),
    "consume": Mount(
        module="cluster.commands.records",
        summary="Write a topic to standard output, up to the high watermark.",
    ),
    "down": Mount(
        module="cluster.commands.down",
        summary="End the cluster that runs on a data directory.",
    ),
    "dump": Mount(
        module="replog.dump_command",
        summary="Print a log, index or snapshot file in kafka-dump-log's lines.",
    ),
    "history": Mount(
        module="sim.anomalies.commands",
        summary="Find the anomalies of a client history, named as Jepsen names them.",
    ),
    "log": Mount(
        module="replog.log_commands",
        summary="Verify, recover or truncate a log directory offline, or print its stats.",
    ),
    "nodes": Mount(
        module="cluster.commands.up",
        summary="List, stop, kill and start the nodes of a running `up`.",
    ),
    "produce": Mount(module="cluster.commands.records", summary="Write lines or files into a topic."),
    "sim": Mount(module="replog.sim_command", summary="Run scenarios in simulated time, or on processes."),
    "spark": Mount(
        module="pipeline.commands",
        summary="Scan logs and run campaigns with Spark.",
        extra="spark",
    ),
    "topics": Mount(
        module="cluster.commands.records",
        summary="Create, list, describe and delete topics.",
    ),
    "up": Mount(
        module="cluster.commands.up",
        summary="Run a local cluster, one process for each node, until Ctrl-C.",
    ),
    "view": Mount(module="sim.view.commands", summary="Write the trace of a run as one HTML page."),
}

# The packages that each extra of pyproject.toml brings.
_EXTRA_PACKAGES = {"spark": ("pyspark", "pyarrow", "numpy", "pandas")}
_WRITING_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
_OWN_PACKAGES = ("cluster", "pipeline", "replog", "sim", "storage")


class ReaderLeft(Exception):
    """The reader of standard output closed it. This is not an OSError, which click would turn into its own status."""


class Unavailable(click.ClickException):
    """A command that this installation cannot offer."""

    exit_code = UNUSABLE_INPUT


@final
class LazyGroup(click.Group):
    """Lists its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(MOUNTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command. Raises Unavailable if it cannot be; returns None for an unknown name."""
        mount = MOUNTS.get(cmd_name)
        return None if mount is None else load_command(cmd_name, mount)

    # The result is of type Any because that is click's signature.
    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises ReaderLeft and click.Abort in place of errors that click's own main would handle
        differently: with status 1 and an additional line.
        """
        try:
            with raised_on_ctrl_c():
                return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderLeft from error
        except KeyboardInterrupt as error:
            raise click.Abort from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Returns the commands and options that begin with `incomplete`; it imports no command."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=MOUNTS[name].summary) for name in names]
        # The next class's method would import every command; the one after it knows the options.
        return commands + super(click.Group, self).shell_complete(ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, MOUNTS[name].summary) for name in self.list_commands(ctx)])


def load_command(name: str, mount: Mount) -> click.Command:
    """Import the command `name` from its module.

    Raises Unavailable, which names what to install, if a package that is not ours is missing.
    """
    try:
        with ends_on_ctrl_c():
            module = importlib.import_module(mount.module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in _EXTRA_PACKAGES.get(mount.extra or "", ()):
            raise Unavailable(
                f"replog {name} needs {missing}: install the extra, pip install 'replog[{mount.extra}]'"
            ) from error
        if missing and missing not in _OWN_PACKAGES:
            raise Unavailable(f"replog {name} needs {missing}: pip install {missing}") from error
        # One of our modules imports another one that does not exist: a bug, which must show.
        if error.name != mount.module and not mount.module.startswith(f"{error.name}."):
            raise
        raise Unavailable(f"replog {name} is not part of this installation") from error
    commands = [value for value in vars(module).values() if isinstance(value, click.Command)]
    command = next((command for command in commands if command.name == name), None)
    assert command is not None, f"{mount.module} has no command {name!r}"
    return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="replog")
def replog() -> None:
    """A Kafka-style replicated log on Kafka's bytes, and the simulator that breaks it on purpose.

    Exit status: 0 held, 1 violated or damaged, 2 unusable input, 3 interrupted or out of time.
    """


def run(arguments: Sequence[str] | None) -> int:
    """Run one command; returns its exit status. No input of a user and no interruption ends in a stack trace."""
    _open_missing_streams()
    if not __debug__:
        _complain("Python's -O and PYTHONOPTIMIZE switch off the checks that guard the log: run without them")
        return UNUSABLE_INPUT
    try:
        status = _status(arguments)
        sys.stdout.flush()
    except click.Abort:
        _complain("interrupted")
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return UNUSABLE_INPUT
    except click.ClickException as error:
        _complain(error.format_message())
        return error.exit_code if isinstance(error, Unavailable) else UNUSABLE_INPUT
    except (BrokenPipeError, ReaderLeft):
        # The reader closed the pipe, as `| head` does. Python flushes again at exit: that must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED
    except OSError as error:
        _complain(_explained(error))
        return UNUSABLE_INPUT
    return status


def _status(arguments: Sequence[str] | None) -> int:
    """Run the command; returns the status that it returns or exits with."""
    try:
        status = replog.main(
            args=None if arguments is None else list(arguments), prog_name="replog", standalone_mode=False
        )
    except SystemExit as end:
        if isinstance(end.code, str):
            raise
        status = end.code
    return status if isinstance(status, int) else 0


def _open_missing_streams() -> None:
    """Open each stream that the caller closed (`<&-`, `>&-`), so that no file opened later gets the number of its
    descriptor."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")


def _explained(error: OSError) -> str:
    """Returns the file's name and the reason. Only errors of standard output, perhaps on a full disk, have no name."""
    reason = error.strerror or str(error)
    name = error.filename or ("standard output" if error.errno in _WRITING_ERRORS else None)
    return f"{name}: {reason}" if name else reason


def _complain(message: str) -> None:
    # On a full disk nobody can be told; the exit status says it then.
    with suppress(OSError):
        click.echo(f"error: {' '.join(message.split())}", err=True)
