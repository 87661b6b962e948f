"""`register`, by both of its names, in sessions that a user has made without our settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.session import SparkUnavailable, check_available
from tests.places import GOLDEN

try:
    check_available()
    missing = ""
except SparkUnavailable as reason:
    missing = str(reason)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing), reason=missing),
]

# What a user types. Both names are registered, the second in place of the first.
PROGRAM = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
context = spark.sparkContext
{change}
workers_run = context.pythonExec
for module in ("replog", "pipeline"):
    register = getattr(__import__(module), "register")
    register(spark)
    frame = spark.read.format("replog").load(sys.argv[1]).where("topic = 'shapes-gzip'")
    print(module, frame.count(), context.pythonExec == workers_run)
"""


def run_program(tmp_path: Path, change: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program outside of the checkout; `python3` of its PATH does not see replog."""
    kept = {name: text for name, text in os.environ.items() if name != "PYSPARK_PYTHON"}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(change=change), str(GOLDEN / "kafka-4.1" / "clean")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**kept, "PATH": os.defpath, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
        check=False,
    )


def test_a_local_session_reads_with_the_interpreter_that_registers(tmp_path: Path) -> None:
    done = run_program(tmp_path)
    assert done.stdout.splitlines() == ["replog 113 True", "pipeline 113 True"], done.stderr


def test_the_python_that_the_user_names_reads(tmp_path: Path) -> None:
    done = run_program(tmp_path, PYSPARK_PYTHON="/nowhere/python")
    assert done.returncode == 1 and "/nowhere/python" in done.stderr


def test_on_a_cluster_the_python_of_its_workers_reads(tmp_path: Path) -> None:
    # Its master is all that the session is asked.
    done = run_program(tmp_path, "context.master = 'spark://h:7077'; context.pythonExec = '/nowhere/python'")
    assert done.returncode == 1 and "/nowhere/python" in done.stderr
