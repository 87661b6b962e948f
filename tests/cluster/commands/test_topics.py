"""`replog topics` against two real nodes that hold defaults for topics, beside a proxy that refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cluster.local.real_cluster import FAST_SESSIONS, Up, replog, running

# Nothing listens on the port: whatever uses the proxy gets no connection.
NO_PROXY_THERE = "http://127.0.0.1:9"
PROXY_VARIABLES = ("http_proxy", "https_proxy", "grpc_proxy")
DEFAULTS = (
    "--config", "num.partitions=3", "--config", "default.replication.factor=2", "--config", "min.insync.replicas=2",
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with pytest.MonkeyPatch.context() as patch:
        for name in PROXY_VARIABLES:
            patch.setenv(name, NO_PROXY_THERE)
        with running(tmp_path_factory.mktemp("cluster"), 2, *FAST_SESSIONS, *DEFAULTS) as up:
            yield up


def done(up: Up, *arguments: str) -> str:
    ended = up.run(*arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.decode()


def test_a_creation_that_names_no_counts_takes_those_of_the_cluster(cluster: Up) -> None:
    done(cluster, "topics", "create", "plain")
    assert [len(each["replicas"]) for each in cluster.describe("plain")] == [2, 2, 2]  # type: ignore[arg-type]


def test_counts_that_are_named_win(cluster: Up) -> None:
    done(cluster, "topics", "create", "named", "--partitions", "1", "--replication-factor", "1")
    assert [len(each["replicas"]) for each in cluster.describe("named")] == [1]  # type: ignore[arg-type]


def test_an_assignment_decides_the_number_of_partitions(cluster: Up) -> None:
    done(cluster, "topics", "create", "assigned", "--replica-assignment", "2:1,1:2,2:1,1:2")
    assert [each["replicas"] for each in cluster.describe("assigned")] == [[2, 1], [1, 2], [2, 1], [1, 2]]


@pytest.mark.parametrize("option", ["--partitions", "--replication-factor"])
def test_an_assignment_beside_a_count_is_refused(option: str) -> None:
    refused = replog("topics", "create", "both", "--replica-assignment", "1:2", option, "1")
    wanted = (
        f"error: --replica-assignment decides the number of partitions and of replicas: leave out {option}\n"
    )
    assert (refused.returncode, refused.stderr.decode()) == (2, wanted)


def test_added_partitions_are_led_and_take_records_when_the_command_returns(cluster: Up) -> None:
    done(cluster, "topics", "create", "growing", "--partitions", "1")
    told = json.loads(done(cluster, "topics", "alter", "growing", "--partitions", "4", "--json"))
    assert told == {"name": "growing", "altered": True, "configs": {}, "partitions": 4}
    partitions = cluster.describe("growing")
    assert [each["partition"] for each in partitions] == [0, 1, 2, 3]
    assert all(each["high_watermark"] == 0 and len(each["isr"]) == 2 for each in partitions)  # type: ignore[arg-type]
    lines = b"".join(b"%d:v\n" % number for number in range(40))
    assert cluster.run("produce", "growing", "--key-separator", ":", given=lines).returncode == 0
    assert all(each["log_end_offset"] for each in cluster.describe("growing"))


@pytest.mark.parametrize("count", ["2", "3"])
def test_a_topic_does_not_shrink_and_the_same_count_is_refused(cluster: Up, count: str) -> None:
    done(cluster, "topics", "create", f"grown-{count}", "--partitions", "3")
    refused = cluster.run("topics", "alter", f"grown-{count}", "--partitions", count)
    wanted = (
        f"error: INVALID_PARTITIONS: topic 'grown-{count}' has 3 partitions: {count} is no more than that\n"
    )
    assert (refused.returncode, refused.stderr.decode()) == (2, wanted)


def test_a_property_that_is_refused_leaves_the_partitions_as_they_were(cluster: Up) -> None:
    done(cluster, "topics", "create", "half", "--partitions", "1")
    refused = cluster.run("topics", "alter", "half", "--partitions", "3", "--config", "bogus=1")
    assert (refused.returncode, len(cluster.describe("half"))) == (2, 1)
    # And the other way round: what was done is said.
    refused = cluster.run("topics", "alter", "half", "--partitions", "1", "--config", "retention.ms=1000")
    first, second = refused.stderr.decode().splitlines()
    assert first == "the properties of half are set, no partition was added"
    assert second.startswith("error: INVALID_PARTITIONS") and refused.returncode == 2


@pytest.mark.parametrize("option", ["--partitions", "--replication-factor"])
def test_a_negative_count_is_refused(option: str) -> None:
    refused = replog("topics", "create", "any", option, "-1")
    assert refused.returncode == 2 and b"-1 is not in the range x>=0" in refused.stderr


def test_an_alteration_of_nothing_is_refused() -> None:
    refused = replog("topics", "alter", "any")
    wanted = b"error: nothing to alter: expected --partitions or --config\n"
    assert (refused.returncode, refused.stderr) == (2, wanted)


def test_a_deletion_is_told_as_json(cluster: Up) -> None:
    done(cluster, "topics", "create", "short-lived")
    told = json.loads(done(cluster, "topics", "delete", "short-lived", "--json"))
    assert told == {"name": "short-lived", "deleted": True}


def test_the_environment_names_the_servers_and_the_option_wins(
    cluster: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLOG_BOOTSTRAP_SERVER", cluster.bootstrap_servers)
    assert replog("topics", "list").returncode == 0
    monkeypatch.setenv("REPLOG_BOOTSTRAP_SERVER", "127.0.0.1:9")
    assert cluster.run("topics", "list").returncode == 0


def test_servers_of_the_environment_that_cannot_be_read_are_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REPLOG_BOOTSTRAP_SERVER", "nonsense")
    refused = replog("topics", "list")
    wanted = (
        b"error: the environment variable REPLOG_BOOTSTRAP_SERVER: bootstrap server: expected HOST:PORT, "
    )
    assert (refused.returncode, refused.stderr) == (2, wanted + b"got 'nonsense'\n")


@pytest.mark.parametrize(
    "command", [("produce",), ("consume",), ("topics", "create"), ("topics", "list"), ("topics", "describe"),
                ("topics", "alter"), ("topics", "delete")],
)  # fmt: skip
def test_every_command_names_the_variable_in_its_help(command: tuple[str, ...]) -> None:
    assert b"REPLOG_BOOTSTRAP_SERVER" in replog(*command, "--help").stdout


@pytest.mark.slow
def test_partitions_that_lack_a_replica_are_chosen(cluster: Up) -> None:
    done(cluster, "topics", "create", "both", "--replica-assignment", "1:2,2:1")
    done(cluster, "topics", "create", "alone", "--replica-assignment", "1")
    assert done(cluster, "topics", "describe", "--under-replicated-partitions") == ""
    cluster.kill(2)
    cluster.assert_soon(lambda: all(each["isr"] == [1] for each in cluster.describe("both")), "the ISR stays")
    lacking = done(cluster, "topics", "describe", "both", "--under-replicated-partitions").splitlines()
    assert [line.split("\t")[1:3] for line in lacking] == [
        ["Topic: both", "Partition: 0"],
        ["Topic: both", "Partition: 1"],
    ]
    # min.insync.replicas is the brokers' own.
    below = json.loads(done(cluster, "topics", "describe", "--under-min-isr-partitions", "--json"))
    assert "alone" not in [topic["name"] for topic in below["topics"]]
    assert "both" in [topic["name"] for topic in below["topics"]]
    assert replog("nodes", "start", "2", "--data", str(cluster.data)).returncode == 0
