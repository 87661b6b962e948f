"""The columns of the data source against a schema of the user's own, without a Spark session."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pipeline.errors import SourceError
from pipeline.source import ReplogDataSource, ReplogReader

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}


def reads(columns: dict[str, DataType], **options: str) -> ReplogReader:
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    return ReplogDataSource({"path": "/", **options}).reader(schema)


def test_the_columns_that_spark_parses_of_ours_are_taken() -> None:
    assert isinstance(reads(COLUMNS), ReplogReader)
    assert isinstance(reads(COLUMNS | {"headers": ArrayType(HEADER)}, includeHeaders="true"), ReplogReader)


@pytest.mark.parametrize(
    "columns",
    [
        COLUMNS | {"value": StringType()},
        COLUMNS | {"offset": IntegerType()},
        COLUMNS | {"timestamp": LongType()},
        COLUMNS | {"timestamp": TimestampNTZType()},
        COLUMNS | {"extra": IntegerType()},
        COLUMNS | {"headers": ArrayType(HEADER)},
        {"key": BinaryType()},
        {name: COLUMNS[name] for name in reversed(COLUMNS)},
    ],
)
def test_a_schema_of_the_users_own_with_other_columns_is_refused(columns: dict[str, DataType]) -> None:
    """Spark would fail in the midst of the read, or show columns that no record has."""
    with pytest.raises(SourceError, match=r"^the columns are fixed, leave out schema\(\): key binary, value"):
        reads(columns)


def test_headers_that_are_asked_for_are_a_column_of_the_users_schema_too() -> None:
    with pytest.raises(SourceError, match=r"headers array<struct<key:string,value:binary>>$"):
        reads(COLUMNS, includeHeaders="true")
