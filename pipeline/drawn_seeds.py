"""The process of one Spark task: it loads the simulator once, and forks a process for each seed.

    python -m pipeline.drawn_seeds < REQUEST

The request is a JSON object: `job`, as `SwarmJob.identity` returns it, and `seeds`, a list. It prints a row of JSON for
each seed. Spark's own worker could not do this: it has threads, which a fork does not survive.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

from cluster.local.python_path import python_path
from sim.cpu_limit import MOST_CPU_S
from sim.seeds import run_seeds
from sim.swarm.groups import signature_of
from sim.swarm.job import SwarmJob, warm
from sim.swarm.profiles import Profile


def run_part(job: SwarmJob, seeds: Iterable[int]) -> Iterator[str]:
    """Run the seeds of one task, in an executor; yields a row of JSON for each.

    Raises RuntimeError if the process ends early: a seed without a row is never taken for one that held.
    """
    wanted = list(seeds)
    if not wanted:
        return
    request = json.dumps({"job": job.identity(), "seeds": wanted})
    command = [sys.executable, "-m", "pipeline.drawn_seeds"]
    environment = os.environ | python_path(os.environ)
    done = subprocess.run(
        command, input=request, capture_output=True, text=True, check=False, env=environment
    )
    rows = done.stdout.splitlines()
    if done.returncode != 0 or len(rows) != len(wanted):
        why = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise RuntimeError(f"{len(rows)} of {len(wanted)} seeds from {wanted[0]} on: {why}")
    yield from rows


def rows_of_request(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Run the seeds of a request one after another; yields their rows, with the signature of a failure."""
    job = job_of(request["job"])
    warm(job)
    with closing(run_seeds(job, request["seeds"], jobs=1, most_cpu_s=MOST_CPU_S)) as results:
        for result in results:
            yield result.row | {"signature": signature_of(result.row)}


def job_of(identity: dict[str, Any]) -> SwarmJob:
    """Returns the job with this identity."""
    profile = identity["profile"]
    return SwarmJob(
        profile=Profile(profile) if profile is not None else None,
        only=tuple(identity["only"]),
        bug=identity["bug"],
        is_full=identity["full"],
        buggify=identity.get("buggify"),
    )


if __name__ == "__main__":
    if not __debug__:
        sys.exit("replog needs its asserts: run Python without -O")
    for found in rows_of_request(json.load(sys.stdin)):
        print(json.dumps(found), flush=True)
