"""`replog produce` and `replog consume` as a user of Kafka's console tools and of kcat knows them, on a real node."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.cluster.local.real_cluster import DEADLINE_S, REPLOG, ROOT, Up, replog, running

KEYS = ("--property", "parse.key=true", "--property", "key.separator=:")
EARLIEST = ("--from", "earliest", "--until-end")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("records"), 1) as up:
        yield up


def create(up: Up, name: str, partitions: int = 1) -> None:
    done = up.run("topics", "create", name, "--partitions", str(partitions))
    assert done.returncode == 0, done.stderr


def consumed(up: Up, topic: str, *options: str) -> bytes:
    done = up.run("consume", topic, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_json(*records: dict[str, object]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def test_a_bad_line_is_named_and_those_before_it_are_delivered(cluster: Up) -> None:
    create(cluster, "bad")
    done = cluster.run("produce", "bad", *KEYS, given=b"a:1\nb:2\nbad\nc:3\n")
    assert (done.returncode, done.stderr) == (2, b"error: line 3: no key.separator ':' in 'bad'\n")
    assert done.stdout == b"2 records acknowledged, 0 failed\n"
    assert consumed(cluster, "bad", *EARLIEST, "--property", "print.key=true") == b"a\t1\nb\t2\n"


def test_headers_keys_and_tombstones_come_back_in_kafkas_columns(cluster: Up) -> None:
    create(cluster, "columns")
    options = [f"--property={each}" for each in ("parse.key=true", "parse.headers=true", "null.marker=NULL")]
    given = b"h1:v1,h2:NULL\tk1\tv1\nNULL\tk1\tNULL\n"
    assert cluster.run("produce", "columns", *options, given=given).returncode == 0
    columns = [f"--property=print.{name}=true" for name in ("key", "headers", "offset", "partition", "epoch")]
    assert consumed(cluster, "columns", *EARLIEST, *columns) == (
        b"Partition:0\tOffset:0\tEpoch:0\th1:v1,h2:null\tk1\tv1\n"
        b"Partition:0\tOffset:1\tEpoch:0\tNO_HEADERS\tk1\tnull\n"
    )


def test_every_record_goes_to_the_fixed_partition(cluster: Up) -> None:
    create(cluster, "fixed", 3)
    done = cluster.run("produce", "fixed", "--partition", "2", *KEYS, given=b"a:1\nb:2\nc:3\n")
    assert done.returncode == 0, done.stderr
    assert consumed(cluster, "fixed", *EARLIEST, "-f", r"%t %p %o %k=%s\n") == (
        b"fixed 2 0 a=1\nfixed 2 1 b=2\nfixed 2 2 c=3\n"
    )
    absent = cluster.run("produce", "fixed", "--partition", "3", given=b"a\n")
    assert absent.returncode == 2
    assert absent.stderr.endswith(b"topic fixed has no partition 3: its partitions are 0 to 2\n")


def test_json_comes_back_as_it_went(cluster: Up) -> None:
    create(cluster, "origin", 3)
    create(cluster, "copy", 3)
    given = as_json(
        {"value": "grüße", "key": "k", "partition": 2, "timestamp": 1_700_000_000_000},
        {"value": None, "key": {"base64": "/w=="}, "partition": 2, "timestamp": 1_700_000_000_001},
        {"value": {"base64": "/wA="}, "headers": [{"key": "h", "value": None}, {"key": "h", "value": "1"}]},
    )
    assert cluster.run("produce", "origin", "--input", "json", given=given).returncode == 0
    first = consumed(cluster, "origin", *EARLIEST, "--json")
    done = cluster.run("produce", "copy", "--input", "json", "--json", given=first)
    assert (done.returncode, json.loads(done.stdout)["acknowledged"]) == (0, 3)
    again = consumed(cluster, "copy", *EARLIEST, "--json")
    assert sorted(again.splitlines()) == sorted(first.replace(b'"origin"', b'"copy"').splitlines())
    assert b'"topic": "origin", "partition": 2, "offset": 0, "timestamp": 1700000000000, "key": "k"' in first


def test_json_for_a_partition_that_the_topic_has_not_is_a_bad_line(cluster: Up) -> None:
    create(cluster, "narrow")
    given = as_json({"value": "a", "partition": 0}, {"value": "b", "partition": 1})
    done = cluster.run("produce", "narrow", "--input", "json", given=given)
    wanted = b"error: line 2: topic narrow has no partition 1: its partitions are 0 to 0\n"
    assert (done.returncode, done.stderr) == (2, wanted)
    assert consumed(cluster, "narrow", *EARLIEST) == b"a\n"


def test_a_start_is_a_time_or_a_count_from_the_end(cluster: Up) -> None:
    create(cluster, "timed", 2)
    first_ms = 1_700_000_000_000
    records: list[dict[str, object]] = [
        {"value": f"{number}", "partition": 0, "timestamp": first_ms + 1000 * number} for number in range(5)
    ]
    assert cluster.run("produce", "timed", "--input", "json", given=as_json(*records)).returncode == 0

    def values(start: str) -> list[bytes]:
        options = ("--until-end", "--consumer-property", "fetch.max.wait.ms=10")
        return consumed(cluster, "timed", "--from", start, *options).splitlines()

    assert values(str(first_ms + 3000)) == [b"3", b"4"]
    assert values(datetime.fromtimestamp(first_ms // 1000 + 2, UTC).isoformat()) == [b"2", b"3", b"4"]
    assert values("2023-11-14T23:13:22.001+01:00") == [b"3", b"4"]
    assert values(str(first_ms + 4001)) == []
    assert values("-2") == [b"3", b"4"]
    assert values("-100") == [b"0", b"1", b"2", b"3", b"4"]
    assert values("-0") == values("latest") == []
    assert values("earliest") == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("consume", "t", "--from", "earliest", "--from-beginning"), "each name a start: give one of them"),
        (("consume", "t", "--from", "-1", "--partition", "0", "--offset", "1"), "each name a start"),
        (("consume", "t", "--max-messages", str(1 << 63)), "is not in the range 0<=x<=9223372036854775807"),
        (("consume", "t", "--timeout-ms", "9" * 400), "is not in the range 1<=x<=9223372036854775807"),
        (("consume", "t", "--json", "-f", "%s"), "each say how a record is printed: give one of them"),
        (("consume", "t", "--json", "--property", "print.key=true"), "each say how a record is printed"),
        (("consume", "t", "-f", "%q"), "-f: no sequence %q (character 1): there are %s"),
        (("consume", "t", "--property", "print.kye=true"), "the nearest is print.key"),
        (("consume", "t", "--consumer-property", "check.crc=1"), "the nearest is check.crcs"),
        (("produce", "t", "--property", "parse.kye=true"), "the nearest is parse.key"),
        (("produce", "t", "--producer-property", "lingr.ms=1"), "the nearest is linger.ms"),
        (("produce", "t", "--input", "json", "--key-separator", ":"), "are for lines, and the input is JSON"),
        (("produce", "t", "--input", "json", "--property", "parse.key=true"), "are for lines"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_in_one_line(
    arguments: tuple[str, ...], reason: str
) -> None:
    done = replog(*arguments)
    lines = done.stderr.decode().splitlines()
    assert (done.returncode, len(lines)) == (2, 1), lines
    assert reason in lines[0]


@pytest.mark.slow
def test_a_reader_that_leaves_ends_consume_with_the_count(cluster: Up) -> None:
    create(cluster, "left")
    cluster.run("produce", "left", given=b"".join(b"%d %s\n" % (n, b"x" * 100) for n in range(3000)))
    command = [*REPLOG, "consume", "left", *EARLIEST, "--bootstrap-server", cluster.bootstrap_servers]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, cwd=ROOT) as consumer:
        assert consumer.stdout is not None and consumer.stderr is not None
        assert consumer.stdout.readline().startswith(b"0 x")
        consumer.stdout.close()
        told = consumer.stderr.read().decode()
    assert consumer.returncode == 0
    assert told.startswith("Processed a total of ") and told.count("\n") == 1, told
    assert 0 < int(told.split()[4]) < 3000


@pytest.mark.slow
def test_a_reader_that_leaves_ends_consume_although_no_record_comes(cluster: Up) -> None:
    create(cluster, "left-idle")
    cluster.run("produce", "left-idle", given=b"a\nb\n")
    command = [*REPLOG, "consume", "left-idle", "--from", "earliest", "--bootstrap-server", cluster.bootstrap]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, cwd=ROOT) as consumer:
        assert consumer.stdout is not None and consumer.stderr is not None
        assert consumer.stdout.read(4) == b"a\nb\n"
        consumer.stdout.close()
        assert consumer.stderr.read() == b"Processed a total of 2 messages\n"
    assert consumer.returncode == 0


@pytest.mark.slow
@pytest.mark.slow
def test_consume_reads_partitions_that_are_added_and_ends_when_the_topic_is_deleted(cluster: Up) -> None:
    create(cluster, "grows")
    command = [
        *REPLOG,
        "consume",
        "grows",
        "--from",
        "earliest",
        "--bootstrap-server",
        cluster.bootstrap_servers,
    ]
    age = ("--consumer-property", "metadata.max.age.ms=200")
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, *age], stdout=pipe, stderr=pipe, cwd=ROOT) as consumer:
        assert consumer.stdout is not None
        assert cluster.run("produce", "grows", given=b"a\n").returncode == 0
        assert consumer.stdout.readline() == b"a\n"
        assert cluster.run("topics", "alter", "grows", "--partitions", "2").returncode == 0
        assert cluster.run("produce", "grows", "--partition", "1", given=b"b\n").returncode == 0
        assert consumer.stdout.readline() == b"b\n"
        assert cluster.run("topics", "delete", "grows").returncode == 0
        _, told = consumer.communicate(timeout=DEADLINE_S)
    assert consumer.returncode == 2 and told.decode().startswith("error: UNKNOWN_TOPIC"), told


def test_a_result_that_no_one_reads_is_told_on_standard_error(cluster: Up) -> None:
    create(cluster, "unread")
    command = [*REPLOG, "produce", "unread", "--bootstrap-server", cluster.bootstrap_servers]
    out, into = os.pipe()
    os.close(out)
    done = subprocess.run(
        command, input=b"a\n", stdout=into, stderr=subprocess.PIPE, cwd=ROOT, timeout=DEADLINE_S, check=False
    )
    os.close(into)
    assert (done.returncode, done.stderr) == (0, b"1 records acknowledged, 0 failed\n")


@pytest.mark.slow
def test_an_interrupted_consume_tells_how_many_it_read(cluster: Up) -> None:
    create(cluster, "cut")
    cluster.run("produce", "cut", given=b"a\nb\n")
    command = [*REPLOG, "consume", "cut", "--from", "-1", "--bootstrap-server", cluster.bootstrap_servers]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, cwd=ROOT) as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == b"b\n"
        consumer.send_signal(signal.SIGINT)
        _, told = consumer.communicate(timeout=DEADLINE_S)
    assert (consumer.returncode, told) == (3, b"error: interrupted\nProcessed a total of 1 messages\n")


class Terminal:
    """A `replog produce` on a terminal of its own, from the first prompt on."""

    def __init__(self, up: Up, *options: str) -> None:
        self._master, slave = pty.openpty()
        command = [*REPLOG, "produce", *options, "--bootstrap-server", up.bootstrap_servers]
        # A terminal becomes that of the first process of a new session which opens it.
        opened = ["sh", "-c", 'exec <>"$0" >&0 2>&0 && exec "$@"', os.ttyname(slave)]
        self.process = subprocess.Popen([*opened, *command], cwd=ROOT, start_new_session=True)
        self.seen = ""
        self.until(">")
        os.close(slave)

    def until(self, text: str) -> None:
        """Read until `text` is on the screen."""
        while not self.seen.endswith(text):
            self.seen += os.read(self._master, 4096).decode().replace("\r\n", "\n")

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def end(self) -> int:
        """Return the exit status; what was printed until then is on the screen."""
        try:
            while data := os.read(self._master, 4096):
                self.seen += data.decode().replace("\r\n", "\n")
        except OSError:
            # Linux reports the end of the other side as an error.
            pass
        os.close(self._master)
        return self.process.wait(DEADLINE_S)


@pytest.mark.slow
def test_a_terminal_shows_a_prompt_and_no_spinner(cluster: Up) -> None:
    create(cluster, "typed")
    terminal = Terminal(cluster, "typed")
    terminal.type(b"one\n")
    terminal.until(">one\n>")
    terminal.type(b"two\n")
    terminal.until("two\n>")
    # Ctrl-D
    terminal.type(b"\x04")
    assert terminal.end() == 0
    assert terminal.seen == ">one\n>two\n>\n2 records acknowledged, 0 failed\n"


@pytest.mark.slow
def test_ctrl_c_at_the_prompt_tells_how_many_were_sent(cluster: Up) -> None:
    create(cluster, "typed-and-cut")
    terminal = Terminal(cluster, "typed-and-cut")
    terminal.type(b"one\n")
    terminal.until("one\n>")
    cluster.assert_soon(
        lambda: cluster.describe("typed-and-cut")[0]["high_watermark"] == 1, "nothing is committed"
    )
    terminal.type(b"\x03")
    assert terminal.end() == 3
    assert terminal.seen == ">one\n>^C\nerror: interrupted\n1 records acknowledged, 0 failed\n"


@pytest.mark.slow
def test_an_input_that_fails_tells_how_many_were_sent(cluster: Up) -> None:
    create(cluster, "torn-input")
    ours, theirs = pty.openpty()
    command = [*REPLOG, "produce", "torn-input", "--bootstrap-server", cluster.bootstrap]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, stdin=theirs, stdout=pipe, stderr=pipe)
    os.close(theirs)
    os.write(ours, b"a\nb\n")
    cluster.assert_soon(
        lambda: cluster.describe("torn-input")[0]["high_watermark"] == 2, "nothing is committed"
    )
    # The terminal is gone: Linux reports that as an error of the read.
    os.close(ours)
    told, error = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, told) == (2, b"2 records acknowledged, 0 failed\n")
    assert error == b"error: standard input: Input/output error\n"


@pytest.mark.slow
def test_a_bad_line_ends_the_typing_with_its_number(cluster: Up) -> None:
    create(cluster, "typed-badly")
    terminal = Terminal(cluster, "typed-badly", *KEYS)
    terminal.type(b"k:v\n")
    terminal.until("k:v\n>")
    terminal.type(b"bad\n")
    assert terminal.end() == 2
    assert terminal.seen.endswith(
        "bad\nerror: line 2: no key.separator ':' in 'bad'\n1 records acknowledged, 0 failed\n"
    )
