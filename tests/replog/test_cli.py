"""The command `replog` itself: help, exit statuses, interruptions, and what it imports."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from replog import commands
from replog.cli import main
from replog.commands import MOUNTS, Mount, Unavailable, load_command

HEAVY = ("grpc", "simpy", "pyspark", "pydantic", "rich", "cluster")


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def test_dump_imports_nothing_heavy() -> None:
    code = (
        "import sys; from replog.cli import main; main(['dump', '--files', 'x']);"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    assert python("-c", code).stdout.splitlines()[-1] == "[]"


def test_checks_may_not_be_switched_off() -> None:
    done = python("-O", "-m", "replog", "dump", "--files", "x")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: Python's -O") and done.stderr.count("\n") == 1


def test_help_lists_every_command_without_importing_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    output = capsys.readouterr().out
    assert all(f"\n  {name} " in output for name in MOUNTS)


def test_no_command_shows_the_help_and_is_unusable_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Commands:" in capsys.readouterr().err


def test_unknown_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dmup"]) == 2
    assert capsys.readouterr().err.startswith("error: No such command 'dmup'.")


def test_missing_extra_says_what_to_install() -> None:
    mount = Mount(module="numpy.no_such_module", summary="", extra="spark")
    with pytest.raises(Unavailable, match=r"pip install 'replog\[spark\]'"):
        load_command("spark", mount)


def test_a_missing_module_of_the_package_is_one_line() -> None:
    with pytest.raises(Unavailable, match="replog later is not part of this installation"):
        load_command("later", Mount(module="replog.later", summary=""))


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_the_caller_closed_is_an_empty_one(closed: str) -> None:
    code = (
        "import sys; from replog.cli import main; status = main(['--version']);"
        "sys.exit(status or sys.stdin.read() != '' or sys.stdout.write('x') != 1)"
    )
    command = f'exec "{sys.executable}" -c "{code}" {closed}'
    done = subprocess.run(command, shell=True, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "raised, status, error",
    [
        (KeyboardInterrupt(), 3, "error: interrupted\n"),
        (click.Abort(), 3, "error: interrupted\n"),
        (
            FileNotFoundError(2, "No such file or directory", "a.yaml"),
            2,
            "error: a.yaml: No such file or directory\n",
        ),
        (click.UsageError("two\nlines"), 2, "error: two lines\n"),
        (click.ClickException("no"), 2, "error: no\n"),
        (OSError(28, "No space left on device"), 2, "error: standard output: No space left on device\n"),
        (SystemExit(1), 1, ""),
    ],
)
def test_what_a_command_raises_is_one_line_and_a_status(
    raised: BaseException,
    status: int,
    error: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @click.command("fails")
    def fails() -> None:
        raise raised

    monkeypatch.setattr(commands, "load_command", lambda name, mount: fails)
    assert main(["dump"]) == status
    assert capsys.readouterr().err == error


def test_a_reader_that_leaves_is_no_damage() -> None:
    """In `replog dump … | head -1`, click alone would exit with 1, which means that a file is damaged."""
    code = (
        "import sys, click; from replog import commands; from replog.cli import main\n"
        "@click.command('fills')\n"
        "def fills():\n"
        "    for _ in range(100_000): click.echo('x' * 80)\n"
        "commands.load_command = lambda name, mount: fills\n"
        "sys.exit(main(['dump']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert (process.wait(), process.stderr.read()) == (3, b"")


def test_an_interruption_while_modules_are_imported_is_one_line() -> None:
    code = (
        "import sys; from replog.cli import main\n"
        "class Pressed:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Pressed())\n"
        "sys.exit(main(['--version']))"
    )
    done = python("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "error: interrupted\n")


def test_the_front_door_imports_nothing_before_it_is_called() -> None:
    done = python("-c", "import sys; import replog.cli; print('click' in sys.modules)")
    assert done.stdout == "False\n"


def test_the_summary_of_log_names_its_commands() -> None:
    assert all(word in MOUNTS["log"].summary.lower() for word in ("verify", "stats", "recover", "truncate"))
