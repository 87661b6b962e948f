"""The common parts of the client commands: the bootstrap option, NAME=VALUE pairs, and how errors end a command."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import difflib
import enum
import signal
import sys
import typing
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import NoReturn, TypeVar

import click
from click.core import ParameterSource

from cluster.core.client.config import AdminConfig, ConsumerConfig, OffsetReset, ProducerConfig
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import MetadataResponse
from cluster.shell.clients import DEFAULT_BOOTSTRAP, AsyncAdmin, parse_bootstrap
from storage.codec.compression import Compression
from storage.errors import StorageError

HELD, FAILED, UNUSABLE, OUT_OF_TIME = 0, 1, 2, 3
# Refusals that the same command would meet again, because its input is at fault.
_UNUSABLE_CODES = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
_OUT_OF_TIME_CODES = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE}
)
TOPIC_WAIT_S = 0.5

BOOTSTRAP_VARIABLE = "REPLOG_BOOTSTRAP_SERVER"

T = TypeVar("T")
Config = TypeVar("Config", ProducerConfig, ConsumerConfig)
Command = TypeVar("Command", bound=Callable[..., object])


def bootstrap_option(command: Command) -> Command:
    """Adds the option `--bootstrap-server` to a command."""
    option = click.option(
        "--bootstrap-server",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        envvar=BOOTSTRAP_VARIABLE,
        show_envvar=True,
        metavar="HOST:PORT[,…]",
        callback=_check_bootstrap,
        help="Addresses of brokers; one that answers is enough.",
    )
    return option(command)


def _check_bootstrap(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        parse_bootstrap(value)
    except ValueError as error:
        if context.get_parameter_source(parameter.name or "") is ParameterSource.ENVIRONMENT:
            raise click.UsageError(f"the environment variable {BOOTSTRAP_VARIABLE}: {error}") from error
        raise click.BadParameter(str(error), ctx=context, param=parameter) from error
    return value


def fail(message: object, status: int) -> NoReturn:
    """Prints one line on standard error and exits with `status`."""
    click.echo(f"error: {' '.join(str(message).split())}", err=True)
    sys.exit(status)


def status_of(code: ErrorCode) -> int:
    if code in _OUT_OF_TIME_CODES:
        return OUT_OF_TIME
    return UNUSABLE if code in _UNUSABLE_CODES else FAILED


@contextlib.contextmanager
def errors_end_the_command() -> Iterator[None]:
    """Ends the process with one line and a status on an error in the block: Kafka's name first, then the subject.

    A reader that has closed the pipe, such as `head`, is no error.
    """
    try:
        yield
    except ClusterError as error:
        fail(error, status_of(error.code))
    except ValueError as error:
        fail(error, UNUSABLE)
    except StorageError as error:
        code = ErrorCode(error.code)
        fail(f"{code.name}: {error}", status_of(code))
    except (KeyboardInterrupt, asyncio.CancelledError):
        fail("interrupted", OUT_OF_TIME)
    except BrokenPipeError:
        # Otherwise the interpreter would report at its end that it cannot flush.
        sys.stderr.close()
        sys.exit(HELD)


def run(work: Coroutine[object, object, T]) -> T:
    with errors_end_the_command():
        return asyncio.run(work)
    # For the type checker: the context ends the process on errors.
    raise AssertionError("unreachable")


def cancelled_by_sigterm() -> None:
    """Lets SIGTERM cancel the running task, which `run` runs: it ends in order then, as after Ctrl-C.

    Ctrl-C itself may be ignored: a shell without job control has its background jobs ignore it.
    """
    task = asyncio.current_task()
    assert task is not None, "no task runs"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def pairs(values: tuple[str, ...], option: str) -> tuple[tuple[str, str], ...]:
    """Parses the NAME=VALUE values of an option. Raises click.UsageError."""
    split = [value.partition("=") for value in values]
    for value, (name, equals, _) in zip(values, split, strict=True):
        if not name or not equals:
            raise click.UsageError(f"{option}: expected NAME=VALUE, got {value!r}")
    return tuple((name.strip(), value.strip()) for name, _, value in split)


def client_config(config: Config, properties: tuple[tuple[str, str], ...], option: str) -> Config:
    """Returns `config` changed by properties in Kafka's dotted names. Raises click.UsageError or ConfigError."""
    hints = typing.get_type_hints(type(config))
    changes = {}
    for name, text in properties:
        field = name.replace(".", "_")
        if field not in hints:
            raise no_such_property(option, name, hints)
        changes[field] = _parse(name, text, hints[field])
    # Each value is parsed by the type of its field.
    return dataclasses.replace(config, **changes)  # type: ignore[arg-type]


def no_such_property(option: str, name: str, fields: Iterable[str]) -> click.UsageError:
    """Returns the error that names the nearest known property, and all of them. `fields` have underscores for dots."""
    known = sorted(field.replace("_", ".") for field in fields)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"the nearest is {near[0]}; " if near else ""
    return click.UsageError(f"{option}: unknown property {name!r}; {hint}known are {', '.join(known)}")


def _parse(name: str, text: str, hint: object) -> object:
    try:
        if hint is int:
            # Of the numbers, only acks may be given as a word.
            return -1 if text == "all" else int(text)
        if hint is Compression:
            return Compression[text.upper()]
        if hint is OffsetReset:
            return OffsetReset(text)
        return {"true": True, "false": False}[text.lower()]
    except (ValueError, KeyError) as error:
        raise click.UsageError(f"{name}={text}: expected {_expected(hint)}") from error


def _expected(hint: object) -> str:
    if hint is int:
        return "a number"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return f"one of {', '.join(each.name.lower() for each in hint)}"
    return "true or false"


async def require_topics(bootstrap: str, topics: tuple[str, ...]) -> MetadataResponse:
    """Returns the metadata of `topics`. Raises ClusterError if one does not exist.

    A topic that was just created may be unknown to a broker for a moment, so this tries for TOPIC_WAIT_S seconds.
    """
    async with AsyncAdmin(bootstrap, admin_config()) as admin:
        deadline = asyncio.get_running_loop().time() + TOPIC_WAIT_S
        while True:
            metadata = await admin.metadata(topics)
            refused = [topic for topic in metadata.topics if topic.error not in _PASSING]
            if not refused:
                return metadata
            is_late = asyncio.get_running_loop().time() > deadline
            if is_late or refused[0].error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise ClusterError(refused[0].error, f"topic {refused[0].name}")
            await asyncio.sleep(0.05)


_PASSING = frozenset({ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE})


def admin_config() -> AdminConfig:
    """Returns a configuration with a shorter timeout than the default: a person waits at the terminal."""
    return AdminConfig(default_api_timeout_ms=10_000)
