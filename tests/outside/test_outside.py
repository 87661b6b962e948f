"""The wheel in a project outside of the repository: programs run, mypy knows the types, editors complete the names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.local.real_cluster import running
from tests.outside.language_client import LanguageServer, language_server
from tests.outside.wheel import Installed, build_wheel

PACKAGES = ("cluster", "pipeline", "replog", "sim", "storage")
PROGRAM = Path(__file__).parent / "program.py"
# The options are the same in all tests, so that they share mypy's cache.
MYPY = ("--strict", "--disallow-any-expr", "--no-pretty")
# A type checker's note for each line with `reveal_type` is the comment at its end.
TYPED = """
from pyspark.sql import SparkSession
from replog import (
    Admin, AsyncProducer, Consumer, PartitionLog, Producer, ProducerConfig, RecordBatch, register, run_scenario
)

def blocking(admin: Admin, producer: Producer, consumer: Consumer) -> None:
    reveal_type(producer.send("orders", b"v"))  # concurrent.futures._base.Future[RecordMetadata]
    reveal_type(producer.send("orders", b"v").result().offset)  # int
    reveal_type(consumer.poll()[0][1].value)  # bytes | None
    reveal_type(admin.list_topics())  # list[str]
    reveal_type(ProducerConfig().linger_ms)  # int

async def with_asyncio(producer: AsyncProducer) -> None:
    reveal_type(await producer.send("orders", b"v"))  # _asyncio.Future[RecordMetadata]
    reveal_type(await producer.send_and_wait("orders", b"v"))  # RecordMetadata

def others(log: PartitionLog, batch: RecordBatch, spark: SparkSession) -> None:
    reveal_type(log.log_end_offset)  # int
    reveal_type(log.read(0, max_size=1).records)  # bytes
    reveal_type(batch.base_offset)  # int
    reveal_type(run_scenario("FILE", 7).violations)  # tuple[Violation, ...]
    reveal_type(register(spark))  # None
"""
# A type checker has to refuse every line with a comment; the comment is its reason.
WRONG = """
from replog import Consumer, Producer, ProducerConfig
from replog import Prducer  # Module "replog" has no attribute "Prducer"

def send(producer: Producer, consumer: Consumer) -> None:
    producer.send("orders", "text")  # incompatible type "str"; expected "bytes | None"
    producer.sned("orders", b"v")  # "Producer" has no attribute "sned"
    consumer.subscribe(["orders"], "earliest")  # incompatible type "str"; expected "OffsetReset"
    ProducerConfig(linger="5")  # Unexpected keyword argument "linger"
"""

# Tests of a user, of which one fails. They are typed, and mypy knows what the fixtures make.
TESTS = """
from hypothesis import given, settings
from hypothesis.stateful import rule
from replog import Scenario
from replog.testing import Outcome, RealCluster, RealClusters, SimCluster, SimClusterMachine, SimClusters, strategies

def test_holds(sim_cluster: SimClusters) -> None:
    cluster: SimCluster = sim_cluster(brokers=3, topics={"t": {"replicas": 3}})
    (sent,) = cluster.produce(["a"])
    cluster.advance(500)
    assert sent.outcome is Outcome.OK and [read.value for read in cluster.consumed()] == ["a"]

def test_fails(sim_cluster: SimClusters) -> None:
    cluster = sim_cluster()
    cluster.kill("leader")
    assert cluster.now_ms < 0

@settings(max_examples=3, deadline=None, database=None)
@given(strategies.scenarios(strategies.crashes(), most=2))
def test_drawn(scenario: Scenario) -> None:
    assert len(scenario.steps) <= 2

def make(real_cluster: RealClusters) -> RealCluster:
    return real_cluster("--config", "default.replication.factor=2", nodes=2)

class Machine(SimClusterMachine):
    topics = {"orders": {"partitions": 2}}

    @rule()
    def send(self) -> None:
        self.cluster.produce(1, topic="orders")
"""
WRONG_TESTS = """
from replog.testing import RealClusters, SimClusters

def test(sim_cluster: SimClusters, real_cluster: RealClusters) -> None:
    sim_cluster(broker=5)  # Unexpected keyword argument "broker"
    sim_cluster().advanse(5)  # "SimCluster" has no attribute "advanse"
    sim_cluster().kill("follower")  # incompatible type "Literal['follower']"
    sim_cluster().power_loss(1, keep="some")  # incompatible type "Literal['some']"
    real_cluster(nodes="2")  # incompatible type "str"; expected "int"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(build_wheel(tmp_path_factory.mktemp("wheel")), tmp_path_factory.mktemp("outside"))


@pytest.fixture(scope="module")
def editor(installed: Installed) -> Iterator[LanguageServer]:
    with language_server(installed.python, installed.directory) as server:
        yield server


def comments(program: str, mark: str) -> dict[int, str]:
    """Returns the comment at the end of each line that contains `mark`, by the line's number."""
    lines = enumerate(program.splitlines(), start=1)
    return {number: line.partition("  # ")[2] for number, line in lines if mark in line}


def found_by_mypy(installed: Installed, program: str, kind: str) -> dict[int, str]:
    """Returns what mypy says of a program, by the line's number; of its notes or errors, as `kind` says."""
    path = installed.directory / "checked.py"
    path.write_text(program)
    done = installed.run("-m", "mypy", *MYPY, "--hide-error-codes", path.name)
    assert done.stderr == ""
    said = (line.split(":", 3) for line in done.stdout.splitlines() if line.startswith(path.name))
    return {int(number): text.strip() for _, number, found, text in said if found.strip() == kind}


def test_a_program_of_the_public_names_runs(installed: Installed, tmp_path: Path) -> None:
    program = installed.copy(PROGRAM)
    with running(tmp_path / "data", 1, command=[str(installed.replog)]) as up:
        done = installed.run(program.name, up.bootstrap, str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "refused UNKNOWN_TOPIC_OR_PARTITION",
        "read orders-1 0 b'a' b'one' (('h', b'1'),)",
        "read orders-1 1 b'two'",
        "simulated mine HELD 1 64",
        "stored 0 [b'v'] 1",
    ]


def test_the_packages_come_from_the_wheel(installed: Installed) -> None:
    code = "import importlib, sys; print(*(importlib.import_module(name).__file__ for name in sys.argv[1:]))"
    files = installed.run("-c", code, *PACKAGES).stdout.split()
    assert len(files) == len(PACKAGES) and all(Path(file).is_relative_to(installed.site) for file in files)


def test_mypy_finds_no_mistake_and_no_any_in_the_program(installed: Installed) -> None:
    program = installed.copy(PROGRAM)
    done = installed.run("-m", "mypy", *MYPY, program.name)
    assert (done.returncode, done.stdout) == (0, "Success: no issues found in 1 source file\n"), done.stderr


def test_mypy_knows_the_types_of_the_public_names(installed: Installed) -> None:
    notes = found_by_mypy(installed, TYPED, "note")
    expected = comments(TYPED, "reveal_type")
    assert len(expected) == 12
    for number, wanted in expected.items():
        shown = notes[number].removeprefix('Revealed type is "').removesuffix('"')
        for module in ("cluster.shell.clients.delivery.", "sim.checkers.base."):
            shown = shown.replace(module, "")
        assert shown == wanted, (number, shown)


def test_mypy_finds_wrong_uses_of_the_public_names(installed: Installed) -> None:
    errors = found_by_mypy(installed, WRONG, "error")
    expected = comments(WRONG, "  # ")
    assert errors.keys() == expected.keys()
    for number, reason in expected.items():
        assert reason in errors[number]


@pytest.mark.slow
def test_a_users_tests_run_and_a_failure_prints_its_story_and_the_command_that_repeats_it(
    installed: Installed,
) -> None:
    (installed.directory / "test_of_user.py").write_text(TESTS)
    pytest_there = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_of_user.py")
    done = installed.run(*pytest_there, "--replog-seed", "7")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "1 failed, 2 passed" in done.stdout
    assert "replog: the story of the run" in done.stdout and "kill broker-" in done.stdout
    assert "\npytest test_of_user.py::test_fails --replog-seed 7\n" in done.stdout
    without = installed.run(*pytest_there, "-p", "no:replog", "-k", "holds")
    assert "fixture 'sim_cluster' not found" in without.stdout


@pytest.mark.slow
def test_mypy_knows_the_types_of_the_fixtures(installed: Installed) -> None:
    (installed.directory / "test_typed.py").write_text(TESTS)
    done = installed.run("-m", "mypy", "--strict", "--no-pretty", "test_typed.py")
    assert (done.returncode, done.stdout) == (0, "Success: no issues found in 1 source file\n"), done.stderr
    errors = found_by_mypy(installed, WRONG_TESTS, "error")
    expected = comments(WRONG_TESTS, "  # ")
    assert errors.keys() == expected.keys()
    for number, reason in expected.items():
        assert reason in errors[number]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("from replog import Pro", "Producer"),
        ("from replog import Pro", "ProducerConfig"),
        ("import replog\nreplog.run_sc", "run_scenario"),
        ('from replog import Producer\nProducer("127.0.0.1:19092").se', "send"),
        ('from replog import Producer\nwith Producer("127.0.0.1:19092") as p:\n    p.fl', "flush"),
        ('from replog import Producer\nProducer("").send("orders", b"v").result().off', "offset"),
        ('from replog import AsyncProducer\nAsyncProducer("").send_and', "send_and_wait"),
        ("from replog import PartitionLog\nPartitionLog.op", "open"),
        ("from replog.testing import Sim", "SimClusters"),
        (
            "from replog.testing import SimClusters\ndef test(made: SimClusters) -> None:\n    made().adv",
            "advance",
        ),
    ],
)
def test_an_editor_completes(editor: LanguageServer, typed: str, expected: str) -> None:
    assert expected in editor.complete(typed)


def test_an_editor_shows_the_docstring_of_what_it_completes(editor: LanguageServer) -> None:
    found = editor.complete('from replog import Producer\nProducer("").se')["send"]
    assert "Sends one record once the buffer has room" in str(found["documentation"])


def test_an_editor_completes_no_name_that_is_not_there(editor: LanguageServer) -> None:
    assert editor.complete("from replog import Prdu") == {}
