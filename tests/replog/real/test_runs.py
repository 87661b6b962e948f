"""Scenarios on real processes: three that hold, damage that the checkers must find, and ends that leave nothing."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.local.layout import HOST
from replog.cli import main
from replog.real.command import run_scenario_on_processes
from replog.real.ground import NotStarted
from replog.real.ports import lasting_ports
from replog.real.run import RealRun
from sim.bundled import find_scenario
from sim.checkers.history import LEADER_ALONE
from sim.judgement import Verdict
from sim.scenario.loading import load_scenario, parse_scenario

NAMES = ("leader-crash", "cut-leader-acks-1", "slow-follower-isr")
# On a machine that does much else, processes take seconds to start.
DURATION_S = 60
WAIT_S = 30


def told(story: tuple[str, ...], words: str) -> int:
    return sum(words in line for line in story)


@pytest.mark.parametrize("name", NAMES)
def test_a_bundled_scenario_holds_on_processes(name: str) -> None:
    scenario = load_scenario(find_scenario(name)).model_copy(update={"duration": DURATION_S * 1_000_000})
    result = run_scenario_on_processes(scenario, 1, is_short=True)
    assert result.violations == (), "\n".join(result.story)
    assert (result.verdict, result.never_struck, result.skipped) == (Verdict.HELD, (), ())
    assert result.operations["ok"] > 200 and result.reads > 200
    if name == "leader-crash":
        assert told(result.story, "kill broker-") == told(result.story, "is back after an unclean stop") == 2
    elif name == "cut-leader-acks-1":
        assert result.excused[LEADER_ALONE] > 20
    else:
        assert told(result.story, "slow Slow <-> leader(t/0)") == told(result.story, "kill broker-") == 1


SMALL = """\
scenario: small
warm_up: 0s
duration: 60s
cluster: {brokers: 2}
topics:
  t: {replicas: 2}
  u: {replicas: 2}
producers:
  - {topic: t, rate: 25/s}
  - {topic: u, rate: 25/s}
consumers:
  - {topic: t}
steps:
  - when: after-ack(t/0) >= 10
    power: leader(t/0)
    as: Old
  - pause: Old
    for: 100ms
"""


def cut_tail(path: Path) -> None:
    """Take the last byte of the log away, as if its last batch had never been whole."""
    os.truncate(path, path.stat().st_size - 1)


def test_the_checkers_find_records_that_are_missing_on_one_disk_or_on_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a violated run leaves is deleted with the directory of the test.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def damage(data: Path) -> None:
        assert len(logs := sorted(data.glob("broker-*/log-1/*-0/*.log"))) == 4, logs
        cut_tail(next(iter(sorted(data.glob("broker-*/log-1/t-0/*.log")))))
        for path in data.glob("broker-*/log-1/u-0/*.log"):
            cut_tail(path)

    result = run_scenario_on_processes(parse_scenario(SMALL), 1, before_judgement=damage, is_short=True)
    assert result.verdict is Verdict.VIOLATED
    found = {(each.checker, each.what.partition(":")[0]) for each in result.violations}
    assert ("replicas-agree", "t-0") in found
    assert any(each.checker == "history" and "u-0" in each.what for each in result.violations)
    # The one step that processes cannot suffer is skipped with a word, and its name still means the leader.
    assert result.skipped[0].startswith("step 1: power leader(t/0): ")
    assert told(result.story, ", the Old") == 1
    assert result.data is not None and (result.data / "broker-1.txt").is_file()


def test_a_port_in_use_is_one_clear_line_and_leaves_no_process(tmp_path: Path) -> None:
    before = set(children_of(os.getpid()))
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]

        def choose(count: int) -> list[int]:
            return [port, *lasting_ports(count - 1)]

        run = RealRun(parse_scenario(SMALL), 0, tmp_path, lambda line: None, choose_ports=choose)
        with pytest.raises(
            NotStarted, match=f"^controller: port {port} of {HOST} is in use by another process$"
        ):
            asyncio.run(run.go(""))
    assert set(children_of(os.getpid())) <= before


def children_of(parent: int) -> Iterator[int]:
    """Yields the processes whose parent it is."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            yield int(path.parent.name)


def started(temporary: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """Returns a run that has elected its leader, and the processes that it has started."""
    run = subprocess.Popen(
        [sys.executable, "-m", "replog", "sim", "run", "leader-crash", "--real"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert run.stdout is not None
    for line in run.stdout:
        if "leads epoch 0" in line:
            break
    children = list(children_of(run.pid))
    assert len(children) >= 4, children
    return run, children


def ended(pid: int) -> bool:
    """Whether the process has ended, and whoever inherited it has noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_ctrl_c_ends_every_process_and_leaves_no_directory(tmp_path: Path) -> None:
    run, children = started(tmp_path)
    assert list(tmp_path.iterdir()) != []
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=WAIT_S)
    assert (run.returncode, errors) == (3, "interrupted\n")
    assert all(map(ended, children))
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_killed_takes_its_processes_along_even_one_that_is_suspended(tmp_path: Path) -> None:
    run, children = started(tmp_path)
    os.kill(children[0], signal.SIGSTOP)
    run.kill()
    run.communicate(timeout=WAIT_S)
    descriptors = []
    for pid in children:
        try:
            descriptors.append(os.pidfd_open(pid))
        except ProcessLookupError:
            continue
    for descriptor in descriptors:
        assert select.select([descriptor], [], [], WAIT_S)[0], "it still runs"
        os.close(descriptor)
    assert all(map(ended, children))


def test_the_options_of_the_simulator_are_refused_with_real(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--trace", "--history"):
        assert main(["sim", "run", "leader-crash", "--real", option, "t.jsonl"]) == 2
        assert f"{option} needs the simulator" in capsys.readouterr().err


def test_a_result_is_one_json_object(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text("scenario: tiny\nwarm_up: 0s\nduration: 500ms\ncluster: {brokers: 1}\ntopics: {t: {replicas: 1}}\n"
                    "producers: [{topic: t, rate: 50/s, records: 5}]\n")  # fmt: skip
    assert main(["sim", "run", str(path), "--real", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["verdict"], said["operations"]["fail"], said["data"]) == ("held", 0, None)
    assert said["operations"]["ok"] in range(6)  # those that were answered within the half second
