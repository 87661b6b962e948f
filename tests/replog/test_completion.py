"""Completion in bash, zsh and fish: the script loads, and it completes commands, options and bundled names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from replog.cli import main
from replog.commands import MOUNTS
from replog.completion_command import SHELLS

NAMES = sorted(MOUNTS)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which `replog` is the command of this checkout."""
    command = tmp_path / "replog"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m replog "$@"\n')
    command.chmod(0o755)
    return os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}


def asked(words: str, number: int, environment: dict[str, str]) -> list[str]:
    """Returns what bash would offer for the word `number` of `words`."""
    variables = {"_REPLOG_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    done = subprocess.run(["replog"], env=environment | variables, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_each_shell_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_REPLOG_COMPLETE={shell}_complete" in script and "replog" in script


def test_an_unknown_shell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in capsys.readouterr().err


def test_the_help_says_how_to_install_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(place in text for place in ("~/.bashrc", "~/.zshrc", "~/.config/fish/completions"))


def test_commands_are_completed_without_an_import_of_one(environment: dict[str, str]) -> None:
    assert asked("replog ", 1, environment) == NAMES
    assert asked("replog s", 1, environment) == [name for name in NAMES if name.startswith("s")]
    code = (
        "import sys; from replog.commands import replog\n"
        "with replog.make_context('replog', ['--help'], resilient_parsing=True) as context:\n"
        "    names = [item.value for item in replog.shell_complete(context, '')]\n"
        "print(names, [name for name in ('cluster', 'sim', 'pipeline') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{NAMES} []\n"


@pytest.mark.parametrize(
    ("words", "number", "expected"),
    [
        ("replog sim ru", 2, ["run"]),
        ("replog log re", 2, ["recover"]),
        ("replog sim run leader", 3, ["leader-crash"]),
        ("replog sim run leader-crash --jo", 4, ["--jobs"]),
        ("replog completion ", 2, ["bash", "zsh", "fish"]),
        ("replog --ver", 1, ["--version"]),
    ],
)
def test_subcommands_options_and_names_are_completed(
    environment: dict[str, str], words: str, number: int, expected: list[str]
) -> None:
    assert asked(words, number, environment) == expected


def shell_says(shell: str, script: str, environment: dict[str, str]) -> str:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([path, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def test_bash_completes(environment: dict[str, str]) -> None:
    script = (
        'eval "$(replog completion bash)"; COMP_WORDS=(replog sim run leader); COMP_CWORD=3\n'
        '_replog_completion replog; echo "${COMPREPLY[@]}"; complete -p replog'
    )
    words, registered = shell_says("bash", script, environment).splitlines()
    assert words == "leader-crash" and registered.endswith("-F _replog_completion replog")


def test_zsh_loads_the_script(environment: dict[str, str]) -> None:
    script = 'autoload -U compinit; compinit -u; eval "$(replog completion zsh)"; print ${_comps[replog]}'
    assert shell_says("zsh", script, environment) == "_replog_completion\n"


def test_fish_completes(environment: dict[str, str]) -> None:
    script = "replog completion fish | source; complete -C 'replog sim run leader'"
    assert shell_says("fish", script, environment).split()[0] == "leader-crash"
