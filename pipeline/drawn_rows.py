"""The columns of a campaign of drawn runs: a row as `replog sim swarm` writes it, as Parquet.

A key that a row lacks is null in its file, and absent again when it is read.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]

_COUNTS = pa.map_(pa.string(), pa.int64())
_NAMES = pa.list_(pa.string())
_VIOLATION = pa.struct([("checker", pa.string()), ("at_ms", pa.float64()), ("what", pa.string())])
COLUMNS = pa.schema(
    [
        ("scenario", pa.string()),
        ("seed", pa.int64()),
        ("verdict", pa.string()),
        ("trace_hash", pa.string()),
        ("events", pa.int64()),
        ("simulated_ms", pa.float64()),
        ("violations", pa.list_(_VIOLATION)),
        ("replay", pa.string()),
        ("operations", _COUNTS),
        ("excused", _COUNTS),
        ("excused_sends", _COUNTS),
        ("never_struck", _NAMES),
        ("buggify", _COUNTS),
        ("starved_because", pa.string()),
        ("profile", pa.string()),
        ("shape", pa.string()),
        ("faults", _NAMES),
        ("points", _NAMES),
        ("error", pa.string()),
        ("signature", pa.string()),
    ]
)
_MAPPINGS = frozenset(name for name in COLUMNS.names if pa.types.is_map(COLUMNS.field(name).type))


def as_parquet(rows: Sequence[Row]) -> bytes:
    """Returns a Parquet file of the rows. Raises ValueError for a key that has no column: none is lost silently."""
    for row in rows:
        if unknown := row.keys() - set(COLUMNS.names):
            raise ValueError(f"seed {row['seed']}: no column for {', '.join(sorted(unknown))}")
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(map(_paired, rows)), schema=COLUMNS), file)
    return file.getvalue()


def rows_of(path: Path) -> Iterable[Row]:
    """Yields the rows of a Parquet file. Raises OSError or ValueError for a file that is none of these."""
    # Arrow itself would cast what it can, and fill in nulls for the columns that are not there.
    with pq.ParquetFile(path) as file:
        if not file.schema_arrow.equals(COLUMNS):
            raise ValueError("other columns than those of drawn runs")
        table = file.read()
    if table.column("seed").null_count:
        raise ValueError("a row without a seed")
    for row in table.to_pylist():
        yield {
            name: dict(value) if name in _MAPPINGS else value
            for name, value in row.items()
            if value is not None
        }


def _paired(row: Row) -> Row:
    """Returns the row with each mapping as a list of pairs, as Arrow takes them."""
    return {name: list(value.items()) if name in _MAPPINGS else value for name, value in row.items()}
