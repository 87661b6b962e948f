"""Ctrl-C prints no traceback at whatever moment of a command it comes, imports and the end included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from replog import _early
from tests.places import GOLDEN

# It sends the signal at the N-th import after the first one of the package, where Python's own handler would raise.
AT_AN_IMPORT = """
import os, signal, sys
class Pressed:
    left = int(os.environ["PRESS_AT"])
    def find_spec(self, name, path=None, target=None):
        if "replog._early" in sys.modules:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Pressed())
"""
NEVER = 1_000_000
COMMANDS = {
    "version": ["--version"],
    "dump": ["dump", "--files", str(GOLDEN / "kafka-4.1/clean/shapes-none-0" / f"{0:020d}.log")],
    "verify": ["log", "verify", str(GOLDEN / "kafka-4.1/clean/shapes-none-0")],
    "sim": ["sim", "run", "leader-crash", "--no-story"],
    "topics": ["topics", "--help"],
    "spark": ["spark", "--help"],
}


def press(directory: Path, at: int, *arguments: str) -> tuple[int, str]:
    """Run a command and press Ctrl-C at an import; returns the status and what is on standard error."""
    (directory / "sitecustomize.py").write_text(AT_AN_IMPORT)
    environment = os.environ | {"PYTHONPATH": str(directory), "PRESS_AT": str(at)}
    command = [sys.executable, "-m", "replog", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def run_code(code: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("at", [1, 2, 5, 20])
def test_at_an_import_it_is_one_line_and_status_3(tmp_path: Path, at: int) -> None:
    assert press(tmp_path, at, *COMMANDS["dump"]) == (3, "error: interrupted\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_at_every_seventh_import_it_is_one_line_and_status_3(tmp_path: Path, name: str) -> None:
    sound = press(tmp_path, NEVER, *COMMANDS[name])
    assert sound[0] == 0
    for at in range(1, NEVER, 7):
        found = press(tmp_path, at, *COMMANDS[name])
        if found == sound:
            break
        # A command at work may use other words; it says nothing else.
        assert found in ((3, "error: interrupted\n"), (3, "interrupted\n")), at
    assert at > 20


COMMAND = """
import os, signal, sys, weakref
import click
from replog import commands
class Thing: pass
@click.command("works")
def works():
    {work}
commands.load_command = lambda name, mount: works
sys.argv[1:] = ["dump"]
from replog.cli import main
status = main()
{end}
sys.exit(status)
"""
PRESS = "os.kill(os.getpid(), signal.SIGINT)"


def test_at_work_it_is_raised_so_that_the_command_can_clean_up() -> None:
    work = f"""
    try:
        {PRESS}
        print("goes on")
    finally:
        sys.stderr.write("cleaned up\\n")
    """
    assert run_code(COMMAND.format(work=work, end="")) == (3, "cleaned up\nerror: interrupted\n")


def test_an_interruption_that_python_drops_in_a_callback_comes_again() -> None:
    """Before, Python printed the traceback as one that it ignored, and the command went on."""
    work = f"""
    thing = Thing()
    reference = weakref.ref(thing, lambda _: {PRESS})
    del thing
    for _ in range(10**9):
        pass
    """
    assert run_code(COMMAND.format(work=work, end="")) == (3, "error: interrupted\n")


def test_another_error_in_a_callback_is_shown_as_before() -> None:
    work = "thing = Thing(); reference = weakref.ref(thing, lambda _: 1 / 0); del thing"
    status, error = run_code(COMMAND.format(work=work, end=""))
    assert status == 0 and "ZeroDivisionError" in error


@pytest.mark.parametrize("status", [0, 1])
def test_at_the_end_it_changes_nothing_and_is_silent(status: int) -> None:
    work = f"sys.exit({status})"
    assert run_code(COMMAND.format(work=work, end=PRESS)) == (status, "")
    at_exit = f"import atexit; atexit.register(lambda: {PRESS})"
    assert run_code(COMMAND.format(work=work, end=at_exit)) == (status, "")


def test_an_ignored_signal_stays_ignored() -> None:
    """A shell starts commands in the background so."""
    code = COMMAND.format(work=PRESS, end=PRESS)
    assert run_code(f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{code}") == (0, "")


def test_a_call_from_a_program_leaves_its_handlers_alone() -> None:
    code = (
        "import signal, sys; from replog.cli import main; main(['--version'])\n"
        "sys.exit(signal.getsignal(signal.SIGINT) is not signal.default_int_handler"
        " or sys.unraisablehook is not sys.__unraisablehook__)"
    )
    assert run_code(code) == (0, "")


@pytest.mark.parametrize(
    ("argument", "original", "is_command"),
    [
        ("/usr/bin/replog", ["python", "/usr/bin/replog", "up"], True),
        ("-m", ["python", "-X", "dev", "-m", "replog", "up"], True),
        ("-m", ["python", "-m", "pytest", "replog"], False),
        ("/home/me/program.py", ["python", "/home/me/program.py"], False),
        ("", ["python"], False),
    ],
)
def test_only_the_command_changes_what_ctrl_c_does_at_its_import(
    monkeypatch: pytest.MonkeyPatch, argument: str, original: list[str], is_command: bool
) -> None:
    monkeypatch.setattr(sys, "argv", [argument])
    monkeypatch.setattr(sys, "orig_argv", original)
    assert _early.is_command() is is_command
