"""`replog topics`, `produce` and `consume` against three real nodes; in one test a leader is killed meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.local.real_cluster import DEADLINE_S, FAST_SESSIONS, REPLOG, ROOT, Up, replog, running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("cluster"), 3, *FAST_SESSIONS) as up:
        yield up


def create(up: Up, name: str, *options: str) -> None:
    done = up.run("topics", "create", name, *options)
    assert done.returncode == 0, done.stderr


def test_topics_are_created_listed_described_altered_and_deleted(cluster: Up) -> None:
    create(
        cluster, "made", "--partitions", "2", "--replication-factor", "3", "--config", "min.insync.replicas=2"
    )
    assert b"made\n" in cluster.run("topics", "list").stdout
    partitions = cluster.describe("made")
    assert [partition["partition"] for partition in partitions] == [0, 1]
    for partition in partitions:
        assert partition["leader"] in (1, 2, 3)
        assert sorted(partition["replicas"]) == [1, 2, 3]  # type: ignore[call-overload]
        assert partition["high_watermark"] == partition["log_end_offset"] == 0
    altered = cluster.run("topics", "alter", "made", "--config", "min.insync.replicas=1")
    assert altered.returncode == 0, altered.stderr
    assert cluster.run("topics", "delete", "made").returncode == 0
    cluster.assert_soon(
        lambda: b"made\n" not in cluster.run("topics", "list").stdout, "a deleted topic stays"
    )


def test_a_topic_that_exists_is_not_called_created(cluster: Up) -> None:
    create(cluster, "twice")
    assert cluster.run("topics", "create", "twice").returncode == 2
    again = cluster.run("topics", "create", "twice", "--if-not-exists")
    assert (again.returncode, again.stdout) == (0, b"Topic twice already exists.\n")
    told = cluster.run("topics", "create", "twice", "--if-not-exists", "--json")
    assert json.loads(told.stdout) == {"name": "twice", "topic_id": "", "created": False}


@pytest.mark.slow
@pytest.mark.parametrize(
    "number, before",
    [
        (signal.SIGINT, ()),
        (signal.SIGTERM, ()),
        # A script's background job.
        (signal.SIGTERM, ("sh", "-c", 'trap "" INT; exec "$@"', "sh")),
    ],
)
def test_an_interrupted_produce_reports_the_outcome_of_the_records(
    cluster: Up, number: int, before: tuple[str, ...]
) -> None:
    topic = f"cut-short-{number}-{len(before)}"
    create(cluster, topic)
    command = [*before, *REPLOG, "produce", topic, "--bootstrap-server", cluster.bootstrap_servers]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT) as producer:
        assert producer.stdin is not None
        producer.stdin.write(b"a\nb\nc\n")
        producer.stdin.flush()
        cluster.assert_soon(lambda: cluster.describe(topic)[0]["high_watermark"] == 3, "nothing is committed")
        producer.send_signal(number)
        out, err = producer.communicate(timeout=DEADLINE_S)
    assert (producer.returncode, err) == (3, b"error: interrupted\n")
    assert out.startswith(b"3 records acknowledged, 0 failed"), out


@pytest.mark.parametrize(
    "given, wanted",
    [
        ("compression.type=brotli", "expected one of none, gzip, snappy, lz4, zstd"),
        ("linger.ms=soon", "expected a number"),
        ("enable.idempotence=maybe", "expected true or false"),
    ],
)
def test_a_bad_property_is_refused_with_what_was_expected(given: str, wanted: str) -> None:
    done = replog("produce", "any", "--producer-property", given)
    assert (done.returncode, done.stderr.decode()) == (2, f"error: {given}: {wanted}\n")


def test_lines_are_consumed_as_they_were_produced(cluster: Up) -> None:
    create(cluster, "lines", "--replication-factor", "3")
    lines = [b"first", b"", b"  spaces stay  ", "grüße".encode(), b"\xff\xfe", b"last without newline"]
    done = cluster.run("produce", "lines", "--acks", "all", "--json", given=b"\n".join(lines))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "acknowledged": 6,
        "failed": 0,
        "partitions": [{"partition": 0, "first_offset": 0, "last_offset": 5}],
    }
    consumed = cluster.run(
        "consume", "lines", "--from-beginning", "--max-messages", "6", "--timeout-ms", "20000"
    )
    assert consumed.returncode == 0, consumed.stderr
    assert consumed.stdout.splitlines() == lines


def test_time_that_runs_out_is_exit_status_3(cluster: Up) -> None:
    create(cluster, "short")
    cluster.run("produce", "short", given=b"one\n")
    done = cluster.run("consume", "short", "--from-beginning", "--max-messages", "2", "--timeout-ms", "500")
    assert (done.returncode, done.stdout) == (3, b"one\n")
    assert done.stderr.splitlines()[-1] == b"error: --max-messages 2: no record came for 500 ms"


@pytest.mark.parametrize("acks", ["1", "0"])
def test_other_acks_are_accepted(cluster: Up, acks: str) -> None:
    topic = f"acks-{acks}"
    create(cluster, topic, "--replication-factor", "3")
    done = cluster.run("produce", topic, "--acks", acks, "--json", given=b"a\nb\n")
    assert json.loads(done.stdout)["acknowledged"] == 2
    consumed = cluster.run(
        "consume", topic, "--from-beginning", "--max-messages", "2", "--timeout-ms", "20000"
    )
    assert consumed.stdout == b"a\nb\n"


@pytest.mark.parametrize(
    "arguments, error",
    [
        (("consume", "absent", "--from-beginning"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("produce", "absent"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("topics", "describe", "absent"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("topics", "delete", "absent"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("topics", "create", "../escape"), "INVALID_TOPIC_EXCEPTION"),
        (("produce", "a/b"), "INVALID_TOPIC_EXCEPTION"),
        (("topics", "create", "wide", "--replication-factor", "4"), "INVALID_REPLICATION_FACTOR"),
        (("topics", "create", "none", "--partitions", "0"), "INVALID_PARTITIONS"),
        (("topics", "create", "odd", "--config", "no.such=1"), "INVALID_CONFIG"),
    ],
)
def test_unusable_input_is_kafkas_error_on_one_line(
    cluster: Up, arguments: tuple[str, ...], error: str
) -> None:
    done = cluster.run(*arguments)
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 2, lines
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"error: {error}: ")


@pytest.mark.parametrize(
    "arguments", [("topics", "list"), ("topics", "create", "nowhere"), ("consume", "t"), ("produce", "t")]
)
def test_the_address_of_the_controller_is_unusable_and_named(cluster: Up, arguments: tuple[str, ...]) -> None:
    port = json.loads((cluster.data / "cluster.json").read_text())["controller_port"]
    done = replog(*arguments, "--bootstrap-server", f"127.0.0.1:{port}")
    assert (done.returncode, done.stderr.decode()) == (
        2,
        f"error: INVALID_REQUEST: no broker serves at 127.0.0.1:{port} (is it the controller's address?)\n",
    )
    assert b"nowhere" not in cluster.run("topics", "list").stdout


def test_an_offset_out_of_range_is_reported(cluster: Up) -> None:
    create(cluster, "ranged")
    done = cluster.run("consume", "ranged", "--partition", "0", "--offset", "99", "--timeout-ms", "20000")
    assert done.returncode == 2
    assert b"OFFSET_OUT_OF_RANGE" in done.stderr


def test_a_record_above_the_topics_limit_fails_and_the_rest_is_acknowledged(cluster: Up) -> None:
    create(cluster, "small", "--config", "max.message.bytes=2000")
    given = b"ok\n" + b"x" * 5000 + b"\n"
    options = ("--json", "--producer-property", "batch.size=100")
    done = cluster.run("produce", "small", *options, given=given)
    assert done.returncode == 1
    result = json.loads(done.stdout)
    assert (result["acknowledged"], result["failed"]) == (1, 1)
    assert b"MESSAGE_TOO_LARGE" in done.stderr


def test_no_cluster_is_reported_in_one_line() -> None:
    done = replog("topics", "list", "--bootstrap-server", "nonsense")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_no_acknowledged_line_is_lost_or_doubled_when_the_leader_is_killed(tmp_path: Path) -> None:
    lines = [f"line {number} {'x' * (number % 97)}".encode() for number in range(60_000)]
    with running(tmp_path / "data", 3, *FAST_SESSIONS) as up:
        create(up, "t", "--replication-factor", "3", "--config", "min.insync.replicas=2")
        leader = up.describe("t")[0]["leader"]
        assert isinstance(leader, int)
        command = [
            *REPLOG,
            "produce",
            "t",
            "--acks",
            "all",
            "--json",
            "--input",
            "lines",
            "--bootstrap-server",
            up.bootstrap_servers,
        ]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as producer:
            assert producer.stdin is not None and producer.stdout is not None
            producer.stdin.writelines(line + b"\n" for line in lines[:30_000])
            producer.stdin.flush()
            up.assert_soon(
                lambda: int(str(up.describe("t")[0]["high_watermark"])) > 10_000, "nothing is committed"
            )
            up.kill(leader)
            producer.stdin.writelines(line + b"\n" for line in lines[30_000:])
            producer.stdin.close()
            result = json.loads(producer.stdout.read())
        assert (result["acknowledged"], result["failed"]) == (len(lines), 0)
        consumed = up.run("consume", "t", "--from-beginning", "--until-end", "--timeout-ms", "20000")
        assert consumed.stdout.splitlines() == lines
        assert replog("nodes", "start", str(leader), "--data", str(up.data)).returncode == 0
        up.assert_soon(lambda: len(up.describe("t")[0]["isr"]) == 3, "the killed node does not rejoin")  # type: ignore[arg-type]
        assert up.stop() == 0


@pytest.mark.slow
def test_what_was_acknowledged_is_there_after_an_orderly_stop_and_a_new_start(tmp_path: Path) -> None:
    lines = [f"line {number}".encode() for number in range(1000)]
    with running(tmp_path, 2) as up:
        create(up, "kept", "--replication-factor", "2")
        assert up.run("produce", "kept", given=b"\n".join(lines)).returncode == 0
        assert replog("nodes", "restart", "1", "--data", str(tmp_path)).returncode == 0
        up.assert_soon(lambda: len(up.describe("kept")[0]["isr"]) == 2, "the restarted node does not rejoin")  # type: ignore[arg-type]
    with running(tmp_path, 2) as up:
        consumed = up.run(
            "consume", "kept", "--from-beginning", "--max-messages", "1000", "--timeout-ms", "20000"
        )
        assert consumed.stdout.splitlines() == lines
