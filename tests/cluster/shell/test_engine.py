"""gRPC polls as it did before its EventEngine, unless the user says otherwise; each case in a process of its own."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

from cluster.shell import engine
from cluster.shell.engine import FIRST_VERSION, FORMER_POLLER, LAST_VERSION, VARIABLE

# A server and a client of one process find each other; then the experiments that child processes would get.
TALK = """
import asyncio, os
import cluster.shell.runtime
import grpc.aio

async def talk():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await asyncio.wait_for(channel.channel_ready(), 20)
    await server.stop(0)

asyncio.run(talk())
print(os.environ.get("GRPC_EXPERIMENTS"))
"""
# Files of gRPC that log when a socket is used: that of the EventEngine, and the one before it.
EVENT_ENGINE, FORMER = "posix_endpoint.cc", "tcp_posix.cc"
TRACED = {"GRPC_VERBOSITY": "debug", "GRPC_TRACE": "tcp,event_engine_endpoint"}


def talk(**environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    return subprocess.run(
        [sys.executable, "-c", TALK],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_the_installed_version_is_one_that_this_was_tried_with() -> None:
    found = engine.installed_version()
    assert found is not None and FIRST_VERSION <= found <= LAST_VERSION, found


def test_the_former_poller_serves_both_sides() -> None:
    done = talk(**TRACED)
    assert FORMER in done.stderr and EVENT_ENGINE not in done.stderr


def test_the_environment_is_left_as_it_was_and_the_names_are_known() -> None:
    done = talk()
    assert done.stdout == "None\n" and "experiment" not in done.stderr


def test_a_name_that_grpc_does_not_know_would_be_seen() -> None:
    assert "Unknown experiment" in talk(**{VARIABLE: "-no_such_engine"}).stderr


@pytest.mark.parametrize("given", ["event_engine_client,event_engine_listener", ""])
def test_what_the_user_asks_for_goes_first(given: str) -> None:
    done = talk(**TRACED, **{VARIABLE: given})
    # Without a word from anybody, versions before 1.80 have the former poller.
    version = engine.installed_version()
    assert version is not None
    assert EVENT_ENGINE in done.stderr or (not given and version < (1, 80))
    assert done.stdout == f"{given}\n"


def test_an_unknown_version_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    imported: list[tuple[str, str | None]] = []
    monkeypatch.setattr(
        importlib, "import_module", lambda name: imported.append((name, os.environ.get(VARIABLE)))
    )
    for version in (None, (LAST_VERSION[0], LAST_VERSION[1] + 1), (1, 75)):
        monkeypatch.setattr(engine, "installed_version", lambda version=version: version)
        engine.import_grpc()
    assert not imported
    monkeypatch.setattr(engine, "installed_version", lambda: LAST_VERSION)
    engine.import_grpc()
    assert imported == [("grpc", FORMER_POLLER)] and VARIABLE not in os.environ
