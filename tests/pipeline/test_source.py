"""The data source and the campaign in a real Spark session.

All tests share one session, since a start costs seconds.
"""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.session import SparkUnavailable, check_available
from storage.disk.os_filesystem import OsFileSystem
from storage.inspection.dump.dump import DumpOptions, dump_files
from tests.places import GOLDEN, ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPICS = ("shapes-none", "shapes-gzip", "index-full-rolls", "empty")

try:
    check_available()
    missing = ""
except SparkUnavailable as reason:
    missing = str(reason)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(bool(missing), reason=missing),
    # Spark's own Python code warns.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from pipeline import register
    from pipeline.session import session

    running = session("replog tests", master="local[2]")
    register(running)
    yield running
    running.stop()


@pytest.mark.parametrize("module", ["replog", "pipeline"])
def test_a_log_is_read_by_the_interpreter_that_registers(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python3")
    register = importlib.import_module(module).register
    register(spark)
    logs = spark.read.format("replog").option("subscribe", "shapes-gzip")
    assert logs.load(str(GOLDEN / "kafka-4.1" / "clean")).count() == 113
    assert spark.sparkContext.pythonExec == "/nowhere/python3"


def records_in_dump(topic: str) -> int:
    """Return the records of all segments by our dump, whose tests hold it equal to that of Kafka."""
    files = sorted((GOLDEN / "kafka-4.1" / "clean" / f"{topic}-0").glob("*.log"))
    command = [
        sys.executable,
        "-m",
        "replog",
        "dump",
        "--deep-iteration",
        "--files",
        ",".join(map(str, files)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.count("\n| offset: ")


def test_the_source_counts_what_kafkas_dumps_show(spark: SparkSession) -> None:
    options = {"path": str(GOLDEN / "kafka-4.1" / "clean"), "subscribe": ",".join(TOPICS)}
    frame = spark.read.format("replog").options(**options).load()
    counted = {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert counted == {topic: records_in_dump(topic) for topic in TOPICS if records_in_dump(topic)}
    assert len(counted) == 3


@pytest.mark.parametrize("version", ["kafka-4.1", "kafka-2.8"])
def test_every_topic_counts_as_kafkas_dumps_do_and_its_values_are_those_of_a_plain_read(
    spark: SparkSession, version: str
) -> None:
    root = GOLDEN / version / "clean"
    folders = sorted(path for path in root.iterdir() if path.is_dir())
    dumped = {
        path.name.removesuffix("-0"): sum(map(data_records_in_dump, path.glob("*.log"))) for path in folders
    }
    frame = spark.read.format("replog").option("path", str(root)).load()
    rows = frame.select("topic", "offset", "key", "value").collect()
    counted = dict.fromkeys(dumped, 0)
    for row in rows:
        counted[row["topic"]] += 1
    assert counted == dumped and sum(counted.values()) > 900
    through_spark = {
        (row["topic"], row["offset"]): tuple(
            None if row[name] is None else bytes(row[name]) for name in ("key", "value")
        )
        for row in rows
    }
    assert through_spark == plain_read(root)


def data_records_in_dump(log: Path) -> int:
    """Return the data records by Kafka's dump where it is kept, else by ours, which is held equal to it."""
    kept = GOLDEN / "expected" / log.relative_to(GOLDEN).with_suffix(".log.txt")
    if kept.exists():
        lines = kept.read_text(encoding="utf-8").split("\n")
    else:
        lines = []
        options = DumpOptions(deep_iteration=True)
        dump_files(OsFileSystem(), [str(log)], options, write=lines.append, report=lines.append)
    return sum(line.startswith("| offset: ") and " endTxnMarker: " not in line for line in lines)


def plain_read(root: Path) -> dict[tuple[str, int], tuple[bytes | None, bytes | None]]:
    """Read the records straight from the batches, without a line of the pipeline."""
    from storage.batch import iterate_batches

    found: dict[tuple[str, int], tuple[bytes | None, bytes | None]] = {}
    for path in root.glob("*/*.log"):
        for batch in iterate_batches(path.read_bytes()):
            if not batch.is_control:
                for record in batch.records():
                    found[path.parent.name.removesuffix("-0"), record.offset] = (record.key, record.value)
    return found


def test_the_columns_are_those_of_kafkas_source(spark: SparkSession) -> None:
    frame = spark.read.format("replog").option("path", str(GOLDEN / "kafka-4.1" / "clean")).load()
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    with_headers = spark.read.format("replog").options(
        path=str(GOLDEN / "kafka-4.1" / "clean"), includeHeaders="true"
    )
    assert with_headers.load().columns[-1] == "headers"


@pytest.mark.parametrize("timestamps", ["TIMESTAMP_NTZ", "TIMESTAMP_LTZ"])
def test_a_timestamp_has_its_zone_whatever_the_session_takes_timestamps_for(
    spark: SparkSession, timestamps: str
) -> None:
    before = spark.conf.get("spark.sql.timestampType")
    assert before is not None
    spark.conf.set("spark.sql.timestampType", timestamps)
    try:
        frame = spark.read.format("replog").option("subscribe", "shapes-gzip")
        read = frame.load(str(GOLDEN / "kafka-4.1" / "clean"))
        assert dict(read.dtypes)["timestamp"] == "timestamp" and read.count() == len(read.collect()) == 113
    finally:
        spark.conf.set("spark.sql.timestampType", before)


def test_values_agree_byte_by_byte_with_a_plain_read(spark: SparkSession) -> None:
    from pipeline.directory import segment_ranges
    from pipeline.reading import segment_batches
    from storage.disk.os_filesystem import OsFileSystem

    root = str(GOLDEN / "kafka-4.1" / "clean")
    plain = []
    for wanted in segment_ranges(OsFileSystem(), root, {"subscribe": "shapes-none,shapes-gzip"}):
        for batch in segment_batches(wanted, include_headers=True, fail_on_data_loss=True):
            plain += [
                (r["topic"], r["offset"], r["key"], r["value"], r["headers"]) for r in batch.to_pylist()
            ]
    options = {"path": root, "subscribe": "shapes-none,shapes-gzip", "includeHeaders": "true"}
    rows = spark.read.format("replog").options(**options).load().orderBy("topic", "offset").collect()
    through_spark = [
        (
            r["topic"],
            r["offset"],
            None if r["key"] is None else bytes(r["key"]),
            None if r["value"] is None else bytes(r["value"]),
            r["headers"]
            and [
                {"key": h["key"], "value": None if h["value"] is None else bytes(h["value"])}
                for h in r["headers"]
            ],
        )
        for r in rows
    ]
    assert through_spark == sorted(plain, key=lambda row: (row[0], row[1]))


def test_filters_keep_their_rows_and_a_frame_that_is_used_again_keeps_all(spark: SparkSession) -> None:
    options = {"path": str(GOLDEN / "kafka-4.1" / "clean"), "subscribe": ",".join(TOPICS)}
    frame = spark.read.format("replog").options(**options).load()
    kept = frame.where("topic = 'index-full-rolls' and partition = 0 and offset >= 17 and offset < 40")
    assert [row["offset"] for row in kept.orderBy("offset").select("offset").collect()] == list(range(17, 40))
    gzip = frame.where("topic = 'shapes-gzip'")
    assert gzip.where("offset < 50").union(gzip.where("offset >= 50")).count() == 113
    assert gzip.count() == 113


def test_damage_fails_the_query_with_file_and_position(spark: SparkSession, tmp_path: Path) -> None:
    copy = tmp_path / "shapes-none-0"
    shutil.copytree(GOLDEN / "kafka-4.1" / "clean" / "shapes-none-0", copy)
    log = copy / f"{0:020d}.log"
    damaged = bytearray(log.read_bytes())
    # The byte is in the records of the second batch, which its CRC covers.
    damaged[470] ^= 1
    log.write_bytes(damaged)
    with pytest.raises(Exception, match=r"00000000000000000000\.log at byte"):
        spark.read.format("replog").option("path", str(tmp_path)).load().count()
    tolerant = spark.read.format("replog").options(path=str(tmp_path), failOnDataLoss="false").load()
    assert 0 < tolerant.count() < records_in_dump("shapes-none")


def test_a_missing_directory_is_named(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="/nowhere is not a directory"):
        spark.read.format("replog").option("path", "/nowhere").load().count()


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"path": "/nowhere"}, "/nowhere is not a directory"),
        ({"path": "/etc/passwd"}, "/etc/passwd is not a directory"),
        ({}, "option path is required: a log directory with folders TOPIC-PARTITION"),
        (
            {"path": "/", "subscribePatern": "x"},
            "unknown option subscribepatern: did you mean subscribePattern?",
        ),
        (
            {"path": "/", "startingTimestamp": "1"},
            "option startingTimestamp of Kafka's source is not supported",
        ),
        ({"path": "/", "pushdown": "true"}, "option pushdown: filters are Spark's own work"),
        ({"path": "/", "includeHeaders": "maybe"}, "option includeHeaders takes true or false, not 'maybe'"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line_without_a_trace(
    spark: SparkSession, options: dict[str, str], cause: str
) -> None:
    with pytest.raises(Exception, match=re.escape(cause)) as raised:
        spark.read.format("replog").options(**options).load().count()
    text = str(raised.value).removesuffix("\n SQLSTATE: 38000")
    assert text.count("\n") == 0 and "Traceback" not in text and "\tat " not in text, text


@pytest.mark.parametrize("headers", ["false", "true"])
def test_an_empty_selection_is_an_empty_frame_with_the_columns(spark: SparkSession, headers: str) -> None:
    options = {"path": str(GOLDEN / "kafka-4.1" / "clean"), "includeHeaders": headers, "pushdown": "false"}
    frame = spark.read.format("replog").options(**options).load()
    empty = spark.read.format("replog").options(**options, subscribe="nowhere").load()
    assert empty.schema == frame.schema and empty.collect() == []
    assert empty.groupBy("topic").count().collect() == []
    assert frame.where("topic = 'nowhere'").collect() == []


def test_a_function_of_the_user_keeps_its_trace(spark: SparkSession) -> None:
    from pyspark.sql.functions import udf

    with pytest.raises(Exception, match="/nowhere"):
        spark.read.format("replog").load("/nowhere").count()
    with pytest.raises(Exception, match="Traceback"):
        spark.range(1).select(udf(lambda value: 1 / 0)("id")).collect()


def test_reading_changes_no_file(spark: SparkSession, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "kafka-4.1" / "clean" / "index-full-rolls-0", tmp_path / "t-0")

    def listing() -> list[tuple[str, int, int]]:
        return sorted((p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in (tmp_path / "t-0").iterdir())

    before = listing()
    assert spark.read.format("replog").option("path", str(tmp_path)).load().count() > 0
    assert listing() == before


def test_a_campaign_has_a_row_for_each_seed(spark: SparkSession, tmp_path: Path) -> None:
    from pipeline.campaign import run_campaign
    from sim.seed_range import Seeds

    frame = run_campaign(
        spark, scenario=ROOT / "scenarios" / "leader-crash.yaml", seeds=Seeds(first=3, end=7)
    )
    frame.write.parquet(str(tmp_path / "results"))
    rows = spark.read.parquet(str(tmp_path / "results")).orderBy("seed").collect()
    assert [(row["seed"], row["verdict"]) for row in rows] == [(seed, "held") for seed in range(3, 7)]
    assert len({row["trace_hash"] for row in rows}) == 4
    command = [sys.executable, "-m", "replog", "sim", "run", str(ROOT / "scenarios" / "leader-crash.yaml")]
    alone = subprocess.run([*command, "--seed", "3", "--json"], capture_output=True, text=True, check=True)
    assert json.loads(alone.stdout)["trace_hash"] == rows[0]["trace_hash"]
