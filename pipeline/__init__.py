"""Spark over replog: a data source over log directories, and campaigns of simulated runs.

`register(spark)` makes `spark.read.format("replog").option("path", LOG_DIRECTORY).load()` work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format `replog` known to this session."""
    from pipeline.source import ReplogDataSource

    spark.dataSource.register(ReplogDataSource)
