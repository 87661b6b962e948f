"""What a campaign runs, keeps, and does when it is told to end."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterable
from itertools import islice
from pathlib import Path

import pytest

from sim.interruption import terminated_like_interrupted
from sim.seed_range import MOST_SEEDS, Seeds
from sim.seeds import ERROR, KILLED, SeedResult
from sim.swarm import output
from sim.swarm.job import SwarmJob
from sim.swarm.output import run_campaign

JOB = SwarmJob()
Results = Generator[SeedResult, None, None]


def campaign(path: Path, seeds: Seeds, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Returns the status of a campaign, and what it has printed."""
    status = run_campaign(JOB, seeds, jobs=1, out=path, as_json=False, stopwatch=lambda: (0.0, 0.0))
    return status, capsys.readouterr().out


def result(seed: int, **row: object) -> SeedResult:
    whole = {"seed": seed, "verdict": "held", "replay": "again", **row}
    return SeedResult(seed=seed, verdict=str(whole["verdict"]), reason="", replay="again", row=whole)


def test_a_seed_whose_process_was_killed_is_counted_and_runs_again_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[int]] = []

    def run(job: SwarmJob, left: Iterable[int], **options: object) -> Results:
        ran.append(list(left))
        for seed in ran[-1]:
            is_killed = len(ran) == 1 and seed == 1
            yield (
                result(seed, verdict="error", **{ERROR: "killed", KILLED: True})
                if is_killed
                else result(seed)
            )

    monkeypatch.setattr(output, "run_seeds", run)
    path, seeds = tmp_path / "out.jsonl", Seeds(first=0, end=3)
    status, told = campaign(path, seeds, capsys)
    assert status == 2 and "3 runs: 1 error, 2 held" in told
    status, told = campaign(path, seeds, capsys)
    assert status == 0 and "3 runs: 3 held" in told
    assert ran == [[0, 1, 2], [1]]


def test_a_range_of_any_length_is_gone_on_with_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds, ran = Seeds(first=0, end=MOST_SEEDS), list[int]()

    def run(job: SwarmJob, left: Iterable[int], **options: object) -> Results:
        for seed in islice(left, 2):
            ran.append(seed)
            yield result(seed)
        raise KeyboardInterrupt

    monkeypatch.setattr(output, "run_seeds", run)
    for _ in range(2):
        assert campaign(tmp_path / "out.jsonl", seeds, capsys)[0] == 3
    assert ran == [0, 1, 2, 3]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_a_command_ends_a_campaign_like_ctrl_c(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    def run(job: SwarmJob, left: Iterable[int], **options: object) -> Results:
        yield result(0)
        os.kill(os.getpid(), number)

    monkeypatch.setattr(output, "run_seeds", run)
    before = signal.getsignal(number)
    status, told = campaign(tmp_path / "out.jsonl", Seeds(first=0, end=3), capsys)
    assert status == 3 and "1 of 3 runs done: 1 held" in told
    assert signal.getsignal(number) is before


def test_a_signal_that_is_ignored_stays_so_and_the_others_end_what_ignores_ctrl_c() -> None:
    before = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGHUP, signal.SIGINT)}
    try:
        with terminated_like_interrupted():
            os.kill(os.getpid(), signal.SIGHUP)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
