"""Spark for replog: a data source that reads log directories, and campaigns of simulated runs.

After `from replog import register`, `register(spark)` makes `spark.read.format("replog").load(LOG_DIRECTORY)` work.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register the format `replog` with this session.

    Where Spark runs on this machine and PYSPARK_PYTHON is not set, this interpreter reads the logs.
    """
    from pipeline.source import ReplogDataSource

    with _read_by_this_interpreter(spark):
        spark.dataSource.register(ReplogDataSource)


@contextlib.contextmanager
def _read_by_this_interpreter(spark: SparkSession) -> Iterator[None]:
    """Register what is registered in the block for this interpreter, unless the user or a cluster says which to run.

    Spark's default is the `python3` of the PATH, which does not see replog unless its environment was activated.
    """
    from pyspark.sql import SparkSession as ClassicSession

    # A session of Spark Connect has no context.
    context = spark.sparkContext if isinstance(spark, ClassicSession) else None
    if context is None or "PYSPARK_PYTHON" in os.environ or not (context.master or "").startswith("local"):
        yield
        return
    before, context.pythonExec = context.pythonExec, sys.executable
    try:
        yield
    finally:
        context.pythonExec = before
