"""The command `replog sim`: the commands of the simulator, whose scenarios can run on processes too."""

from __future__ import annotations

from pathlib import Path

from sim.commands import RunOnProcesses
from sim.commands import sim as sim


def _run_on_processes(path: Path, seed: int, *, source: str, as_json: bool, with_story: bool) -> int:
    # Only such a run needs gRPC.
    from replog.real.command import run_on_processes

    return run_on_processes(path, seed, source=source, as_json=as_json, with_story=with_story)


_RUNNER: RunOnProcesses = _run_on_processes
sim.context_settings["obj"] = _RUNNER
