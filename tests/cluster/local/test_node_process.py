"""A node's process that cannot start: it writes one line for its parent, and says whose fault it is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from cluster.local.node import parse_arguments, run_node


@pytest.mark.parametrize("node_id", ["0", "1"])
def test_a_directory_that_cannot_be_made_is_unusable_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], node_id: str
) -> None:
    (tmp_path / "file").touch()
    directory = tmp_path / "file" / "node-1"
    arguments = parse_arguments(["--node-id", node_id, "--port", "1", "--directory", str(directory)])
    assert asyncio.run(run_node(arguments)) == 2
    assert json.loads(capsys.readouterr().out) == {
        "event": "failed",
        "reason": f"{directory}: Not a directory",
        "is_unusable_input": True,
    }
