"""A dump shows a large record piece by piece, as it would show it whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from storage.batch import Compression, Record, build_batch
from storage.batch.legacy.builder import build_message_set
from storage.disk.os_filesystem import OsFileSystem
from storage.inspection.dump.decoders import DECODER_CLASSES, STRING_DECODER, ClassDecoder
from storage.inspection.dump.dump import DumpOptions, dump_files
from tests.storage.logs import NOW_MS

TEXT = "aé€😀" * 30_000
BYTES = b"\xed\xa0\x80\xe2\x82\xff" * 20_000
RECORDS = [
    Record(0, NOW_MS, b"k", b"small"),
    Record(1, NOW_MS, TEXT.encode(), b"v", (("a", b"1"), ("b,é", None), ("", b""))),
    Record(2, NOW_MS, None, BYTES, ()),
    Record(3, NOW_MS, BYTES, TEXT.encode(), (("n" * 100_000, b"x"),)),
    Record(4, NOW_MS, b"key", None, (("h", BYTES),)),
    Record(5, NOW_MS, b"", b""),
    Record(6, NOW_MS, b"\0" * 8 + b"z", bytes(range(256)) * 300),
]
_API = "org.apache.kafka.tools.api."
_NUMBERS = ClassDecoder(key=DECODER_CLASSES[STRING_DECODER], value=DECODER_CLASSES[f"{_API}IntegerDecoder"])
_HEX = ClassDecoder(key=DECODER_CLASSES[f"{_API}DefaultDecoder"], value=bytes.hex)
DATA = DumpOptions(print_data_log=True)
OPTIONS = {
    "records": DumpOptions(deep_iteration=True),
    "data": DATA,
    "data alone": replace(DATA, skip_record_metadata=True),
    "hex": replace(DATA, decoder=_HEX),
    "numbers": replace(DATA, decoder=_NUMBERS),
}


def batches(kind: str) -> bytes:
    if kind == "magic 2":
        return build_batch(RECORDS, base_offset=0, partition_leader_epoch=0, compression=Compression.ZSTD)
    if kind == "plain":
        return build_batch(RECORDS, base_offset=0, partition_leader_epoch=0)
    bare = [record._replace(headers=()) for record in RECORDS]
    return build_message_set(bare, magic=1, compression=Compression.GZIP)


def dump(path: Path, options: DumpOptions) -> tuple[list[str], int]:
    """Returns the lines of a dump, and the size of the longest piece in which they came."""
    lines: list[str] = []
    longest = 0

    def write_pieces(pieces: Iterator[str]) -> None:
        nonlocal longest
        written = list(pieces)
        longest = max(longest, *map(len, written))
        lines.append("".join(written))

    status = dump_files(
        OsFileSystem(),
        [str(path)],
        options,
        write=lines.append,
        report=lines.append,
        write_pieces=write_pieces,
    )
    lines.append(f"status {status}")
    return lines, longest


@pytest.mark.parametrize("is_json", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", ["magic 2", "plain", "magic 1"])
def test_a_large_record_is_shown_in_pieces_as_it_is_whole(
    kind: str, options: str, is_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, chosen = tmp_path / f"{0:020d}.log", replace(OPTIONS[options], json=is_json)
    path.write_bytes(batches(kind))
    in_pieces, longest = dump(path, chosen)
    # Some records have no number, which ends the dump.
    assert in_pieces[-1] == ("status 1" if options == "numbers" else "status 0")
    # Six letters for each byte of a piece of 64 KiB that JSON has to escape.
    assert 0 < longest <= 6 * (1 << 16) + 3
    for module in ("storage.batch.record_stream", "storage.batch.legacy.stream"):
        monkeypatch.setattr(f"{module}.LARGE_RECORD_BYTES", 1 << 30)
    whole, no_piece = dump(path, chosen)
    assert no_piece == 0
    assert in_pieces == whole
    if is_json:
        # The last lines are an error, if any, and the status.
        assert all(json.loads(line) for line in in_pieces[:-2])


def test_a_large_record_of_a_control_batch_shows_its_header_keys(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    key = b"\0\0\0\1"
    record = Record(0, NOW_MS, key, bytes(6), (("h" * 70_000, None),))
    path.write_bytes(
        build_batch(
            [record, record._replace(offset=1)], base_offset=0, partition_leader_epoch=0, producer_id=1,
            producer_epoch=0, is_transactional=True, is_control=True,
        )
    )  # fmt: skip
    lines, _ = dump(path, DATA)
    shown = f"headerKeys: [{'h' * 70_000}] endTxnMarker: COMMIT coordinatorEpoch: 0"
    assert lines[-2].endswith(shown) and lines[-3].endswith(shown)
