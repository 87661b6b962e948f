"""Spark for replog: a data source that reads log directories, and campaigns of simulated runs.

`register(spark)` makes `spark.read.format("replog").option("path", LOG_DIRECTORY).load()` work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register the format `replog` with this session."""
    from pipeline.source import ReplogDataSource

    spark.dataSource.register(ReplogDataSource)
