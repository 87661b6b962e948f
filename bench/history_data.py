"""Makes client histories of any length, line by line: sound ones, or with one record that was lost."""

from __future__ import annotations

from collections.abc import Iterator

KEYS, PRODUCERS, CONSUMERS = 12, 8, 2
# A poll returns this many records; each consumer reads every log, as long after the answers as this many records take.
POLLED, LAG = 2, 50


def history_lines(operations: int, *, lost: int = -1) -> Iterator[bytes]:
    """Yields a history of that many operations: every record is answered, and read by each of the consumers.

    Half of the operations are sends where a poll has two records and there are two consumers. The record at the offset
    `lost` of the first log is read by nobody.
    """
    records = operations // (1 + CONSUMERS // POLLED) // KEYS
    assert records > LAG, operations
    for offset in range(records + LAG):
        for key in range(KEYS):
            if offset < records:
                yield _sent(key, offset)
            if offset >= LAG and (offset - LAG) % POLLED == 0:
                for consumer in range(CONSUMERS):
                    yield _polled(
                        key, range(offset - LAG, min(offset - LAG + POLLED, records)), consumer, lost
                    )


def _value(key: int, offset: int) -> str:
    return f"producer-{offset % PRODUCERS}/{key}/{offset}"


def _sent(key: int, offset: int) -> bytes:
    value = f'["send","t-{key}",[{offset},"{_value(key, offset)}"]]'
    return (
        f'{{"process":"producer-{offset % PRODUCERS}","type":"ok","f":"send","value":[{value}]}}\n'.encode()
    )


def _polled(key: int, offsets: range, consumer: int, lost: int) -> bytes:
    read = [offset for offset in offsets if key != 0 or offset != lost]
    records = ",".join([f'[{offset},"{_value(key, offset)}"]' for offset in read])
    value = f'["poll",{{"t-{key}":[{records}]}}]'
    return f'{{"process":"consumer-{consumer}","type":"ok","f":"poll","value":[{value}]}}\n'.encode()
