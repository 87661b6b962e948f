"""One scenario with many seeds: a process for each, results in order, and one closing line."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result

from cluster.core.events import Event
from sim import seeds as seeds_module
from sim.commands import sim
from sim.cpu_limit import Hung, cpu_limit
from sim.detection import runner
from sim.detection.runner import ProbeWork
from sim.detection.search import what_broke
from sim.seed_range import Seeds
from sim.seeds import KILLED, Job, run_seeds
from sim.seeds_output import Tally
from sim.world.time import ORIGIN_MS, Actor, World
from storage.draws import Draws
from tests.sim.hosts.fake_cores import Echo, Site, timer
from tests.sim.runs.test_run import SMALL

PR_GET_PDEATHSIG = 2
ENVIRONMENT = os.environ | {"COLUMNS": "120"}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(sim, ["run", *map(str, arguments)])


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "replog", "sim", "run", *map(str, arguments)]


@pytest.mark.parametrize(
    "text", ["3", "3..", "..7", "7..3", "3..3", "-1..4", "a..b", "²..9", f"0..{1 << 63}"]
)
def test_seeds_that_are_none_are_refused(small: Path, text: str) -> None:
    result = invoke(small, "--seeds", text)
    assert result.exit_code == 2 and "seeds" in result.stderr


def test_seeds_that_hold_are_one_line_and_the_end_is_excluded(small: Path) -> None:
    result = invoke(small, "--seeds", "3..6", "--jobs", "2")
    assert (result.exit_code, result.stdout) == (0, "small, seeds 3..6: 3 runs: 3 held\n")


def test_each_seed_is_the_run_that_it_is_alone(small: Path) -> None:
    rows = [json.loads(line) for line in invoke(small, "--seeds", "7..9", "--json").stdout.splitlines()]
    alone = json.loads(invoke(small, "--seed", "8", "--json").stdout)
    assert rows[1] == alone
    assert rows[2]["summary"]["verdicts"] == {"held": 2} and rows[2]["summary"]["failing"] == []


def test_a_seed_that_is_violated_is_printed_with_its_replay(small: Path) -> None:
    bug = "ack-before-high-watermark"
    result = invoke(small, "--seeds", "0..2", "--bug", bug)
    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    assert lines[0].startswith("seed 0: violated: at ")
    assert lines[1] == f"  replay: replog sim run {small} --seed 0 --bug {bug}"
    assert lines[-1] == "small, seeds 0..2: 2 runs: 2 violated"


def test_the_output_does_not_depend_on_the_number_of_processes(small: Path) -> None:
    arguments = (small, "--seeds", "0..5", "--json", "--bug", "ack-before-high-watermark")
    one, many = (invoke(*arguments, "--jobs", jobs) for jobs in ("1", "4"))
    assert one.stdout == many.stdout and one.stdout.count("\n") == 6


def test_a_result_waits_for_earlier_seeds(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Process:
        """Processes that end in the opposite order of their start."""

        started: ClassVar[list[Process]] = []

        def __init__(self, job: Job, seed: int, most_cpu_s: float | None) -> None:
            self.receiver, sender = multiprocessing.Pipe(duplex=False)
            sender.close()
            self.seed = seed
            self.started.append(self)

        def result(self) -> seeds_module.SeedResult:
            return seeds_module.SeedResult(
                seed=self.seed, verdict="held", reason="", replay="", row={"seed": self.seed}
            )

        def end(self) -> None: ...

    def last_first(receivers: list[object]) -> list[object]:
        return [Process.started.pop().receiver]

    monkeypatch.setattr(seeds_module, "SeedProcess", Process)
    monkeypatch.setattr(seeds_module, "wait", last_first)
    results = run_seeds(Job(path=small, source="small"), Seeds(first=0, end=5), jobs=5)
    assert [result.seed for result in results] == [0, 1, 2, 3, 4]


def test_a_run_that_breaks_an_assert_is_an_error_and_the_others_go_on(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(path: Path, seed: int, **_: object) -> None:
        assert seed != 1, "the log end went back"
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(seeds_module, "run_scenario", breaks)
    # The replacement exists only in this process and in its forks.
    monkeypatch.setattr(seeds_module, "may_fork", lambda: True)
    job = Job(path=small, source="small")
    found = list(run_seeds(job, Seeds(first=1, end=3), jobs=2))
    assert [result.verdict for result in found] == ["error", "error"]
    assert found[0].reason.startswith("AssertionError: the log end went back")
    assert found[1].reason == "the process of this run ended with signal 9, perhaps because memory ran out"


class Ends:
    """A run whose process ends by the signal with the number of its seed, and the row of how it is told to end."""

    title = "ends"

    def run(self, seed: int) -> dict[str, Any]:
        if seed:
            signal.signal(seed, signal.SIG_DFL) if seed != signal.SIGKILL else None
            os.kill(os.getpid(), seed)
        told = ctypes.c_int()
        ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(told))
        return {"seed": seed, "verdict": "held", "told": told.value}

    def replay(self, seed: int) -> str:
        return f"replay {seed}"


def test_the_row_of_a_process_that_somebody_has_killed_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds_module, "may_fork", lambda: True)
    numbers = (signal.SIGKILL, signal.SIGTERM, signal.SIGABRT)
    rows = [each.row for each in run_seeds(Ends(), numbers, jobs=1)]
    assert [row["verdict"] for row in rows] == ["error"] * 3
    assert [KILLED in row for row in rows] == [True, True, False]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can do it")
def test_a_process_of_a_seed_is_killed_when_its_parent_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds_module, "may_fork", lambda: True)
    (found,) = run_seeds(Ends(), [0], jobs=1)
    assert found.row["told"] == signal.SIGKILL


class DiesWhileItSends:
    """A run whose process is killed for seed 1 when it has sent the length of its row and a few bytes of it."""

    title = "dies"

    def run(self, seed: int) -> dict[str, Any]:
        def begins(receiver: Connection, row: bytes) -> None:
            os.write(receiver.fileno(), len(row).to_bytes(4, "big") + row[:10])
            os.kill(os.getpid(), signal.SIGKILL)

        if seed == 1:
            Connection.send_bytes = begins  # type: ignore[method-assign, assignment]
        return {"seed": seed, "verdict": "held"}

    def replay(self, seed: int) -> str:
        return f"replay {seed}"


def test_a_process_that_is_killed_while_it_sends_is_an_error_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What the run replaces, it replaces in its own process only.
    monkeypatch.setattr(seeds_module, "may_fork", lambda: True)
    found = list(run_seeds(DiesWhileItSends(), range(3), jobs=1))
    assert [result.verdict for result in found] == ["held", "error", "held"]
    assert found[1].reason == "the process of this run ended with signal 9, perhaps because memory ran out"


class Spinning(Echo):
    """A core whose first step has no end."""

    def step(self, now_ms: int, event: Event) -> Sequence[object]:
        while True:
            now_ms += 1


class Spins:
    """A simulated node with an endless loop in one of its steps, for seed 1 only."""

    title = "spins"

    def run(self, seed: int) -> dict[str, Any]:
        core = Spinning([timer("spin", ORIGIN_MS + 20)]) if seed == 1 else Echo()
        site = Site(lambda number: core, nodes=1)
        site.start()
        site.world.run_to(1_000_000)
        return {"seed": seed, "verdict": "held"}

    def replay(self, seed: int) -> str:
        return f"replay {seed}"


def test_a_step_without_an_end_is_an_error_with_its_replay_and_the_others_go_on() -> None:
    found = list(run_seeds(Spins(), range(3), jobs=1, most_cpu_s=0.1))
    assert [result.verdict for result in found] == ["held", "error", "held"]
    assert found[1].reason == "hung: no end after 0.1 s of processor time, in test_seeds.py, step"
    assert found[1].replay == "replay 1"


def test_an_event_without_an_end_is_noticed_long_before_the_run_has_used_its_time() -> None:
    with pytest.raises(Hung, match=r"hung: no end of one event after 0.05 s"), cpu_limit(100, 0.05):
        Spins().run(1)


def test_events_may_take_long_together_and_what_follows_them_too() -> None:
    def busy(seconds: float) -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    world = World(Draws(1))
    for each in range(10):
        world.after(Actor(world.draws, "a"), each, busy, 0.02)
    with cpu_limit(100, 0.1):
        world.run_to(1_000)
        busy(0.2)
    assert world.events == 10


def test_a_probe_whose_step_has_no_end_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    # The operating system's limit would stay for the process of the tests.
    monkeypatch.setattr(runner, "_limit_cpu", lambda limit_s: None)
    probe = ProbeWork(job=Spins(), limit_s=100, cpu_s=lambda: 1.5)  # type: ignore[arg-type]
    with cpu_limit(100, 0.05):
        row = probe.run(1)
    assert what_broke(row) == "Hung" and row["cpu_s"] == 1.5


@pytest.mark.parametrize(
    ("verdicts", "interrupted", "status"),
    [
        (["held", "held"], False, 0),
        (["starved", "error", "violated"], True, 1),
        (["starved", "error"], False, 2),
        (["held", "starved"], False, 3),
        (["held"], True, 3),
    ],
)
def test_the_status_is_that_of_the_gravest_verdict(
    verdicts: list[str], interrupted: bool, status: int
) -> None:
    tally = Tally(Job(path=Path("a.yaml"), source="a"), Seeds(first=0, end=9))
    for seed, verdict in enumerate(verdicts):
        tally.add(seeds_module.SeedResult(seed=seed, verdict=verdict, reason="", replay="", row={}))
    tally.is_interrupted = interrupted
    assert tally.status() == status


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "2"], "--jobs needs --seeds"),
        (["--seed", "1", "--seeds", "0..2"], "exclude each other"),
        (["--seeds", "0..2", "--trace", "t"], "--trace is of one run"),
        (["--seeds", "0..2", "--bug", "nonsense"], "unknown bug 'nonsense'"),
    ],
)
def test_options_that_make_no_sense_together_are_refused(
    small: Path, arguments: list[str], message: str
) -> None:
    result = invoke(small, *arguments)
    assert result.exit_code == 2 and message in result.stderr


def test_a_bad_file_is_refused_once_and_not_for_each_seed(small: Path) -> None:
    small.write_text(SMALL.replace("duration: 3s", "duration: 5 parsecs"))
    result = invoke(small, "--seeds", "0..3")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)


def test_sim_imports_no_grpc() -> None:
    code = "import sys, sim.commands; print(sorted({'grpc', 'asyncio', 'pyspark'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_no_process_is_forked_after_grpc_was_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", sys)
    assert not seeds_module.may_fork()


@pytest.fixture
def endless(small: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command that has printed its first result of very many; it has a process group of its own."""
    process = subprocess.Popen(
        command(small, "--seeds", "0..1000000", "--jobs", "2", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["seed"] == 0
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def members(group: int) -> list[int]:
    """Returns the processes of a group that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("is_from_terminal", [True, False])
def test_ctrl_c_ends_every_process_and_prints_no_traceback(
    endless: subprocess.Popen[bytes], is_from_terminal: bool
) -> None:
    """A terminal sends the signal to all processes of the command, `kill` only to the first."""
    (os.killpg if is_from_terminal else os.kill)(endless.pid, signal.SIGINT)
    out, error = endless.communicate(timeout=60)
    assert (endless.returncode, error) == (3, b"interrupted\n")
    summary = json.loads(out.splitlines()[-1])["summary"]
    # The first row was read before, and one more may have been counted and not printed.
    assert summary["interrupted"] and summary["runs"] - out.count(b"\n") in (0, 1)
    assert members(endless.pid) == []


def test_a_reader_that_leaves_ends_every_process(endless: subprocess.Popen[bytes]) -> None:
    assert endless.stdout is not None and endless.stderr is not None
    endless.stdout.close()
    assert (endless.wait(60), endless.stderr.read()) == (3, b"")
    assert members(endless.pid) == []
    endless.stdout = None


def test_a_terminal_sees_a_bar_and_a_pipe_does_not(small: Path) -> None:
    try:
        master, terminal = pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal can be made here: {error}")
    arguments = command(small, "--seeds", "0..3")
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=terminal, env=ENVIRONMENT, check=True)
    os.close(terminal)
    shown = b""
    # Reading after the last byte fails, because nobody has the terminal open.
    while block := _read(master):
        shown += block
    os.close(master)
    assert b"3/3" in shown and b"small" in shown
    assert done.stdout == b"small, seeds 0..3: 3 runs: 3 held\n"
    assert subprocess.run(arguments, capture_output=True, check=True).stderr == b""


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        return b""
