"""A simulated and a real cluster send the same kinds of messages on the same streams."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from cluster.core.connection.codec import OutOfBounds
from tests.sim.runs import message_kinds


@pytest.mark.slow
def test_a_simulated_and_a_real_cluster_send_the_same_kinds_of_messages_on_the_same_streams(
    tmp_path: Path,
) -> None:
    trace = io.BytesIO()
    simulated, real = message_kinds.simulated(trace), message_kinds.real(tmp_path)
    assert real == simulated
    assert len({path for path, _ in real.requests if path.endswith(("Fetch", "Produce"))}) == 3
    assert OutOfBounds.__name__ not in {name for _, name in real.answers}
    events = [json.loads(line) for line in trace.getvalue().splitlines()]
    requests = {(each["on"], each["body"]["is"]) for each in events if each.get("kind") == "request"}
    answers = {each["body"]["is"] for each in events if each.get("kind") == "response"}
    assert requests == real.requests
    assert answers == {name for _, name in real.answers}
