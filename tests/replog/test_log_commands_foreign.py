"""The offline commands on directories that are no partition's: nothing is made, nothing is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from replog.log_commands import log


def listing(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A tree like /etc: some of its folders have names that read like TOPIC-PARTITION."""
    for name in ("dbus-1/session.conf", "polkit-1/rules", "empty-0/keep.txt", "hosts"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("not a log")
    return tmp_path


@pytest.mark.parametrize("command", [["recover"], ["verify"], ["truncate", "--to-offset", "0"]])
@pytest.mark.parametrize("inside", ["", "dbus-1"])
def test_a_directory_without_logs_is_refused_and_left_alone(
    foreign: Path, command: list[str], inside: str
) -> None:
    before = listing(foreign)
    done = CliRunner().invoke(log, [command[0], str(foreign / inside), *command[1:]])
    assert done.exit_code == 2
    reasons = ("holds no partition", "is not a partition directory")
    assert any(reason in done.output for reason in reasons) and len(done.output.splitlines()) == 1
    assert listing(foreign) == before
