"""The data source `replog`: batch reads of a log directory, one task a segment, Arrow batches out.

The columns are those of Kafka's own Spark source (structured-streaming-kafka-integration), and so are the options
`startingOffsets`, `endingOffsets`, `includeHeaders`, `failOnDataLoss`, and one of `assign`, `subscribe` and
`subscribePattern`. `path` is the log directory. Any other option is refused, also one that Kafka's source has. Filters
stay with Spark: it would keep what one use of a frame pushes down for all its other uses (Spark 4.1).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from pipeline.directory import SegmentRange, segment_ranges
from pipeline.errors import SourceError
from pipeline.options import check_option_names, check_pushdown, flag
from pipeline.reading import HEADERS_COLUMN, SCHEMA, segment_batches
from storage.errors import StorageError, reason_of

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def in_one_line(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let Spark show only the message of what `method` raises, without the trace of its Python worker.

    Disk errors become SourceErrors. The worker shows one error and ends, so the setting reaches no other code in it.
    """

    @wraps(method)
    def shown(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return method(*args, **kwargs)
        except SourceError:
            _hide_trace()
            raise
        except OSError as error:
            _hide_trace()
            raise SourceError(reason_of(error)) from error
        except StorageError as error:
            _hide_trace()
            raise SourceError(" ".join(str(error).split())) from error

    return shown


def _hide_trace() -> None:
    # Spark sends the code of a session to processes that run a module of pyspark. No other process is changed.
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name.startswith("pyspark."):
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"


def _as_spark_names_them(schema: str) -> str:
    """Returns the schema with the names that Spark has for the types in code; a type of SQL may have several."""
    return schema.replace("timestamp_ltz", "timestamp")


class SegmentTask(InputPartition):
    """One task of a read: the wanted records of one segment."""

    def __init__(self, wanted: SegmentRange) -> None:
        super().__init__(wanted.path)
        self.wanted = wanted


class ReplogDataSource(DataSource):
    """The format `replog`: `spark.read.format("replog").option("path", LOG_DIRECTORY).load()`."""

    @in_one_line
    def __init__(self, options: dict[str, str]) -> None:
        """Raises SourceError for an option that this source does not have, and for `pushdown`."""
        super().__init__(options)
        check_option_names(options)
        check_pushdown(options)

    @classmethod
    def name(cls) -> str:
        return "replog"

    @in_one_line
    def schema(self) -> str:
        return SCHEMA + (HEADERS_COLUMN if flag(self.options, "includeHeaders", default=False) else "")

    @in_one_line
    def reader(self, schema: StructType) -> ReplogReader:
        """Create the reader that the options ask for.

        Raises SourceError without a `path`, for a bad flag, and for a schema of the user's own.
        """
        options = {key.lower(): value for key, value in self.options.items()}
        if not options.get("path"):
            raise SourceError("option path is required: a log directory with folders TOPIC-PARTITION")
        columns = [f"{field.name} {field.dataType.simpleString()}" for field in schema.fields]
        if columns != _as_spark_names_them(self.schema()).split(", "):
            raise SourceError(f"the columns are fixed, leave out schema(): {self.schema()}")
        return ReplogReader(options)

    @in_one_line
    def streamReader(self, schema: StructType) -> NoReturn:
        """Refuse a stream, in a line that says what works."""
        raise SourceError("there are no streams yet: use spark.read, which reads what is there")

    @in_one_line
    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuse to write, in a line that says what works."""
        raise SourceError("this source only reads: write with replog produce or a Producer")


class ReplogReader(DataSourceReader):
    """Reads a log directory. Spark sends it to the workers."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    @in_one_line
    def partitions(self) -> list[SegmentTask]:
        """Returns the tasks of the read. Raises SourceError for a missing directory or an unusable option."""
        from storage.disk.os_filesystem import OsFileSystem

        directory = self.options["path"].rstrip("/") or "/"
        file_system = OsFileSystem()
        if not file_system.exists(directory) or not file_system.stat(directory).is_directory:
            raise SourceError(f"{directory} is not a directory")
        return [SegmentTask(wanted) for wanted in segment_ranges(file_system, directory, self.options)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the records of one task as Arrow batches. At damage raises SourceError if failOnDataLoss is on."""
        # For a read without tasks Spark makes one that has no value.
        if not isinstance(partition, SegmentTask):
            assert partition.value is None, partition
            return
        batches = self._batches(partition)
        next_batch = in_one_line(lambda: next(batches, None))
        while (batch := next_batch()) is not None:
            yield batch

    def _batches(self, partition: SegmentTask) -> Iterator[pyarrow.RecordBatch]:
        return segment_batches(
            partition.wanted,
            include_headers=flag(self.options, "includeHeaders", default=False),
            fail_on_data_loss=flag(self.options, "failOnDataLoss", default=True),
        )
