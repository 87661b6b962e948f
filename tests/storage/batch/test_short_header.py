"""A batch whose size field ends inside its header."""

from __future__ import annotations

from pathlib import Path

from storage.batch import Record, build_batch
from storage.batch.format import SIZE_FIELD, SIZE_FIELD_AT
from storage.disk.os_filesystem import OsFileSystem
from storage.segment.file_records import FileRecords


def test_fr9_a_header_that_its_size_field_cuts_off_is_read_to_its_end(tmp_path: Path) -> None:
    """A differential run against Kafka found it: its log ended at 112.

    Ours ended at 73, below its start, and was emptied.
    """
    records = [Record(offset=70 + each, timestamp=5 + each, key=None, value=b"v") for each in range(40)]
    data = bytearray(build_batch(records, base_offset=70))
    SIZE_FIELD.pack_into(data, SIZE_FIELD_AT, 14)
    path = tmp_path / f"{70:020d}.log"
    path.write_bytes(data)
    log = FileRecords(OsFileSystem(), str(path), file_already_exists=True)
    found = log.search_for_offset_with_size(100)
    assert found is not None and (found.offset, found.size_bytes) == (109, 26)
    log.close()
