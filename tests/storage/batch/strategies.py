"""Hypothesis strategies for records and batches."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

from storage.batch import BatchFields, Compression, Record, TimestampType

quick = settings(derandomize=True, deadline=None, max_examples=80)

int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
small_bytes = st.none() | st.binary(max_size=40) | st.integers(60, 70).map(bytes) | st.just(bytes(9000))
headers = st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=6)), max_size=3).map(tuple)
timestamps = st.integers(-1, 2**62)


@st.composite
def record_lists(draw: st.DrawFn, *, base_offset: int = 0, min_size: int = 1) -> list[Record]:
    """Draw records whose offsets rise from `base_offset` on, with gaps as compaction leaves them."""
    count = draw(st.integers(min_size, 6))
    offset = base_offset
    records: list[Record] = []
    for _ in range(count):
        offset += draw(st.integers(0, 300))
        records.append(Record(offset, draw(timestamps), draw(small_bytes), draw(small_bytes), draw(headers)))
        offset += 1
    return records


@st.composite
def batch_fields(draw: st.DrawFn) -> BatchFields:
    """Draw the fields of a batch header that fit together."""
    has_producer = draw(st.booleans())
    return BatchFields(
        base_offset=draw(st.integers(0, 2**50)),
        compression=draw(st.sampled_from(Compression)),
        timestamp_type=draw(st.sampled_from([TimestampType.CREATE, TimestampType.LOG_APPEND])),
        producer_id=draw(st.integers(0, 2**63 - 1)) if has_producer else -1,
        producer_epoch=draw(st.integers(0, 2**15 - 1)) if has_producer else -1,
        base_sequence=draw(st.integers(0, 2**31 - 1)) if has_producer else -1,
        partition_leader_epoch=draw(st.integers(-1, 2**31 - 1)),
        is_transactional=has_producer and draw(st.booleans()),
        log_append_time_ms=draw(st.integers(0, 2**62)),
    )


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """Draw `data` with some bytes changed, cut or put in."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(changed) - 1)))
        match draw(st.sampled_from(["poke", "cut", "insert"])):
            case "poke" if changed:
                changed[at] = draw(st.integers(0, 255))
            case "cut":
                del changed[at : at + draw(st.integers(1, 12))]
            case _:
                changed[at:at] = draw(st.binary(min_size=1, max_size=8))
    return bytes(changed)
