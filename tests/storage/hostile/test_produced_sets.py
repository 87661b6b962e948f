"""No produced set of 1 MB holds a step for longer than 50 ms, however it is made."""

from __future__ import annotations

import pytest

from storage.batch import Compression
from storage.batch.pieces import LARGE_RECORD_BYTES
from storage.codec.compression import compress
from storage.errors import ValidationTakesLong
from storage.validation.sliced import SlicedValidation
from storage.validation.work import STEP_PIECES, STEP_WORK, StepWork
from tests.storage.hostile.produced_sets import (
    MOST_BYTES,
    SKIPPABLE_FRAME,
    Hostile,
    framed_packed,
    headers,
    hostile_sets,
    pieces_of_nothing,
    step_seconds,
)
from tests.storage.logs import NOW_MS, ROOMY, new_file_system, open_log

MOST_SECONDS = 0.05


@pytest.mark.parametrize("hostile", list(hostile_sets(700_000)), ids=lambda hostile: hostile.name)
def test_lv23_no_produced_set_holds_a_step_for_long(hostile: Hostile) -> None:
    assert len(hostile.records) <= MOST_BYTES
    seconds = step_seconds(hostile.records)
    print(f"{hostile.name}: {len(hostile.records)} bytes, {seconds * 1e3:.1f} ms in the step")
    assert seconds < MOST_SECONDS


def checks_of(records: bytes) -> SlicedValidation:
    return open_log(new_file_system(), ROOMY).appends.validation(records, NOW_MS)


def slice_count(records: bytes) -> int:
    """Return in how many slices the set is found to be right."""
    checks, count = checks_of(records), 0
    while not checks.is_done:
        checks.advance()
        count += 1
    assert checks.result is not None
    return count


@pytest.mark.parametrize("hostile", list(pieces_of_nothing(40_000)), ids=lambda hostile: hostile.name)
def test_lv23_pieces_that_unpack_to_nothing_are_work_of_a_slice_too(hostile: Hostile) -> None:
    assert slice_count(hostile.records) > 20


def test_lv23_nothing_between_the_bytes_of_a_large_record_is_work_of_a_slice_too() -> None:
    record = headers(LARGE_RECORD_BYTES)
    nothing = SKIPPABLE_FRAME * 640
    packed = b"".join(
        nothing + compress(Compression.ZSTD, part)
        for part in (record[:1], record[1:9], record[9:90], record[90:])
    )
    few = framed_packed(compress(Compression.ZSTD, record), 1, Compression.ZSTD)
    assert slice_count(framed_packed(packed + nothing, 1, Compression.ZSTD)) > slice_count(few) + 30


def test_lv23_a_step_unpacks_few_pieces_and_counts_them_as_work() -> None:
    record = compress(Compression.ZSTD, b"\x0c\x00\x00\x00\x01\x01\x00")
    few, many = (
        framed_packed(SKIPPABLE_FRAME * count + record, 1, Compression.ZSTD)
        for count in (STEP_PIECES // 2, STEP_PIECES)
    )
    log, work = open_log(new_file_system(), ROOMY), StepWork()
    with pytest.raises(ValidationTakesLong):
        log.append_as_leader(many, leader_epoch=0, now_ms=NOW_MS, work=work)
    assert work.left < STEP_WORK - 10 * STEP_PIECES
    before = work.left
    log.append_as_leader(few, leader_epoch=0, now_ms=NOW_MS, work=work)
    assert work.left < before - 4 * STEP_PIECES
